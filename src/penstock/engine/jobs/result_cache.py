"""The result cache: what finished jobs came to, for those who ask again with the same key."""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.clock import from_wall_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.domain.clock import Clock

BYTES_MAX = 64 * 1_048_576
"""How much all results together may take."""

JITTER = 0.2
"""What part of its time an entry may lose, so that those that came together do not go together."""


class CachedResult(msgspec.Struct, frozen=True, gc=False):
    """What a key stands for. `fingerprint` tells another request under the same key."""

    job_id: str
    fingerprint: bytes
    result: bytes
    until_ms: int


class ResultCache:
    """Results by key (a caller's, or the digest of the payload): the least recently used go first, all after a time.

    Beside the store, never instead of it: what is not here is looked up there, and whatever changes a job makes the
    cache forget it.
    """

    def __init__(
        self, clock: Clock, *, entries_max: int, ttl_ms: int, chance: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._entries_max = entries_max
        self._ttl_ms = ttl_ms
        self._chance = chance
        self._entries: OrderedDict[tuple[int, bytes], CachedResult] = OrderedDict()
        self._keys: dict[str, tuple[int, bytes]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, queue_id: int, key: bytes) -> CachedResult | None:
        """Return what a key of a queue stands for, if that is known."""
        entry = self._entries.get((queue_id, key))
        if entry is None:
            return None
        if entry.until_ms <= self._clock.now_ms():
            self.forget(entry.job_id)
            return None
        self._entries.move_to_end((queue_id, key))
        return entry

    def put(self, queue_id: int, key: bytes, *, job_id: str, fingerprint: bytes, result: bytes, until_ms: int) -> None:
        """Keep a result for a while, at the longest until the wall clock shows `until_ms`."""
        self.forget(job_id)
        stale = self._entries.get((queue_id, key))
        if stale is not None:
            self.forget(stale.job_id)
        ttl_ms = int(self._ttl_ms * (1 - JITTER * self._chance()))
        until_ms = min(from_wall_ms(self._clock, until_ms), self._clock.now_ms() + ttl_ms)
        self._entries[queue_id, key] = CachedResult(job_id, fingerprint, result, until_ms)
        self._keys[job_id] = (queue_id, key)
        self._bytes += len(result)
        while len(self._entries) > self._entries_max or self._bytes > BYTES_MAX:
            self.forget(next(iter(self._entries.values())).job_id)

    def forget(self, job_id: str) -> None:
        """Forget what is known of a job."""
        place = self._keys.pop(job_id, None)
        if place is not None:
            self._bytes -= len(self._entries.pop(place).result)
