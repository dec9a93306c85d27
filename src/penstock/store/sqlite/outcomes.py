"""Answers kept for retries: a table in the order of time, and an index by key in memory.

The index takes 16 to 32 bytes for each outcome of the window, `OUTCOMES_MAX` bounds their number, and it is read anew
when the store is opened. It may name a row that is gone or another key's; the row itself is what counts.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from penstock.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.store.port import AttemptKey
    from penstock.store.sqlite.transaction import Transaction

OUTCOMES_MAX = 1 << 24
"""So many outcomes can be kept at once: about a quarter of a gigabyte of index."""

APPENDED, LEASED = b"a", b"l"
"""The kinds of outcomes, which is how their keys begin: an append and a lease may share an attempt key."""

_OFFSET_BITS = 20
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_SLOTS_MIN = 1 << 16
_SLOTS_MAX = 1 << _OFFSET_BITS
_HASH_MASK = (1 << 64) - 1


class _Generation:
    """A hash table over a stretch of outcomes, at most half full.

    A slot holds 44 bits of a key's hash and, in the low bits, one more than the outcome's distance from `first_id`.
    """

    __slots__ = ("_room", "first_id", "last_id", "mask", "slots")

    def __init__(self, first_id: int, slots: int) -> None:
        self.first_id = first_id
        self.last_id = first_id
        self.mask = slots - 1
        self.slots = array("Q", bytes(8 * slots))
        self._room = slots // 2

    def takes(self, outcome_id: int) -> bool:
        return self._room > 0 and outcome_id - self.first_id < _OFFSET_MASK

    def add(self, hashed: int, outcome_id: int) -> None:
        slots, mask = self.slots, self.mask
        place = hashed & mask
        while slots[place]:
            place = (place + 1) & mask
        slots[place] = hashed & ~_OFFSET_MASK | (outcome_id - self.first_id + 1)
        self.last_id = outcome_id
        self._room -= 1

    def find(self, hashed: int) -> Iterator[int]:
        slots, mask = self.slots, self.mask
        place = hashed & mask
        wanted = hashed >> _OFFSET_BITS
        while entry := slots[place]:
            if entry >> _OFFSET_BITS == wanted:
                yield self.first_id + (entry & _OFFSET_MASK) - 1
            place = (place + 1) & mask


class Outcomes:
    """What earlier appends and leases answered, by their attempt keys."""

    def __init__(self, transaction: Transaction, *, window_ms: int) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._window_ms = window_ms
        self._generations: list[_Generation] = []
        self._next_id = 1
        for outcome_id, key in self._db.execute("SELECT id, key FROM outcome ORDER BY id"):
            self._index(outcome_id, key)
            self._next_id = outcome_id + 1

    def find(self, key: AttemptKey) -> bytes | None:
        """Return the answer that was kept with a key, if its window is not over."""
        for outcome_id in self._candidates(key):
            row = self._db.execute("SELECT key, at_ms, answer FROM outcome WHERE id = ?", (outcome_id,)).fetchone()
            if row is not None and row[0] == key and row[1] + self._window_ms > self._transaction.now_ms:
                return bytes(row[2])
        return None

    def _candidates(self, key: AttemptKey) -> list[int]:
        """Return the ids of the outcomes that may have a key: hardly ever more than the one that has it."""
        hashed = hash(key) & _HASH_MASK
        found: list[int] = []
        for generation in self._generations:
            # Nearly every key is new, and most new ones meet an empty slot.
            if generation.slots[hashed & generation.mask]:
                found += generation.find(hashed)
        return found

    def check_room(self) -> None:
        """Raise `StoreUnavailable` if no further outcome can be kept."""
        if self._generations and self._next_id - self._generations[0].first_id >= OUTCOMES_MAX:
            message = "As many requests as can be kept for their retries are kept already. Try again later."
            raise StoreUnavailable(message)

    def keep(self, outcomes: list[tuple[AttemptKey, bytes]]) -> None:
        """Keep answers with their keys. No key may have an answer that `find` still returns."""
        if not outcomes:
            return
        now_ms = self._transaction.now_ms
        rows = []
        for key, answer in outcomes:
            self._index(self._next_id, key)
            rows.append((self._next_id, now_ms, key, answer))
            self._next_id += 1
        self._db.executemany("INSERT INTO outcome (id, at_ms, key, answer) VALUES (?, ?, ?, ?)", rows)

    def forget(self, key: AttemptKey) -> None:
        """Remove what is kept with a key, to make place for another answer."""
        for outcome_id in self._candidates(key):
            self._db.execute("DELETE FROM outcome WHERE id = ? AND key = ?", (outcome_id, key))

    def sweep(self, rows_max: int) -> int:
        """Remove outcomes whose window is over, and say how many there were."""
        over_ms = self._transaction.now_ms - self._window_ms
        last_id = None
        swept = 0
        for outcome_id, at_ms in self._db.execute("SELECT id, at_ms FROM outcome ORDER BY id LIMIT ?", (rows_max,)):
            if at_ms > over_ms:
                break
            last_id = outcome_id
            swept += 1
        if last_id is not None:
            self._db.execute("DELETE FROM outcome WHERE id <= ?", (last_id,))
            while self._generations and self._generations[0].last_id <= last_id:
                del self._generations[0]
        return swept

    def _index(self, outcome_id: int, key: AttemptKey) -> None:
        generations = self._generations
        if not generations or not generations[-1].takes(outcome_id):
            # Each as large as all before it together: few generations to look into, and no table is ever rebuilt.
            held = outcome_id - generations[0].first_id if generations else 0
            slots = min(max(_SLOTS_MIN, 1 << (2 * held).bit_length()), _SLOTS_MAX)
            generations.append(_Generation(outcome_id, slots))
        generations[-1].add(hash(key) & _HASH_MASK, outcome_id)
