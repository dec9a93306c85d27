"""What a relay has to say: one notice for each thing that a person would act on."""

from __future__ import annotations

import logging
from typing import Literal, Protocol

import msgspec

from penstock.domain.log_fields import log_fields

Peer = Literal["database", "server"]
_log = logging.getLogger("penstock.relay")


class RelayNotice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. Durations are in seconds."""


class Ready(RelayNotice, frozen=True, kw_only=True):
    """The database and the server were reached."""

    waiting: int
    """How many jobs wait in the outbox."""


class Enqueued(RelayNotice, frozen=True, kw_only=True):
    """Jobs were enqueued and removed from the outbox."""

    jobs: int
    took_s: float


class SetAside(RelayNotice, frozen=True, kw_only=True):
    """A job was refused for good and set aside."""

    queue: str
    job: str
    reason: str


class PutOff(RelayNotice, frozen=True, kw_only=True):
    """Jobs of a queue were refused for now, and its others wait for them."""

    queue: str
    jobs: int
    in_s: float
    reason: str


class Lost(RelayNotice, frozen=True, kw_only=True):
    """The database or the server does not answer."""

    peer: Peer
    in_s: float
    reason: str


class Back(RelayNotice, frozen=True, kw_only=True):
    """It answers again."""

    peer: Peer
    after_s: float


class Stopping(RelayNotice, frozen=True, kw_only=True):
    """The relay was asked to stop; it finishes what it has begun."""

    reason: str


class Stopped(RelayNotice, frozen=True, kw_only=True):
    """The relay has stopped."""

    enqueued: int
    set_aside: int
    ran_s: float
    waiting: int | None
    """How many jobs are left, if the database said so."""


class RelayObserver(Protocol):
    """Receives the notices."""

    def notice(self, notice: RelayNotice) -> None:
        """Take in what happened."""


class LogObserver:
    """Logs notices by Python's logging, as `penstock.relay`."""

    def notice(self, notice: RelayNotice) -> None:
        """Take in what happened."""
        level = logging.INFO
        if isinstance(notice, SetAside | Lost):
            level = logging.ERROR
        elif isinstance(notice, PutOff):
            level = logging.WARNING
        elif isinstance(notice, Enqueued):
            level = logging.DEBUG
        given = {name: getattr(notice, name) for name in notice.__struct_fields__}
        fields = log_fields({name: value for name, value in given.items() if value is not None})
        _log.log(level, "%s %s", type(notice).__name__.lower(), fields)
