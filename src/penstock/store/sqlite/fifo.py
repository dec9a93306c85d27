"""Leases from FIFO queues: from each group in order, and from none of which a message is leased."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from penstock.store.sqlite.rows import ROW_COLUMNS, ROWS_PER_PAGE, Row, leased_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.domain.message import Message
    from penstock.store.sqlite.deliveries import Deliveries
    from penstock.store.sqlite.groups import Groups
    from penstock.store.sqlite.screen import Screen
    from penstock.store.sqlite.transaction import Transaction

_READY = """
SELECT id, name, ready_at_ms, head FROM message_group
WHERE partition = ?1 AND ready_at_ms <= ?2 AND (ready_at_ms, head) > (?3, ?4)
ORDER BY ready_at_ms, head LIMIT 1
"""

# Whatever their states, a group's messages come in the order of their positions.
_IN_ORDER = f"""
SELECT {ROW_COLUMNS}
FROM (
    SELECT * FROM (
        SELECT * FROM delivery WHERE group_id = ?1 AND state = 0 AND position > ?2 ORDER BY position LIMIT ?3)
    UNION ALL
    SELECT * FROM (
        SELECT * FROM delivery WHERE group_id = ?1 AND state = 1 AND position > ?2 ORDER BY position LIMIT ?3)
    UNION ALL
    SELECT * FROM (
        SELECT * FROM delivery WHERE group_id = ?1 AND state = 2 AND position > ?2 ORDER BY position LIMIT ?3)
    ORDER BY position LIMIT ?3
) AS d CROSS JOIN message AS m ON m.position = d.position
ORDER BY m.position
"""  # noqa: S608  # The columns are our own text.


class Fifo:
    """The groups of a FIFO queue that are ready, for one run of leases. Each is visited once."""

    unsaved = 0
    """How many messages were leased and not written: none ever are."""

    def __init__(self, transaction: Transaction, deliveries: Deliveries, groups: Groups, screen: Screen) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._deliveries = deliveries
        self._groups = groups
        self._screen = screen
        self._contents = screen.contents
        self._after = (-1, -1)
        self._visited: set[int] = set()

    def lease(self, count: int, lease_ms: int, _ahead: int) -> list[Message]:
        """Lease up to `count`, as many of one group as there are before going on to the next."""
        now_ms = self._transaction.now_ms
        messages: list[Message] = []
        for group_id, group, rows in self.visible(count):
            self._deliveries.lease_again(self._contents, [(row[0], row[8] or 0, group_id) for row in rows], lease_ms)
            self._groups.refresh(self._contents, group_id)
            messages += [leased_message(row, now_ms, group, fifo=True) for row in rows]
        return messages

    def visible(self, count: int) -> Iterator[tuple[int, str, list[Row]]]:
        """Give up to `count` messages in pages, each of one group, from its first on. They are the caller's to take."""
        while count > 0 and not self._screen.cut:
            group = self._db.execute(
                _READY, (self._contents.partition, self._transaction.now_ms, *self._after)
            ).fetchone()
            if group is None:
                return
            group_id, name, *self._after = group
            if group_id in self._visited:
                continue  # A lease of no length left it ready, at a later instant.
            self._visited.add(group_id)
            for rows in self._first_of(group_id, name, count):
                count -= len(rows)
                yield group_id, name, rows

    def save(self) -> None:
        """Nothing is left to be written."""

    def _first_of(self, group_id: int, group: str, count: int) -> Iterator[list[Row]]:
        """Give a group's first messages, up to the first that is hidden, page by page."""
        after, page = 0, min(count, ROWS_PER_PAGE)
        while page > 0 and not self._screen.cut:
            rows: list[Row] = self._db.execute(_IN_ORDER, (group_id, after, page)).fetchall()  # type: ignore[assignment]
            shown = list(takewhile(self._is_visible, rows))
            good = self._screen.sift(shown, group)
            sifted = len(good) < len(shown)
            if good:
                yield good[:count]
            count -= len(good)
            if len(shown) < page or count <= 0:
                return
            after = rows[-1][0]
            page = self._screen.page(min(count, ROWS_PER_PAGE)) if sifted else min(count, ROWS_PER_PAGE)

    def _is_visible(self, row: Row) -> bool:
        # What came due may not have been settled yet.
        return not row[8] or row[9] <= self._transaction.now_ms
