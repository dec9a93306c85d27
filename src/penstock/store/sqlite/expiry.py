"""Messages past their retention: found where the oldest lie, and removed in bounded passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.sqlite.positions import end_position, first_position, first_tracked_position
from penstock.store.sqlite.screen import BYTES_PER_PASS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.store.sqlite.contents import Contents
    from penstock.store.sqlite.deliveries import Deliveries
    from penstock.store.sqlite.transaction import Transaction

# octet_length tells a body's size without reading it.
_IN_LANE = """
SELECT m.position, d.state, d.group_id, m.sent_at_ms, octet_length(m.body)
FROM message AS m LEFT JOIN delivery AS d ON d.position = m.position
WHERE m.position BETWEEN ? AND ? ORDER BY m.position LIMIT ?
"""

_DEAD_LETTERS = """
SELECT m.position, d.state, d.group_id, m.sent_at_ms, octet_length(m.body)
FROM message AS m LEFT JOIN delivery AS d ON d.position = m.position
WHERE m.position >> 43 = ? AND m.dead_letter_source IS NOT NULL AND m.sent_at_ms <= ?
ORDER BY m.sent_at_ms LIMIT ?
"""

# In a lane messages lie in the order of their sending, except dead letters, which have an index of their own.
_OLDEST = """
SELECT min(sent_at_ms) FROM (
    SELECT sent_at_ms FROM (
        SELECT sent_at_ms FROM message WHERE position BETWEEN ?1 AND ?2 - 1 ORDER BY position LIMIT 1)
    UNION ALL SELECT sent_at_ms FROM (
        SELECT sent_at_ms FROM message WHERE position BETWEEN ?2 AND ?3 ORDER BY position LIMIT 1)
    UNION ALL SELECT sent_at_ms FROM (
        SELECT sent_at_ms FROM message WHERE position >> 43 = ?4 AND dead_letter_source IS NOT NULL
        ORDER BY sent_at_ms LIMIT 1)
)
"""

ExpiredRow = tuple[int, int | None, int | None, int, int]
"""position, state, group id, sent at, size in bytes."""


class Expiry:
    """Removes expired messages. A look at a queue that has none costs a comparison."""

    def __init__(self, transaction: Transaction, deliveries: Deliveries) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._deliveries = deliveries

    def due(self, contents: Contents, retention_ms: int) -> bool:
        """Tell whether a queue may hold expired messages."""
        return contents.messages > 0 and contents.oldest_ms <= self._transaction.now_ms - retention_ms

    def remove(self, contents: Contents, retention_ms: int, rows_max: int) -> int:
        """Remove up to about `rows_max` expired messages, and say how many; `due` then tells whether there are more."""
        expired_ms = self._transaction.now_ms - retention_ms
        partition = contents.partition
        low, middle, high = first_position(partition), first_tracked_position(partition), end_position(partition)
        removed = 0
        bytes_left = BYTES_PER_PASS_MAX
        for sql, bindings in (
            (_IN_LANE, (low, middle - 1)),
            (_IN_LANE, (middle, high)),
            (_DEAD_LETTERS, (partition, expired_ms)),
        ):
            if removed < rows_max and bytes_left > 0:
                rows = first_rows(
                    self._db.execute(sql, (*bindings, rows_max - removed)), bytes_left, expired_ms=expired_ms
                )
                self._deliveries.remove(contents, [row[:3] for row in rows])
                removed += len(rows)
                bytes_left -= sum(row[4] for row in rows)
        contents.oldest_ms = self._db.execute(_OLDEST, (low, middle, high, partition)).get or 0
        return removed


def first_rows(rows: Iterable[ExpiredRow], bytes_max: int, *, expired_ms: int | None = None) -> list[ExpiredRow]:
    """Take rows as long as they were sent by `expired_ms`, and as one pass may free the bodies of."""
    taken: list[ExpiredRow] = []
    for row in rows:
        if bytes_max <= 0 or (expired_ms is not None and row[3] > expired_ms):
            break
        bytes_max -= row[4]
        taken.append(row)
    return taken
