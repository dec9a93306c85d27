"""Leases from FIFO queues: from each group in order, up to its first message that is hidden."""

from __future__ import annotations

from collections import deque
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

_GROUPS_PER_PAGE_MAX = 100

# Blocked groups come after all that are ready, so none of them is looked at.
_READY = f"""
SELECT {ROW_COLUMNS}, g.id, g.name, g.ready_at_ms
FROM message_group AS g
    CROSS JOIN delivery AS d ON d.position = g.head
    CROSS JOIN message AS m ON m.position = g.head
WHERE g.partition = ?1 AND g.ready_at_ms <= ?2 AND (g.ready_at_ms, g.head) > (?3, ?4)
ORDER BY g.ready_at_ms, g.head LIMIT ?5
"""  # noqa: S608  # The columns are our own text.

_FOLLOWING = f"""
SELECT {ROW_COLUMNS}
FROM delivery AS d CROSS JOIN message AS m ON m.position = d.position
WHERE d.group_id = ?1 AND d.group_id < 0 AND d.position > ?2
ORDER BY d.position LIMIT ?3
"""  # noqa: S608  # As above.


class Fifo:
    """The groups of a FIFO queue that are ready, for one run of leases. Each is visited once."""

    def __init__(self, transaction: Transaction, deliveries: Deliveries, groups: Groups, screen: Screen) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._deliveries = deliveries
        self._groups = groups
        self._screen = screen
        self._contents = screen.contents
        self._after = (-1, -1)
        self._ready: deque[tuple[int, str, Row]] = deque()
        self._visited: set[int] = set()
        self._taken: dict[int, list[tuple[int, int, int | None]]] = {}
        self._blocked: dict[int, int] = {}
        self.unsaved = 0
        """How many messages were leased since the last `save`."""

    def lease(self, count: int, lease_ms: int, ahead: int) -> list[Message]:
        """Lease up to `count`, as many of one group as there are before going on to the next."""
        now_ms = self._transaction.now_ms
        messages: list[Message] = []
        taken = self._taken.setdefault(lease_ms, [])
        for group_id, group, rows in self.visible(count, groups=ahead // count):
            taken += [(row[0], row[8] or 0, group_id) for row in rows]
            self._blocked[group_id] = now_ms + lease_ms
            messages += [leased_message(row, now_ms, group, fifo=True) for row in rows]
        if messages and lease_ms:
            # Whoever finds nothing in this run has to know when these come back.
            self._contents.expect(now_ms + lease_ms)
        self.unsaved += len(messages)
        return messages

    def visible(self, count: int, *, groups: int = ROWS_PER_PAGE) -> Iterator[tuple[int, str, list[Row]]]:
        """Give up to `count` messages in pages, each of one group, from its first on. They are the caller's to take.

        As many groups are fetched at once as `groups` says, up to a bound.
        """
        while count > 0 and not self._screen.cut:
            if not self._ready and not self._fetch(min(groups, _GROUPS_PER_PAGE_MAX)):
                return
            group_id, name, head = self._ready.popleft()
            if group_id in self._visited:
                continue  # A lease of no length left it ready, at a later instant.
            self._visited.add(group_id)
            for rows in self._first_of(group_id, name, head, count):
                count -= len(rows)
                yield group_id, name, rows

    def save(self) -> None:
        """Write the leases, and that their groups wait for them."""
        for lease_ms, taken in self._taken.items():
            if taken:
                self._deliveries.lease_again(self._contents, taken, lease_ms)
        self._groups.block([(ready_at_ms, group_id) for group_id, ready_at_ms in self._blocked.items()])
        self._taken.clear()
        self._blocked.clear()
        self.unsaved = 0

    def _fetch(self, groups: int) -> bool:
        """Fetch the next groups that are ready, each with its first message, and tell whether there are any."""
        after = self._after
        for *head, group_id, name, ready_at_ms in self._db.execute(
            _READY, (self._contents.partition, self._transaction.now_ms, *after, groups)
        ):
            self._ready.append((group_id, name, head))
            self._after = (ready_at_ms, head[0])
        return bool(self._ready)

    def _first_of(self, group_id: int, group: str, head: Row, count: int) -> Iterator[list[Row]]:
        """Give a group's first messages, up to the first that is hidden, page by page."""
        rows, page = [head], 1
        while True:
            shown = list(takewhile(self._is_visible, rows))
            good = self._screen.sift(shown, group)
            sifted = len(good) < len(shown)
            if good:
                yield good[:count]
            count -= len(good)
            if len(shown) < page or count <= 0 or self._screen.cut:
                return
            page = min(count, ROWS_PER_PAGE)
            if sifted:
                page = self._screen.page(page)
            rows = self._db.execute(_FOLLOWING, (group_id, rows[-1][0], page)).fetchall()  # type: ignore[assignment]

    def _is_visible(self, row: Row) -> bool:
        # What came due may not have been settled yet.
        return not row[8] or row[9] <= self._transaction.now_ms
