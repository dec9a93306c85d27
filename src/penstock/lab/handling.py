"""What a consumer does with one message: check before doing, in six steps, with every way to crash in between.

1. record in `message_status` that the work began;
2. look into `message_side_effects` whether the call was made: if so, go on with 5;
3. make the call, by a conditional write to `message_side_effects`;
4. (a crash here is what the pattern is for);
5. record in `message_status` that the work is done;
6. delete the message.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.lab.payloads import business_key, facts_of, payload_of, queue_name, short_receipt
from penstock.lab.versions import Versions, append_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.sqs.message import Message
    from penstock.lab.consumer_settings import ConsumerSettings
    from penstock.lab.observing import Observer
    from penstock.lab.tables.opening import Tables

CRASHED = 3
"""The exit code of a consumer that crashed on purpose."""

_STEPS = {1: "", 2: ", the check", 3: ", the call", 4: ", after the call", 5: ", the record", 6: ", the delete"}

log = logging.getLogger("penstock.lab.consumer")

Fate = Literal["done", "rejected", "failed"]


class Received(NamedTuple):
    """What the lab knows of one received message."""

    message_id: str
    """The id that the queue gave it."""
    id: str
    """What it goes by: the payload's id, else the queue's."""
    body: str
    payload: dict[str, Any]
    receipt: str
    receives: int
    sent_ms: int | None
    facts: dict[str, object]
    """What all its events have."""


def received_of(message: Message) -> Received:
    """Read what a message holds."""
    payload = payload_of(message.body)
    facts = facts_of(payload)
    facts |= {
        "queue": queue_name(message.queue_url),
        "message_id": message.id,
        "receipt": short_receipt(message.receipt),
        "group": message.group or facts["group"],
    }
    return Received(
        message_id=message.id,
        id=str(facts["body_id"] or message.id),
        body=message.body,
        payload=payload,
        receipt=message.receipt,
        receives=message.receive_count,
        sent_ms=int(message.system["SentTimestamp"]) if "SentTimestamp" in message.system else None,
        facts=facts,
    )


class SeenIds:
    """The ids of the messages that were handled last: a cache that forgets the one used longest ago."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, message_id: str) -> bool:
        """Return whether an id is known, which counts as a use of it."""
        if message_id not in self._ids:
            return False
        self._ids.move_to_end(message_id)
        return True

    def add(self, message_id: str) -> None:
        """Remember an id."""
        if self._size:
            self._ids[message_id] = None
            self._ids.move_to_end(message_id)
            if len(self._ids) > self._size:
                self._ids.popitem(last=False)


