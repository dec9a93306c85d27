"""Messages that were received too often, and the queues they go to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.queue import Queue
    from penstock.store.sqlite.arrivals import Arrivals
    from penstock.store.sqlite.contents import ContentsTable
    from penstock.store.sqlite.queues import Queues
    from penstock.store.sqlite.rows import Row
    from penstock.store.sqlite.transaction import Transaction


_RENEW = """
UPDATE delivery
SET receipt = receipt + 1, receive_count = 0, first_received_at_ms = NULL,
    received_elsewhere = coalesce(received_elsewhere, 0) + receive_count
WHERE position = ?
"""

_MARK = "UPDATE message SET dead_letter_source = ? WHERE position = ?"


class DeadLetters:
    """Tells which messages are dead, and puts them into their dead-letter queue."""

    def __init__(self, transaction: Transaction, contents: ContentsTable, queues: Queues, arrivals: Arrivals) -> None:
        self._transaction = transaction
        self._contents = contents
        self._queues = queues
        self._arrivals = arrivals

    def deadline(self, queue: Queue) -> tuple[int, int] | None:
        """Tell how many receives a message of `queue` survives, and the id of its dead-letter queue if that exists."""
        redrive = queue.attributes.redrive
        if redrive is None:
            return None
        target_id = self._queues.id_of(redrive.dead_letter_queue)
        return None if target_id is None else (redrive.max_receive_count, target_id)

    def bury(self, queue: Queue, target_id: int, dead: Sequence[tuple[Row, str | None]]) -> None:
        """Store messages, each with its group, in their dead-letter queue. The caller removes them from `queue`."""
        target = self._contents.change(target_id)
        now_ms = self._transaction.now_ms
        target.oldest_ms = min(target.oldest_ms, *(row.sent_at_ms for row, _ in dead))
        self._arrivals.store(
            [
                row.moved(
                    self._arrivals.place(
                        target,
                        group,
                        receipt=row.receipt,
                        received_elsewhere=row.receive_count + (row.received_elsewhere or 0),
                    ),
                    message_id=row.message_id,
                    sent_at_ms=now_ms if target.fifo else row.sent_at_ms,
                    dead_letter_source=queue.name.arn,
                )
                for row, group in dead
            ]
        )
        self._transaction.wake(target_id, len(dead))

    def renew(self, queue: Queue, row: Row) -> Row:
        """Let a dead letter of a standard queue that is its own dead-letter queue begin anew where it is.

        Return it as it is then: whoever came upon it may deliver it. Its last receive cannot be undone any more.
        """
        db, arn = self._transaction.db, queue.name.arn
        db.execute(_RENEW, (row.position,))
        db.execute(_MARK, (arn, row.position))
        return row._replace(
            receipt=row.receipt + 1,
            receive_count=0,
            first_received_at_ms=None,
            received_elsewhere=row.receive_count + (row.received_elsewhere or 0),
            dead_letter_source=arn,
        )
