"""What a run left behind, what a check says about it, and how checks read it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec

from penstock.lab.history import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Verdict = Literal["held", "failed", "unknown"]


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the ledger: a call that was made outside. It has no unique key, or it could show no duplicate."""

    message: str
    """The message by the name that it has in the history: `Event.message`."""
    t_ms: int
    process: str
    key: str | None = None


class Left(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was left in a queue at the end, and which messages, if somebody looked."""

    count: int
    messages: tuple[str, ...] | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All that checks may look at. None means that nobody looked, which is not the same as nothing."""

    events: tuple[Event, ...]
    ledger: tuple[Call, ...] | None = None
    left: Left | None = None
    dead: Left | None = None
    state: dict[str, int] | None = None
    """The version of each entity at the end."""

    def of(self, f: str, *types: str, message: str | None = None) -> list[Event]:
        """Return the events of one kind in order: all types if none is named, all messages if none is named."""
        events = self._by_operation.get(f, []) if message is None else self._by_message.get(message, [])
        return [event for event in events if event.f == f and (not types or event.type in types)]

    def sent(self) -> dict[str, Event]:
        """Return what was certainly sent: each message with its first successful send."""
        return first_of(self.of("send", "ok"))

    def receives(self) -> dict[str, list[Event]]:
        """Return the receives of each message, in order. It is not to be changed."""
        return self._receives

    # Built once: a checker asks for the events of thousands of messages.
    @cached_property
    def _receives(self) -> dict[str, list[Event]]:
        return by_message(self.of("receive", "ok"))

    @cached_property
    def _by_message(self) -> dict[str, list[Event]]:
        return by_message(self.events)

    @cached_property
    def _by_operation(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            found[event.f].append(event)
        return dict(found)


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One assertion about one run."""

    name: str
    """What it goes by in commands and files."""
    rule: str
    """What must be so, as a sentence without its full stop."""
    verdict: Verdict
    count: int
    """How many things break the rule; where none does, how many were looked at."""
    figure: str
    """What was found in two or three words, for a table."""
    sentence: str
    """What was found, with its numbers."""
    witness: tuple[int, ...] = ()
    """The smallest set of events that proves it, by their `i`; the first such set in the history."""
    message: str | None = None
    """The message that the witness is about."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A name and a rule, to which a checker adds what it found."""

    name: str
    text: str

    def held(self, count: int, figure: str, sentence: str, witness: Iterable[Event | None] = ()) -> Check:
        return self._check("held", count, figure, sentence, witness)

    def failed(self, count: int, figure: str, sentence: str, witness: Iterable[Event | None] = ()) -> Check:
        return self._check("failed", count, figure, sentence, witness)

    def unknown(self, sentence: str, figure: str = "not seen", witness: Iterable[Event | None] = ()) -> Check:
        return self._check("unknown", 0, figure, sentence, witness)

    def _check(
        self, verdict: Verdict, count: int, figure: str, sentence: str, witness: Iterable[Event | None]
    ) -> Check:
        seen = {event.i: event for event in witness if event is not None}
        messages = [event.message for _, event in sorted(seen.items()) if event.message is not None]
        return Check(
            name=self.name,
            rule=self.text,
            verdict=verdict,
            count=count,
            figure=figure,
            sentence=sentence,
            witness=tuple(sorted(seen)),
            message=messages[-1] if messages else None,
        )


def by_message(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Sort events by the message they are about; those about none are left out."""
    found: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.message is not None:
            found[event.message].append(event)
    return dict(found)


def first_of(events: Iterable[Event]) -> dict[str, Event]:
    """Return the first event of each message."""
    return {message: many[0] for message, many in by_message(events).items()}


def number(count: int, one: str, many: str | None = None) -> str:
    """Write a count with its noun: `1 call`, `2,000 calls`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def all_of(count: int, one: str, many: str | None = None) -> str:
    """Begin a sentence about all things of a kind: `All 5 messages`, `The one message`."""
    return f"The one {one}" if count == 1 else f"All {number(count, one, many)}"


def seconds(ms: float) -> str:
    """Write a length of time as a person says it."""
    return f"{ms:,.0f} ms" if ms < 1_000 else f"{ms / 1_000:,.1f} s"


def earliest(pairs: Sequence[tuple[int, Sequence[Event]]]) -> Sequence[Event]:
    """Return the smallest witness of several, and of those the one that is complete first."""
    return min(pairs, key=lambda pair: (pair[0], [event.i for event in reversed(pair[1])]))[1]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The time during which one process alone has a message, and the events that say so."""

    message: str
    process: str
    got: Event
    until_ms: int
    """When it ended by itself, counting extensions; it may have ended sooner."""
    over: Event | None
    """The delete or report that ended it, if one did."""

    @property
    def end_ms(self) -> int:
        """When it was over."""
        return self.until_ms if self.over is None else min(self.until_ms, self.over.t_ms)


def leases(evidence: Evidence, *, visibility_ms: int) -> list[Lease]:
    """Return the leases in the order they were granted, each as long as the queue and the extensions made it."""
    found = []
    for message, events in by_message(evidence.events).items():
        for place, got in enumerate(events):
            if got.f != "receive" or got.type != "ok":
                continue
            until_ms = got.until_ms if got.until_ms is not None else got.t_ms + visibility_ms
            over = None
            for later in events[place + 1 :]:
                mine = later.process == got.process and (
                    later.receipt == got.receipt if later.receipt and got.receipt else True
                )
                if later.f == "receive" and later.process == got.process and later.type == "ok":
                    break
                if not mine or later.type != "ok" or later.t_ms > until_ms:
                    continue
                if later.f == "extend" and later.until_ms is not None:
                    until_ms = later.until_ms
                elif later.f in {"delete", "report"}:
                    over = later
                    break
            found.append(Lease(message=message, process=got.process, got=got, until_ms=until_ms, over=over))
    return sorted(found, key=lambda lease: lease.got.i)


def lateness(evidence: Evidence, *, visibility_ms: int) -> dict[int, int]:
    """Return the events by which a holder went on after the end of its lease, and how many ms after it."""
    events = by_message(evidence.events)
    late = {}
    for lease in leases(evidence, visibility_ms=visibility_ms):
        later = (event for event in events[lease.message] if event.process == lease.process and event.i > lease.got.i)
        for event in itertools.takewhile(lambda event: event.f != "receive", later):
            if event.f in {"effect", "apply", "report", "delete"} and event.t_ms > lease.until_ms:
                late[event.i] = event.t_ms - lease.until_ms
    return late
