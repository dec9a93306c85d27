"""Leases from standard queues with groups: whoever has fewest messages in flight is served first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.sqlite.positions import sequence_of
from penstock.store.sqlite.rows import ONE_ROW, Row, leased_message

if TYPE_CHECKING:
    from penstock.domain.message import Message
    from penstock.store.sqlite.deliveries import Deliveries
    from penstock.store.sqlite.groups import Groups
    from penstock.store.sqlite.screen import Screen
    from penstock.store.sqlite.standard import Ungrouped
    from penstock.store.sqlite.transaction import Transaction

_FAIREST = """
SELECT id, name, in_flight, head FROM message_group
WHERE partition = ? AND ready_at_ms IS NULL AND head IS NOT NULL
ORDER BY in_flight, head LIMIT 1
"""


class Fair:
    """The visible messages of a standard queue, with and without groups, for one run of leases."""

    def __init__(
        self, transaction: Transaction, deliveries: Deliveries, groups: Groups, screen: Screen, ungrouped: Ungrouped
    ) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._deliveries = deliveries
        self._groups = groups
        self._screen = screen
        self._contents = screen.contents
        self._ungrouped = ungrouped

    @property
    def unsaved(self) -> int:
        """How many messages were leased since the last `save`."""
        return self._ungrouped.unsaved

    def lease(self, count: int, lease_ms: int, ahead: int) -> list[Message]:
        """Lease up to `count`, one after the other: each makes its group less urgent."""
        messages: list[Message] = []
        while len(messages) < count and not self._screen.cut:
            group = self._db.execute(_FAIREST, (self._contents.partition,)).fetchone()
            plain = self._ungrouped.peek()
            if group is None:
                messages += self._ungrouped.lease(count - len(messages), lease_ms, ahead)
                break
            group_id, name, in_flight, head = group
            # Messages without a group count as a group with nothing in flight.
            if plain is not None and (0, sequence_of(plain[0])) < (in_flight, sequence_of(head)):
                messages += self._ungrouped.lease(1, lease_ms, 1)
                continue
            rows: list[Row] = self._db.execute(ONE_ROW, (head,)).fetchall()  # type: ignore[assignment]  # As its columns.
            for row in self._screen.sift(rows, name):
                self._deliveries.lease_again(self._contents, [(head, row[8] or 0, group_id)], lease_ms)
                self._groups.refresh(self._contents, group_id, 1)
                messages.append(leased_message(row, self._transaction.now_ms, name))
        return messages

    def save(self) -> None:
        """Write the leases of messages without a group; the others are written."""
        self._ungrouped.save()
