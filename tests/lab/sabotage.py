"""Consumers with a promise broken from outside, as no knob breaks it: the checks have to notice each of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from penstock.client.sqs.message import Message
from penstock.lab.consumer import Consumer, main
from penstock.lab.handling import Fate, Handling, Received, received_of
from penstock.lab.observing import PHASE_VARIABLE, Observer
from penstock.lab.payloads import facts_of
from penstock.lab.producer import Draft, Producer, ProducerSettings

MINUTE_MS = 60_000

Entry = Callable[[Sequence[str]], int]


def _entry(name: str, **members: object) -> Entry:
    """Return a process whose consumer handles messages with these methods."""
    handling = type(name, (Handling,), members)
    kind = type(f"{name}Consumer", (Consumer,), {"handling": handling})
    return lambda arguments: main(arguments, kind=kind)


def _idle(self: Handling, message: Received) -> Fate:
    """Say that all is done, and do nothing."""
    return "done"


def _unconditional(self: Handling, message: Received) -> None:
    """Make the call whatever is on record."""
    self.observer.pace.step()
    assert self.tables.side_effects is not None
    self.tables.side_effects.write(self.key(message), conditional=False)
    self.make_call(message)


def _swallow(self: Handling, message: Received) -> Fate:
    """Reject the poison, and say that the good ones are done without doing them."""
    marker = self.settings.reject_payload_marker
    return "rejected" if marker and marker in message.body else "done"


def _twice(self: Handling, message: Received) -> None:
    """Make the call once more than asked."""
    Handling.call(self, message)
    self.make_call(message)


class Acknowledging(Consumer):
    """Deletes what it receives before it does anything with it."""

    def handle(self, message: Message) -> None:
        self.observer.pace.step()
        self.sqs.delete_message(QueueUrl=message.queue_url, ReceiptHandle=message.receipt)
        self.observer.record("ok", "delete", **received_of(message).facts)
        super().handle(message)


works_on_nothing = _entry("Idle", handle=_idle)
swallows_the_good = _entry("Swallowing", handle=_swallow)
calls_twice = _entry("Twice", call=_twice)
writes_without_condition = _entry("Unconditional", call=_unconditional)


def acknowledges_on_receipt(arguments: Sequence[str]) -> int:
    return main(arguments, kind=Acknowledging)


def _every_other(self: Handling, message: Received) -> Fate:
    """Say that all is done, and do half of it."""
    self.handled = getattr(self, "handled", 0) + 1  # type: ignore[attr-defined]
    return "done" if self.handled % 2 else Handling.handle(self, message)  # type: ignore[attr-defined]


def _blind(self: Handling, message: Received) -> bool:
    """Find nothing on record, whatever is."""
    return False


loses_half = _entry("Losing", handle=_every_other)
never_looks = _entry("Blind", check=_blind, call=_unconditional)


class Forgetful(Producer):
    """Says that it sent what it sent within a minute of a purge: so does an endpoint whose purge takes it along."""

    def send(self, drafts: Sequence[Draft]) -> None:
        if not os.environ.get(PHASE_VARIABLE) or self.observer.now_ms() > MINUTE_MS:
            super().send(drafts)
            return
        for draft in drafts:
            self.observer.record("ok", "send", **facts_of(draft.body))
        self.sent += len(drafts)


def forgets_for_a_minute(arguments: Sequence[str]) -> int:
    settings = msgspec.json.decode(arguments[0], type=ProducerSettings)
    observer = Observer()
    try:
        Forgetful(settings, observer).run()
    finally:
        observer.close()
    return 0
