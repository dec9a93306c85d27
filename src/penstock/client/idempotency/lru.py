"""Completed records that were used last, so that a repeat need not ask the store."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from penstock.client.idempotency.records import Completed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


RECORD_BYTES = 400
"""What a record takes in memory besides its texts, about."""


class _Entry(msgspec.Struct, frozen=True):
    record: Completed
    until_ms: int
    size: int


class RecentlyUsed:
    """At most `count` records and `size` bytes of them. The one whose last use is longest ago goes first.

    None is returned once its time to live is over. Any thread may use it.
    """

    def __init__(self, now_ms: Callable[[], int], count: int, size: int) -> None:
        self._now_ms = now_ms
        self._count_max = count
        self._bytes_max = size
        self._bytes = 0
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        """Return the keys that it has, the one whose last use is longest ago first."""
        with self._lock:
            return iter(list(self._entries))

    @property
    def used_bytes(self) -> int:
        """The bytes of all records that it has."""
        return self._bytes

    def get(self, key: str) -> Completed | None:
        """Return a record, which is the one used last from now on."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if entry.until_ms <= self._now_ms():
                self._drop(key)
                return None
            self._entries.move_to_end(key)
            return entry.record

    def put(self, key: str, record: Completed) -> None:
        """Keep a record, and let others go for it."""
        size = RECORD_BYTES + len(key.encode()) + len(record.result or b"") + len(record.fingerprint)
        with self._lock:
            self._drop(key)
            if size > self._bytes_max or not self._count_max or record.left_ms <= 0:
                return
            self._entries[key] = _Entry(record, self._now_ms() + record.left_ms, size)
            self._bytes += size
            while len(self._entries) > self._count_max or self._bytes > self._bytes_max:
                self._drop(next(iter(self._entries)))

    def drop(self, key: str) -> None:
        """Forget a record."""
        with self._lock:
            self._drop(key)

    def after_fork(self) -> None:
        """Have a lock that no thread of the parent holds, and nothing that one of them was changing."""
        self._lock = threading.Lock()
        self._entries = OrderedDict()
        self._bytes = 0

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size
