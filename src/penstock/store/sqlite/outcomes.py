"""Answers kept for retries: a table in the order of time, and an index by key in memory.

The index takes 32 to 64 bytes for each outcome of the window, `OUTCOMES_MAX` bounds their number, and it is made anew
when the store is opened. It may name a row that is gone or another key's; the row itself is what counts.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from penstock.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.store.port import AttemptKey
    from penstock.store.sqlite.transaction import Transaction

OUTCOMES_MAX = 1 << 23
"""So many outcomes can be kept at once, with half a gigabyte of index: 28,000 requests a second for five minutes."""

APPENDED, LEASED = b"a", b"l"
"""The kinds of outcomes, which is how their keys begin: an append and a lease may share an attempt key."""

_OFFSET_BITS = 20
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_SLOTS_PER_OUTCOME = 4
_SLOTS_MIN = 1 << 16
_SLOTS_MAX = 1 << 21
_HASH_MASK = (1 << 64) - 1

_LOAD = "SELECT id, key FROM outcome WHERE at_ms > ? ORDER BY id"


class _Generation:
    """A hash table over a stretch of outcomes, at most a quarter full, so that a search ends soon.

    A slot holds 44 bits of a key's hash and, in the low bits, one more than the outcome's distance from `first_id`.
    """

    __slots__ = ("first_id", "last_id", "mask", "room", "slots")

    def __init__(self, first_id: int, slots: int) -> None:
        self.first_id = first_id
        self.last_id = first_id
        self.mask = slots - 1
        self.room = slots // _SLOTS_PER_OUTCOME
        self.slots = array("Q", bytes(8 * slots))


class Outcomes:
    """What earlier appends and leases answered, by their attempt keys."""

    def __init__(self, transaction: Transaction, *, window_ms: int) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._window_ms = window_ms
        self._generations: list[_Generation] = []
        self._next_id = 1 + (self._db.execute("SELECT max(id) FROM outcome").get or 0)
        self._index(self._db.execute(_LOAD, (transaction.clock_ms() - window_ms,)))

    def find(self, key: AttemptKey) -> bytes | None:
        """Return the answer that was kept with a key, if its window is not over."""
        for outcome_id in self._candidates(key):
            row = self._db.execute("SELECT key, at_ms, answer FROM outcome WHERE id = ?", (outcome_id,)).fetchone()
            if row is not None and row[0] == key and row[1] + self._window_ms > self._transaction.now_ms:
                return bytes(row[2])
        return None

    def check_room(self) -> None:
        """Raise `StoreUnavailable` if no further outcome can be kept."""
        if self._generations and self._next_id - self._generations[0].first_id >= OUTCOMES_MAX:
            message = "As many requests as can be kept for their retries are kept already. Try again later."
            raise StoreUnavailable(message)

    def keep(self, outcomes: list[tuple[AttemptKey, bytes]]) -> None:
        """Keep answers with their keys. No key may have an answer that `find` still returns."""
        if not outcomes:
            return
        now_ms, first_id = self._transaction.now_ms, self._next_id
        rows = [(first_id + offset, now_ms, key, answer) for offset, (key, answer) in enumerate(outcomes)]
        self._next_id += len(rows)
        self._index((row[0], row[2]) for row in rows)
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

    def _candidates(self, key: AttemptKey) -> list[int]:
        """Return the ids of the outcomes that may have a key: hardly ever more than the one that has it."""
        hashed = hash(key) & _HASH_MASK
        wanted = hashed >> _OFFSET_BITS
        found: list[int] = []
        for generation in self._generations:
            slots, mask = generation.slots, generation.mask
            place = hashed & mask
            while entry := slots[place]:
                if entry >> _OFFSET_BITS == wanted:
                    found.append(generation.first_id + (entry & _OFFSET_MASK) - 1)
                place = (place + 1) & mask
        return found

    def _index(self, outcomes: Iterable[tuple[int, AttemptKey]]) -> None:
        """Index outcomes, each with an id greater than all before."""
        generation = self._generations[-1] if self._generations else None
        for outcome_id, key in outcomes:
            if generation is None or generation.room == 0 or outcome_id - generation.first_id >= _OFFSET_MASK:
                generation = self._add_generation(outcome_id)
            slots, mask = generation.slots, generation.mask
            hashed = hash(key) & _HASH_MASK
            place = hashed & mask
            while slots[place]:
                place = (place + 1) & mask
            slots[place] = hashed & ~_OFFSET_MASK | (outcome_id - generation.first_id + 1)
            generation.last_id = outcome_id
            generation.room -= 1

    def _add_generation(self, first_id: int) -> _Generation:
        # As large as all before it together, or as all that is known to come: few tables, and none is ever made anew.
        generations = self._generations
        held = first_id - generations[0].first_id if generations else 0
        slots = 1 << (_SLOTS_PER_OUTCOME * max(held, self._next_id - first_id)).bit_length()
        generation = _Generation(first_id, min(max(_SLOTS_MIN, slots), _SLOTS_MAX))
        generations.append(generation)
        return generation
