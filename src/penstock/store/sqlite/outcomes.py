"""Answers kept for retries: a table in the order of time, and an index by key in memory.

What one transaction has to keep goes together into a row or a few, whose own keys are empty: a row for each would take
several times as long. (Earlier versions wrote a row for each, which is still read.)

The index takes 32 to 64 bytes for each outcome of the window, `OUTCOMES_MAX` bounds their number, and it is made anew
when the store is opened. It may name a row that is gone or another key's; the row itself is what counts.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import StoreUnavailable
from penstock.store.codec import decode_outcomes, encode_outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.store.port import AttemptKey
    from penstock.store.sqlite.transaction import Transaction

OUTCOMES_MAX = 1 << 23
"""So many outcomes can be kept at once, with half a gigabyte of index: 28,000 requests a second for five minutes."""

TOGETHER_MAX = 32
"""How many outcomes share a row. Who looks for one reads all of them, and what is kept together is often retried so."""

APPENDED, LEASED = b"a", b"l"
"""The kinds of outcomes, which is how their keys begin: an append and a lease may share an attempt key."""

_OFFSET_BITS = 20
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_SLOTS_PER_OUTCOME = 4
_SLOTS_MIN = 1 << 16
_SLOTS_MAX = 1 << 21
_HASH_MASK = (1 << 64) - 1

_TOGETHER = b""

_LOAD = "SELECT id, key, CASE WHEN key = x'' THEN answer END FROM outcome WHERE at_ms > ? ORDER BY id"


class _Generation:
    """A hash table over a stretch of rows, at most a quarter full, so that a search ends soon.

    A slot holds 44 bits of a key's hash and, in the low bits, one more than its row's distance from `first_id`.
    """

    __slots__ = ("first_id", "held", "last_id", "mask", "room", "slots")

    def __init__(self, first_id: int, slots: int) -> None:
        self.first_id = first_id
        self.last_id = first_id
        self.mask = slots - 1
        self.held = 0
        self.room = slots // _SLOTS_PER_OUTCOME
        self.slots = array("Q", bytes(8 * slots))


class Outcomes:
    """What earlier appends and leases answered, by their attempt keys."""

    def __init__(self, transaction: Transaction, *, window_ms: int) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._window_ms = window_ms
        self._generations: list[_Generation] = []
        self._held = 0
        self._next_id = 1 + (self._db.execute("SELECT max(id) FROM outcome").get or 0)
        for row_id, key, together in self._db.execute(_LOAD, (transaction.clock_ms() - window_ms,)):
            self._index(row_id, [key] if together is None else [each for each, _ in decode_outcomes(together)])

    def find(self, key: AttemptKey) -> bytes | None:
        """Return the answer that was kept with a key, if its window is not over."""
        for row_id in self._candidates(key):
            row = self._db.execute("SELECT key, at_ms, answer FROM outcome WHERE id = ?", (row_id,)).fetchone()
            if row is not None and row[1] + self._window_ms > self._transaction.now_ms:
                found = _entries(row[0], row[2]).get(key)
                if found is not None:
                    return found
        return None

    def check_room(self) -> None:
        """Raise `StoreUnavailable` if no further outcome can be kept."""
        if self._held >= OUTCOMES_MAX:
            message = "As many requests as can be kept for their retries are kept already. Try again later."
            raise StoreUnavailable(message)

    def keep(self, outcomes: Sequence[tuple[AttemptKey, object]]) -> None:
        """Keep answers, as plain values, with their keys. No key may have an answer that `find` still returns."""
        for start in range(0, len(outcomes), TOGETHER_MAX):
            part = outcomes[start : start + TOGETHER_MAX]
            row = (self._next_id, self._transaction.now_ms, _TOGETHER, encode_outcomes(part))
            self._index(self._next_id, [key for key, _ in part])
            self._next_id += 1
            self._db.execute("INSERT INTO outcome (id, at_ms, key, answer) VALUES (?, ?, ?, ?)", row)

    def forget(self, key: AttemptKey) -> None:
        """Remove what is kept with a key, to make place for another answer."""
        for row_id in self._candidates(key):
            row = self._db.execute("SELECT key, answer FROM outcome WHERE id = ?", (row_id,)).fetchone()
            entries = {} if row is None else _entries(*row)
            if entries.pop(key, None) is None:
                continue
            if entries:
                rest = encode_outcomes([(each, msgspec.Raw(answer)) for each, answer in entries.items()])
                self._db.execute("UPDATE outcome SET answer = ? WHERE id = ?", (rest, row_id))
            else:
                self._db.execute("DELETE FROM outcome WHERE id = ?", (row_id,))

    def sweep(self, rows_max: int) -> int:
        """Remove rows whose window is over, and say how many there were."""
        over_ms = self._transaction.now_ms - self._window_ms
        last_id = None
        swept = 0
        for row_id, at_ms in self._db.execute("SELECT id, at_ms FROM outcome ORDER BY id LIMIT ?", (rows_max,)):
            if at_ms > over_ms:
                break
            last_id = row_id
            swept += 1
        if last_id is not None:
            self._db.execute("DELETE FROM outcome WHERE id <= ?", (last_id,))
            while self._generations and self._generations[0].last_id <= last_id:
                self._held -= self._generations.pop(0).held
        return swept

    def _candidates(self, key: AttemptKey) -> list[int]:
        """Return the ids of the rows that may have a key: hardly ever more than the one that has it."""
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

    def _index(self, row_id: int, keys: Sequence[AttemptKey]) -> None:
        """Index the keys of a row, whose id is greater than all before."""
        generation = self._generations[-1] if self._generations else None
        if generation is None or generation.room < len(keys) or row_id - generation.first_id >= _OFFSET_MASK:
            generation = self._add_generation(row_id, len(keys))
        slots, mask = generation.slots, generation.mask
        offset = row_id - generation.first_id + 1
        for key in keys:
            hashed = hash(key) & _HASH_MASK
            place = hashed & mask
            while slots[place]:
                place = (place + 1) & mask
            slots[place] = hashed & ~_OFFSET_MASK | offset
        generation.last_id = row_id
        generation.held += len(keys)
        generation.room -= len(keys)
        self._held += len(keys)

    def _add_generation(self, first_id: int, keys: int) -> _Generation:
        # As large as all before it together: few tables, and none is ever made anew.
        slots = min(max(_SLOTS_MIN, _slots_for(self._held)), _SLOTS_MAX)
        generation = _Generation(first_id, max(slots, _slots_for(keys)))
        self._generations.append(generation)
        return generation


def _slots_for(outcomes: int) -> int:
    return 1 << (_SLOTS_PER_OUTCOME * outcomes).bit_length()


def _entries(key: AttemptKey, answer: bytes) -> dict[AttemptKey, bytes]:
    """Read the keys and answers of a row."""
    return dict(decode_outcomes(answer)) if key == _TOGETHER else {key: answer}
