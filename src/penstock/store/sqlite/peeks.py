"""Peeks: messages shown as they lie, without receiving them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.message import MessageState, Peeked
from penstock.store.port import Peek
from penstock.store.sqlite.connection import array_of
from penstock.store.sqlite.contents import LEASED, VISIBLE
from penstock.store.sqlite.rows import MESSAGE_COLUMNS, Row, leased_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.domain.limits import Limits
    from penstock.domain.queue import Queue
    from penstock.store.sqlite.contents import ContentsTable
    from penstock.store.sqlite.transaction import Transaction

# Neither reads bodies. A message that is hidden always has a delivery, so the others need not be walked over.
_SCAN = """
SELECT m.position, m.sent_at_ms, d.state, d.visible_at_ms
FROM message AS m LEFT JOIN delivery AS d ON d.position = m.position
WHERE m.position > ? AND m.position <= ?
ORDER BY m.position LIMIT ?
"""
_SCAN_TRACKED = """
SELECT d.position, m.sent_at_ms, d.state, d.visible_at_ms
FROM delivery AS d CROSS JOIN message AS m ON m.position = d.position
WHERE d.position > ? AND d.position <= ?
ORDER BY d.position LIMIT ?
"""

_READ = f"""
SELECT {MESSAGE_COLUMNS}, d.state, coalesce(d.visible_at_ms, m.sent_at_ms), coalesce(d.receipt, 0),
    coalesce(d.receive_count, 0), d.first_received_at_ms, d.group_id, d.received_elsewhere, g.name
FROM carray(?) AS wanted
    CROSS JOIN message AS m ON m.position = wanted.value
    LEFT JOIN delivery AS d ON d.position = m.position
    LEFT JOIN message_group AS g ON g.id = d.group_id
"""  # noqa: S608  # The columns are our own text.


class Peeks:
    """Shows messages. Nothing is written, not even what has come due."""

    def __init__(self, transaction: Transaction, contents: ContentsTable, limits: Limits) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._contents = contents
        self._limits = limits

    def peek(self, queue: Queue, state: MessageState | None, after: int, limit: int) -> Peek:
        """Show messages. `after` counts from the partition's first position, and so is good across purges."""
        first, last = self._contents.of(queue.id).bounds
        sql = _SCAN if state in (None, MessageState.VISIBLE) else _SCAN_TRACKED
        start = min(first + after, last)
        expired_ms = self._transaction.now_ms - queue.retention_ms
        wanted: dict[int, MessageState] = {}
        scanned, reached = 0, start
        for reached, sent_at_ms, tracked, visible_at_ms in self._db.execute(
            sql, (start, last, self._limits.peek_rows_max)
        ):
            scanned += 1
            found = self._state(tracked, visible_at_ms)
            if sent_at_ms > expired_ms and state in (None, found):
                wanted[reached] = found
                if len(wanted) == limit:
                    break
        messages = list(self._read(wanted, fifo=queue.fifo))
        if len(messages) < len(wanted):
            reached = messages[-1].message.position
        elif len(wanted) < limit and scanned < self._limits.peek_rows_max:
            return Peek(messages)
        return Peek(messages, reached - first)

    def _state(self, state: int | None, visible_at_ms: int) -> MessageState:
        """Tell a delivery's state now, whether or not what has come due was settled."""
        if state is None or state == VISIBLE or visible_at_ms <= self._transaction.now_ms:
            return MessageState.VISIBLE
        return MessageState.LEASED if state == LEASED else MessageState.DELAYED

    def _read(self, wanted: dict[int, MessageState], *, fifo: bool) -> Iterator[Peeked]:
        """Read the messages at these positions, until there are enough bytes of them."""
        if not wanted:
            return
        shown_bytes = 0
        for *columns, group in self._db.execute(_READ, (array_of(wanted),)):
            row = Row._make(columns)
            yield Peeked(
                message=leased_message(row, 0, group, fifo=fifo, leases=0),
                state=wanted[row.position],
                visible_at_ms=row.visible_at_ms,
            )
            shown_bytes += len(row.body.encode()) + len(row.extras or b"")
            if shown_bytes >= self._limits.peek_bytes_max:
                return
