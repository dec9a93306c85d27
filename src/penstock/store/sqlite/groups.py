"""Message groups: the scope of order on a FIFO queue, the tenant on a standard one. Only groups with messages exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.store.sqlite.contents import Contents
    from penstock.store.sqlite.transaction import Transaction

_FIND = "SELECT id FROM message_group WHERE partition = ? AND name = ?"

_MAKE = """
INSERT INTO message_group (partition, name, head, in_flight, ready_at_ms) VALUES (?, ?, ?, 0, ?) RETURNING id
"""

_SHOW_HEAD = "UPDATE message_group SET head = ?2 WHERE id = ?1 AND (head IS NULL OR head > ?2)"

_REFRESH_FAIR = """
UPDATE message_group
SET in_flight = in_flight + ?2,
    head = (SELECT min(position) FROM delivery WHERE group_id = ?1 AND state = 0)
WHERE id = ?1
RETURNING head IS NULL AND in_flight = 0
"""

# A running lease blocks the group until its end. Otherwise the first message decides, and it may still be delayed.
_REFRESH_FIFO = """
UPDATE message_group
SET head = first.position, ready_at_ms = coalesce(
    (SELECT max(visible_at_ms) FROM delivery WHERE group_id = ?1 AND state = 1 AND visible_at_ms > ?2),
    (SELECT visible_at_ms FROM delivery WHERE position = first.position))
FROM (
    SELECT min(position) AS position FROM (
        SELECT min(position) AS position FROM delivery WHERE group_id = ?1 AND state = 0
        UNION ALL SELECT min(position) FROM delivery WHERE group_id = ?1 AND state = 1
        UNION ALL SELECT min(position) FROM delivery WHERE group_id = ?1 AND state = 2)
) AS first
WHERE id = ?1 AND first.position IS NOT NULL
RETURNING ready_at_ms
"""

_REMOVE_IF_EMPTY = """
DELETE FROM message_group WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM delivery WHERE group_id = ?1) RETURNING id
"""


class Groups:
    """The groups of all queues."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._db = transaction.db

    def join(self, contents: Contents, name: str, position: int, visible_at_ms: int) -> int:
        """Tell the id of the group that a new message at `position` belongs to, making the group if it is the first."""
        group_id: int | None = self._db.execute(_FIND, (contents.partition, name)).get
        shown = contents.fifo or visible_at_ms <= self._transaction.now_ms
        if group_id is not None:
            if shown and not contents.fifo:
                self._db.execute(_SHOW_HEAD, (group_id, position))
            return group_id
        contents.groups += 1
        made: int = self._db.execute(
            _MAKE,
            (contents.partition, name, position if shown else None, visible_at_ms if contents.fifo else None),
        ).get
        return made

    def refresh(self, contents: Contents, group_id: int, in_flight_change: int = 0) -> None:
        """Bring a group up to date after its deliveries changed; remove it if it has none left.

        `in_flight_change` says by how many its deliveries in state 1 became more. On FIFO, waiters are told of a group
        that may be leased now.
        """
        if contents.fifo:
            ready_at_ms = self._db.execute(_REFRESH_FIFO, (group_id, self._transaction.now_ms)).get
            if ready_at_ms is None:
                self._remove_if_empty(contents, group_id)
            elif ready_at_ms <= self._transaction.now_ms:
                self._transaction.wake(contents.queue_id, 1)
        elif self._db.execute(_REFRESH_FAIR, (group_id, in_flight_change)).get:
            self._remove_if_empty(contents, group_id)

    def _remove_if_empty(self, contents: Contents, group_id: int) -> None:
        if self._db.execute(_REMOVE_IF_EMPTY, (group_id,)).get is not None:
            contents.groups -= 1
