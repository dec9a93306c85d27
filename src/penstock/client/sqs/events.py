"""What a consumer tells: events for each message, counters, and log lines."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.domain.log_fields import log_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.sqs.message import Message

logger = logging.getLogger("penstock.sqs")

Kind = Literal[
    "received",
    "started",
    "done",
    "failed",
    "poison",
    "snoozed",
    "discarded",
    "deleted",
    "undeleted",
    "extended",
    "released",
    "lost",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One thing that happened to a message.

    A message is `received`, `started`, then `done`, `failed`, `snoozed` or `discarded`; a `failed` one whose body
    cannot be decoded, or that failed too often, is `poison` too. What is done or discarded is `deleted`, or `undeleted`
    if SQS did not take the delete. `extended` is a heartbeat, `lost` one that came too late. `released` messages are
    visible again without having been run, or before they ended.
    """

    kind: Kind
    message: Message
    took_s: float = 0.0
    """How long the handler ran."""
    delay_s: float | None = None
    """In how many seconds the message is visible again; None if its visibility was not changed."""
    error: BaseException | None = None
    result: object = None
    reason: str = ""


@dataclass(slots=True)
class Counters:
    """How many messages had which fate since the consumer was made, and how many it holds now."""

    received: int = 0
    started: int = 0
    done: int = 0
    failed: int = 0
    poison: int = 0
    snoozed: int = 0
    discarded: int = 0
    deleted: int = 0
    undeleted: int = 0
    """The work is done, and SQS did not take the delete: they will be received again."""
    extended: int = 0
    lost: int = 0
    """Their visibility may have ended while they were held."""
    released: int = 0
    polls: int = 0
    empty_polls: int = 0
    in_flight: int = 0


_LEVELS: dict[str, int] = {
    "failed": logging.WARNING,
    "poison": logging.ERROR,
    "undeleted": logging.ERROR,
    "lost": logging.WARNING,
    "released": logging.INFO,
    "snoozed": logging.INFO,
    "discarded": logging.INFO,
}


@dataclass(slots=True)
class Events:
    """Counts events, logs them, and passes them on to a callback. Not for other threads than the event loop's."""

    counters: Counters = field(default_factory=Counters)
    on_event: Callable[[Event], object] | None = None

    def emit(self, event: Event) -> None:
        """Take an event in. What the callback raises is logged: no message is lost by it."""
        setattr(self.counters, event.kind, getattr(self.counters, event.kind, 0) + 1)
        level = _LEVELS.get(event.kind, logging.DEBUG)
        if logger.isEnabledFor(level):
            log(level, event.kind, **_fields(event))
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:  # The user's own code.
                logger.exception("on_event failed to take in %s", event.kind)


def log(level: int, word: str, **fields: object) -> None:
    """Log a line of a word and fields, which the record also has as `penstock_NAME`."""
    logger.log(
        level, "%s %s", word, log_fields(fields), extra={f"penstock_{name}": value for name, value in fields.items()}
    )


def _fields(event: Event) -> dict[str, object]:
    message = event.message
    fields: dict[str, object] = {"message": message.id, "receives": message.receive_count, "queue": message.queue_url}
    if message.group is not None:
        fields["group"] = message.group
    if event.took_s:
        fields["took_s"] = round(event.took_s, 3)
    if event.delay_s is not None:
        fields["again_in_s"] = event.delay_s
    if event.error is not None:
        fields["error"] = f"{type(event.error).__name__}: {event.error}"
    if event.reason:
        fields["reason"] = event.reason
    return fields
