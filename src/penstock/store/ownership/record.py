"""The record of a database file's owner: one line of JSON in the lock file beside the database."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from penstock.domain.clock import SystemClock

_RECORD_BYTES_MAX = 8_192

State = Literal["starting", "ready", "failed"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Who owns a database file, or who last tried to."""

    state: State
    pid: int
    version: str
    schema: int
    boot: str
    """The id of the kernel that the owner runs on."""
    since_ms: int
    """When the owner started."""
    socket: str | None = None
    """The Unix socket that it serves, relative to the database's folder; None if it serves none."""
    error: str | None = None
    """Why it failed."""

    def __str__(self) -> str:
        told = f"{self.state}, pid {self.pid}, version {self.version}, schema {self.schema}"
        return told if self.error is None else f"{told}: {self.error}"


def read_record(lock: int) -> Record | None:
    """Read the record from an open lock file; None if there is none that this version understands."""
    try:
        return msgspec.json.decode(os.pread(lock, _RECORD_BYTES_MAX, 0), type=Record)
    except msgspec.DecodeError:
        return None


def write_record(lock: int, record: Record | None) -> None:
    """Replace the record; None removes it."""
    text = b"" if record is None else msgspec.json.encode(record) + b"\n"
    # In this order a reader sees the old record, the new one, or one that it does not understand; never half of each.
    os.ftruncate(lock, 0)
    os.pwrite(lock, text, 0)


def age_s(lock: int) -> float:
    """Return how long ago the record was last written or renewed, by the file's own time."""
    return max(0.0, SystemClock().wall_ms() / 1_000 - os.fstat(lock).st_mtime)