class Handling:
    """Works on messages one by one. Each step is a method, and each method is one step."""

    def __init__(
        self, settings: ConsumerSettings, observer: Observer, tables: Tables, beat: Callable[[], None]
    ) -> None:
        self.settings = settings
        self.observer = observer
        self.tables = tables
        self.beat = beat
        """Extends the leases of all messages in hand."""
        versioning = settings.versioning
        self.keys_called = SeenIds(settings.idempotency_cache_size)
        """Business keys of the calls that this process made: all that it knows without a table."""
        self.versions = (
            None if versioning is None else Versions(versioning, last_write_wins=settings.has("last-write-wins"))
        )

    def handle(self, message: Received) -> Fate:
        """Do the work, all but the delete: what came of it says whether that follows."""
        settings = self.settings
        if settings.crash_rate and self.observer.random.random() < settings.crash_rate:
            self.crash(message, step=1, why="CRASH_RATE")
        if settings.reject_payload_marker and settings.reject_payload_marker in message.body:
            log.warning("message %s is rejected: its payload has the marker", message.id)
            self.observer.record("fail", "effect", **message.facts, what="rejected: poison")
            return "rejected"
        self.crash_before(message, 1)
        self.start(message)
        if settings.crash_after_receive:
            self.crash(message, step=2, why="CRASH_AFTER_RECEIVE")
        if message.receives <= settings.fail_receives:
            log.warning("message %s failed: the service is down", message.id)
            self.observer.record("fail", "effect", **message.facts, fault="outage", what="the service is down")
            return "failed"
        if self.stale(message):
            return "done"
        self.crash_before(message, 2)
        if settings.has("skip-check") or not self.check(message):
            self.work()
            self.crash_before(message, 3)
            self.call(message)
            if settings.crash_after_side_effect:
                self.crash(message, step=4, why="CRASH_AFTER_SIDE_EFFECT")
        self.crash_before(message, 4)
        self.crash_before(message, 5)
        self.complete(message)
        self.crash_before(message, 6)
        return "done"

    # -- the steps ------------------------------------------------------------------------------------

    def start(self, message: Received) -> None:
        """Step 1."""
        fields = self.settings.business_idempotency_field
        if fields and business_key(message.payload, fields) is None:
            log.warning("message %s lacks %s: its own id is the key", message.id, ", ".join(fields))
        self.observer.pace.step()
        attempt = None if self.tables.status is None else self.tables.status.mark_started(message.id)
        self.observer.record("ok", "start", **message.facts, attempt=attempt, what="STARTED")

    def check(self, message: Received) -> bool:
        """Step 2: return whether the call is on record."""
        self.observer.pace.step()
        table = self.tables.side_effects
        found = table is not None and table.exists(self.key(message))
        self.observer.record("ok", "check", **message.facts, what="on record" if found else "not on record")
        if found:
            log.info("message %s: the call is on record, and left out", message.id)
            self.observer.record("fail", "effect", **message.facts, what="left out: on record")
        return found

    def work(self) -> None:
        """Take as long as the service outside takes, and keep the lease meanwhile if there is a heartbeat."""
        left_s = self.settings.side_effect_delay_seconds
        beat_s = self.settings.heartbeat_seconds
        while beat_s and left_s > beat_s:
            self.observer.pace.sleep(beat_s)
            left_s -= beat_s
            self.beat()
        if left_s:
            self.observer.pace.sleep(left_s)

    def call(self, message: Received) -> None:
        """Step 3: make the call, unless the conditional write says that it was made."""
        if self.versions is not None and (found := self.versions.read(message.payload)) is not None:
            self.apply(message, *found)
            return
        self.observer.pace.step()
        table = self.tables.side_effects
        conditional = not self.settings.has("unconditional-write")
        key = self.key(message)
        if table is not None and not table.write(key, conditional=conditional):
            self.observer.record("fail", "effect", **message.facts, what="refused: key is taken")
            log.info("message %s has its effect already", message.id)
            return
        by_key = table is None and self.settings.business_idempotency_field
        if by_key and key in self.keys_called:
            self.observer.record("fail", "effect", **message.facts, what="left out: key seen by this process")
            log.info("message %s is about something that was called for already, and is left out", message.id)
            return
        self.make_call(message)
        if by_key:
            self.keys_called.add(key)

    def make_call(self, message: Received) -> None:
        """Do what cannot be undone, and write it down."""
        self.observer.call_made(message.id, _text(message.facts["key"]))
        place = message.facts["sequence"]
        what = "call written" if place is None else f"call written, number {place} of {message.facts['group']}"
        self.observer.record("ok", "effect", **message.facts, what=what)
        if self.settings.side_effect_log_path:
            field = self.settings.side_effect_log_field
            append_line(self.settings.side_effect_log_path, str(message.payload.get(field, "")))

    def apply(self, message: Received, entity: str, version: int) -> None:
        """Step 3 with versions: write the state, unless it has a higher one."""
        assert self.versions is not None
        self.observer.pace.step()
        facts = message.facts | {"entity": entity, "version": version}
        if self.versions.apply(entity, version):
            self.observer.call_made(message.id, _text(message.facts["key"]))
            self.observer.record("ok", "apply", **facts, what=f"version {version} written")
        else:
            self.observer.record("fail", "apply", **facts, what=f"version {version} is stale")

    def complete(self, message: Received) -> None:
        """Step 5."""
        self.observer.pace.step()
        if self.tables.status is not None:
            self.tables.status.mark_completed(message.id)
        self.observer.record("ok", "complete", **message.facts, what="COMPLETED")

    # -- what may happen in between -------------------------------------------------------------------

    def stale(self, message: Received) -> bool:
        """Leave out a message that is too old to be of use."""
        limit_s = self.settings.stale_after_seconds
        if not limit_s or message.sent_ms is None:
            return False
        age_ms = self.observer.pace.now_ms() - message.sent_ms
        if age_ms <= limit_s * 1_000:
            return False
        log.info("message %s is stale, %.1f s old, and left out", message.id, age_ms / 1_000)
        self.observer.record("fail", "effect", **message.facts, what=f"left out: stale, {age_ms / 1_000:.1f} s old")
        return True

    def crash_before(self, message: Received, step: int) -> None:
        """Crash if the plan says so for this receive of the message."""
        plan = self.settings.crash_at_steps
        if 1 <= message.receives <= len(plan) and plan[message.receives - 1] == step:
            self.crash(message, step=step, why="CRASH_AT_STEPS")

    def crash(self, message: Received, *, step: int, why: str) -> None:
        """End at once, as when the machine fails: nothing is cleaned up."""
        log.error("crash on purpose before step %d of message %s", step, message.id)
        self.observer.record(
            "info", "crash", **message.facts, step=step, fault=why, what=f"before step {step}{_STEPS[step]}"
        )
        os._exit(CRASHED)

    def key(self, message: Received) -> str:
        """Return what `message_side_effects` knows the call by."""
        found = business_key(message.payload, self.settings.business_idempotency_field)
        return message.id if found is None else found


def _text(value: object) -> str | None:
    return None if value is None else str(value)
