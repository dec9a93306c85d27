"""The lab's producer: sends synthetic messages in batches, at a rate, some of them poison."""

from __future__ import annotations

import json
import math
import os
import sys
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from penstock.lab.endpoints import sqs_of
from penstock.lab.observing import Observer
from penstock.lab.payloads import POISON_MARKER, facts_of, queue_name
from penstock.lab.variables import BadValue

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Sequence

BATCH_MAX = 10
COUNT_MAX = 10_000_000
WORK = (1, 1_000)


class Draft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message to send, as a line of a file has it: its payload, and what a queue may want beside it."""

    body: dict[str, Any]
    group: str | None = None
    deduplication: str | None = None
    delay_s: int | None = None


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer is told."""

    queue_url: str
    n: int = 10
    """How many messages; 0 is until it is stopped."""
    rate: float = 0.0
    """How many per second; 0 is as fast as possible."""
    batch_size: int = 10
    poison_count: int = 0
    poison_every: int = 0
    region: str = ""
    profile: str = ""
    file: str = ""
    """A file of drafts, one line of JSON each, to be sent instead of synthetic messages."""

    def check(self) -> None:
        """Refuse what makes no sense; raises `BadValue`."""
        if not self.queue_url.startswith(("http://", "https://")):
            raise BadValue(f"--queue-url must begin with http:// or https://, not {self.queue_url!r}.")
        if not 0 <= self.n <= COUNT_MAX:
            raise BadValue(f"--n must be 0 (until stopped) to {COUNT_MAX}, not {self.n}.")
        if not math.isfinite(self.rate) or self.rate < 0:
            raise BadValue(f"--rate must be 0 (as fast as possible) or more, not {self.rate}.")
        if not 1 <= self.batch_size <= BATCH_MAX:
            raise BadValue(f"--batch-size must be 1 to {BATCH_MAX}, not {self.batch_size}.")
        if self.poison_every < 0:
            raise BadValue(f"--poison-every must be 1 or more, not {self.poison_every}.")
        if self.poison_count < 0 or (self.n and not self.poison_every and self.poison_count > self.n):
            raise BadValue(f"--poison-count must be 0 to {self.n}, not {self.poison_count}.")
        if not self.n and self.poison_count and not self.poison_every:
            raise BadValue("--poison-count needs a number of messages; --poison-every works without an end.")


class NotSent(RuntimeError):
    """The queue refused messages of a batch."""


class Producer:
    """Sends messages until all are sent or it is stopped."""

    def __init__(self, settings: ProducerSettings, observer: Observer) -> None:
        self.settings = settings
        self.observer = observer
        self.sqs = sqs_of(settings.queue_url, region=settings.region or None, profile=settings.profile or None)
        self.stopping = False
        self.sent = 0

    def run(self) -> int:
        """Send, and return how many messages were sent."""
        pace, settings = self.observer.pace, self.settings
        began_ms = pace.now_ms()
        drafts = iter(self.drafts())
        while not self.stopping and (batch := list(islice(drafts, self.batch_size))):
            self.send(batch)
            if settings.rate:
                due_ms = began_ms + self.sent * 1_000 / settings.rate
                pace.sleep(max(due_ms - pace.now_ms(), 0) / 1_000, wanted=lambda: not self.stopping)
        return self.sent

    @property
    def batch_size(self) -> int:
        """How many messages go together: at a slow rate no more than one second brings."""
        rate = self.settings.rate
        return min(self.settings.batch_size, max(int(rate), 1)) if rate else self.settings.batch_size

    def drafts(self) -> Iterable[Draft]:
        """Make the messages, in order."""
        if self.settings.file:
            lines = Path(self.settings.file).read_bytes().splitlines()
            return [msgspec.json.decode(line, type=Draft) for line in lines]
        return synthetic(self.settings, self.observer.random)

    def send(self, drafts: Sequence[Draft]) -> None:
        """Send one batch; raises `NotSent` if the queue refuses any of it."""
        self.observer.pace.step()
        entries = [self._entry(place, draft) for place, draft in enumerate(drafts)]
        answer = self.sqs.send_message_batch(QueueUrl=self.settings.queue_url, Entries=entries)
        ids = {entry["Id"]: entry["MessageId"] for entry in answer.get("Successful", [])}
        queue = queue_name(self.settings.queue_url)
        for place, draft in enumerate(drafts):
            facts = facts_of(draft.body) | {"queue": queue, "message_id": ids.get(str(place))}
            facts["group"] = draft.group or facts["group"]
            self.observer.record("ok" if str(place) in ids else "fail", "send", **facts)
        self.sent += len(ids)
        if refused := answer.get("Failed"):
            raise NotSent(f"{len(refused)} of {len(drafts)} messages were refused: {refused[0].get('Message')}")

    def _entry(self, place: int, draft: Draft) -> dict[str, Any]:
        entry: dict[str, Any] = {"Id": str(place), "MessageBody": json.dumps(draft.body)}
        if draft.group is not None:
            entry["MessageGroupId"] = draft.group
        if draft.deduplication is not None:
            entry["MessageDeduplicationId"] = draft.deduplication
        if draft.delay_s is not None:
            entry["DelaySeconds"] = draft.delay_s
        return entry

    def stop(self) -> None:
        """Send what is under way and no more."""
        self.stopping = True


def synthetic(settings: ProducerSettings, source: random.Random) -> Iterator[Draft]:
    """Make payloads with an id and some work; poison ones say so and have the marker."""
    poison = set(source.sample(range(settings.n), settings.poison_count)) if settings.n else set[int]()
    fifo = settings.queue_url.endswith(".fifo")
    for index in range(settings.n) if settings.n else count():
        body: dict[str, Any] = {
            "id": str(UUID(int=source.getrandbits(128), version=4)),
            "work": source.randint(*WORK),
        }
        if (index + 1) % settings.poison_every == 0 if settings.poison_every else index in poison:
            body |= {"poison": True, "marker": POISON_MARKER}
        if fifo:
            body["sequence"] = index
        yield Draft(body=body, group="lab" if fifo else None, deduplication=str(body["id"]) if fifo else None)


def produce(settings: ProducerSettings, observer: Observer | None = None) -> int:
    """Send messages, and return how many were sent; SIGTERM and Ctrl+C end it after the batch under way."""
    settings.check()
    observer = observer or Observer()
    producer = Producer(settings, observer)
    observer.on_stop(producer.stop)
    try:
        return producer.run()
    finally:
        producer.sqs.close()
        observer.close()


def main(arguments: Sequence[str]) -> int:
    """Run a producer for the runner, with its settings as JSON."""
    sent = produce(msgspec.json.decode(arguments[0], type=ProducerSettings))
    sys.stdout.write(f"{sent} sent\n")
    return os.EX_OK
