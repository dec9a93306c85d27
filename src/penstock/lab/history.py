"""The history of a run: what each process tried and what came of it, one JSON line for each event.

A message goes by the id in its body (`body_id`), or else by the id that the queue gave it. What an event's `f` means:

| f | the event |
|---|---|
| send, receive, delete, extend, purge, move | the SQS call of that name, one event for each message that it touched |
| check, start, complete | bookkeeping: is the effect on record, mark as started, mark as completed |
| effect | the call outside; `ok` when made, `fail` when it was refused or left out |
| apply | a version that was written; `fail` for one that was left out as stale |
| report | a job's result under its lease; `fail` when the lease was over |
| dead | a message seen in the dead-letter queue |
| crash, signal, exit | what befell a process; `step` says where it crashed, `code` how it exited |
| fix, outage | what the runner did; an outage is an `invoke` when it begins and an `ok` when it is over |
| sample | what the runner counted: depth, in flight, oldest age, consumers |

`invoke` precedes a call whose outcome may stay unknown; `info` says that it did.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Outcome = Literal["invoke", "ok", "fail", "info"]
Operation = Literal[
    "send",
    "receive",
    "delete",
    "extend",
    "purge",
    "move",
    "check",
    "start",
    "complete",
    "effect",
    "apply",
    "report",
    "dead",
    "crash",
    "signal",
    "exit",
    "fix",
    "outage",
    "sample",
]
Knob = str | int | float | bool | None


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run was made with: the first line of its history."""

    seed: int
    scenario: str
    variant: Literal["protected", "broken"] = "protected"
    endpoint: str
    versions: dict[str, str]
    knobs: dict[str, Knob]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that happened in one process. Fields that say nothing about it are None."""

    i: int
    """Its place in the history, from 1."""
    t_ms: int
    """Since the run began, on the clock that the run goes by."""
    mono_ns: int
    """The machine's own monotonic clock, which orders what several processes wrote."""
    process: str
    type: Outcome
    f: Operation
    queue: str | None = None
    message_id: str | None = None
    body_id: str | None = None
    receipt: str | None = None
    count: int | None = None
    """How often the message had been received, this time included."""
    sequence: int | None = None
    attempt: int | None = None
    """Which try of one call this is, from 1."""
    fault: str | None = None
    """What the lab did to it on purpose."""

    call: str | None = None
    """What the tries of one call have in common."""
    key: str | None = None
    """What the work is about, as an order: the key of business idempotency."""
    group: str | None = None
    """The message group of a FIFO queue."""
    tenant: str | None = None
    entity: str | None = None
    version: int | None = None
    until_ms: int | None = None
    """When the lease ends that was granted or extended."""
    sent_ms: int | None = None
    """When the message was sent, by the same clock as `t_ms`."""
    step: int | None = None
    code: int | None = None
    poison: bool | None = None
    phase: str | None = None
    """Which part of a scenario this belongs to, as `alone` or `shared`."""
    depth: int | None = None
    in_flight: int | None = None
    oldest_ms: int | None = None
    consumers: int | None = None
    what: str | None = None
    """A few words for the reader of the history."""

    @property
    def message(self) -> str | None:
        """The message that this is about, by the name it goes by."""
        return self.body_id if self.body_id is not None else self.message_id


class History(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one variant: what it was made with, and every event in order."""

    header: Header
    events: tuple[Event, ...]
