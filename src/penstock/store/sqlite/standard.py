"""Leases from standard queues: messages that came back first, then those never taken, oldest first."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.store.sqlite.positions import first_position, first_tracked_position
from penstock.store.sqlite.rows import FRESH_COLUMNS, ROW_COLUMNS, Row, leased_message

if TYPE_CHECKING:
    from penstock.domain.message import Message
    from penstock.store.sqlite.deliveries import Deliveries
    from penstock.store.sqlite.screen import Screen
    from penstock.store.sqlite.transaction import Transaction

# CROSS JOIN keeps the order of the tables: few returned deliveries, each with its message.
_RETURNED = f"""
SELECT {ROW_COLUMNS}
FROM delivery AS d CROSS JOIN message AS m ON m.position = d.position
WHERE d.partition = ? AND d.state = 0 AND d.group_id IS NULL AND d.position > ?
ORDER BY d.position LIMIT ?
"""  # noqa: S608  # The columns are our own text.

_FRESH = f"""
SELECT {FRESH_COLUMNS} FROM message AS m WHERE m.position > ? AND m.position < ? ORDER BY m.position LIMIT ?
"""  # noqa: S608  # As above.


class Ungrouped:
    """The visible messages without a group, for one run of leases. What is fetched but not taken stays as it was."""

    def __init__(self, transaction: Transaction, deliveries: Deliveries, screen: Screen) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._deliveries = deliveries
        self._screen = screen
        self._contents = screen.contents
        self._returned_after = first_position(self._contents.partition)
        self._returned_left = self._contents.returned
        self._fresh_after = self._contents.cursor
        self._fresh_end = first_tracked_position(self._contents.partition)
        self._fresh_left = True
        self._fetched: deque[Row] = deque()
        self._fresh: dict[int, list[int]] = {}
        self._again: dict[int, list[tuple[int, int, int | None]]] = {}
        self.unsaved = 0
        """How many messages were leased since the last `save`."""

    def lease(self, count: int, lease_ms: int, ahead: int) -> list[Message]:
        """Lease up to `count`; `ahead` says how many this run wants altogether, so that they are fetched at once."""
        rows = self.take(count, ahead)
        if not rows:
            return []
        now_ms = self._transaction.now_ms
        self.unsaved += len(rows)
        if lease_ms:
            # Whoever finds nothing in this run has to know when these come back.
            self._contents.expect(now_ms + lease_ms)
        again = self._again.setdefault(lease_ms, [])
        fresh = self._fresh.setdefault(lease_ms, [])
        for row in rows:
            if row[8] is None:
                fresh.append(row[0])
            else:
                again.append((row[0], row[8], None))
        return [leased_message(row, now_ms) for row in rows]

    def take(self, count: int, ahead: int = 0) -> list[Row]:
        """Take up to `count` messages out; what becomes of them is the caller's."""
        fetched = self._fetched
        if len(fetched) < count:
            self._fetch(max(count, ahead))
        rows = [fetched.popleft() for _ in range(min(count, len(fetched)))]
        if rows and rows[-1][8] is None:
            self._contents.cursor = rows[-1][0]
        return rows

    def peek(self, ahead: int = 1) -> Row | None:
        """Return the next message without taking it."""
        if not self._fetched:
            self._fetch(ahead)
        return self._fetched[0] if self._fetched else None

    def save(self) -> None:
        """Write the leases."""
        for lease_ms, positions in self._fresh.items():
            if positions:
                self._deliveries.lease_fresh(self._contents, positions, lease_ms)
        for lease_ms, taken in self._again.items():
            if taken:
                self._deliveries.lease_again(self._contents, taken, lease_ms)
        self._fresh.clear()
        self._again.clear()
        self.unsaved = 0

    def _fetch(self, wanted: int) -> None:
        """Fetch until `wanted` messages are at hand, or there are no more."""
        page = wanted - len(self._fetched)
        while page > 0 and not self._screen.cut:
            if self._returned_left > 0:
                rows = self._rows(_RETURNED, (self._contents.partition, self._returned_after, page))
                self._returned_left = self._returned_left - len(rows) if len(rows) == page else 0
                if rows:
                    self._returned_after = rows[-1][0]
            elif self._fresh_left:
                rows = self._rows(_FRESH, (self._fresh_after, self._fresh_end, page))
                self._fresh_left = len(rows) == page
                if rows:
                    self._fresh_after = rows[-1][0]
            else:
                return
            good = self._screen.sift(rows)
            self._fetched.extend(good)
            missing = wanted - len(self._fetched)
            page = self._screen.page(missing) if len(good) < len(rows) and missing > 0 else missing

    def _rows(self, sql: str, bindings: tuple[int, ...]) -> list[Row]:
        rows: list[Row] = self._db.execute(sql, bindings).fetchall()  # type: ignore[assignment]  # Tuples of its columns.
        return rows
