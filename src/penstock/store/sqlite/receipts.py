"""What consumers do with what they leased: delete it, keep it for longer, give it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.errors import PenstockError, QueueDoesNotExist
from penstock.store.refusals import lease_too_long, message_gone, receipt_expired
from penstock.store.sqlite.connection import array_of
from penstock.store.sqlite.contents import LEASED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.domain.limits import Limits
    from penstock.domain.message import Receipt, VisibilityChange
    from penstock.domain.queue import Queue
    from penstock.store.sqlite.calls import ChangeVisibility, Delete
    from penstock.store.sqlite.contents import Contents, ContentsTable
    from penstock.store.sqlite.deliveries import Deliveries, Delivery, Gone
    from penstock.store.sqlite.transaction import Transaction

_SENT_AT = "SELECT position, sent_at_ms FROM message WHERE position IN (SELECT value FROM carray(?))"


class Receipts:
    """Does deletes, changes of visibility and releases."""

    def __init__(
        self, transaction: Transaction, contents: ContentsTable, deliveries: Deliveries, limits: Limits
    ) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._contents = contents
        self._deliveries = deliveries
        self._limits = limits

    def delete(self, calls: Sequence[Delete]) -> None:
        """Answer every delete that was gathered, those on all queues with the same few statements."""
        by_queue: dict[int, list[Delete]] = {}
        for call in calls:
            by_queue.setdefault(call.queue.id, []).append(call)
        held: list[tuple[Contents, list[Delete], list[int]]] = []
        for queue_id, alike in by_queue.items():
            try:
                contents = self._contents.change(queue_id)
            except QueueDoesNotExist as error:
                for call in alike:
                    call.error = QueueDoesNotExist(error.reason)
            else:
                positions = _held(contents, (receipt for call in alike for receipt in call.receipts))
                held.append((contents, alike, positions))
        found = self._deliveries.find([position for _, _, positions in held for position in positions])
        gone_of: list[tuple[Contents, list[Gone]]] = []
        for contents, alike, positions in held:
            known = {position: found[position] for position in positions if position in found}
            gone: list[Gone] = []
            for call in alike:
                call.answer = [self._delete(contents, known, receipt, gone) for receipt in call.receipts]
            gone_of.append((contents, gone))
        self._deliveries.remove_all(gone_of)

    def change_visibility(self, calls: Sequence[ChangeVisibility]) -> None:
        """Answer every change of visibility that was gathered."""
        for call in calls:
            try:
                contents = self._contents.change(call.queue.id)
            except PenstockError as error:
                call.error = error
                continue
            known = self._find(contents, (change.receipt for change in call.changes))
            self._leave_out_expired(call.queue, known)
            call.answer = [self._change(contents, known, change) for change in call.changes]

    def release(self, queue: Queue, receipts: Sequence[Receipt], holder: int) -> None:
        """Undo deliveries, but for those that another request holds by now."""
        contents = self._contents.change(queue.id)
        known = self._find(contents, receipts)
        for receipt in receipts:
            delivery = known.pop(receipt.position, None)
            if delivery is not None and (delivery.receipt, delivery.holder) == (receipt.receipt, holder):
                self._deliveries.undo(contents, delivery)

    def _find(self, contents: Contents, receipts: Iterable[Receipt]) -> dict[int, Delivery]:
        """Look deliveries up."""
        return self._deliveries.find(_held(contents, receipts))

    def _delete(
        self,
        contents: Contents,
        known: dict[int, Delivery],
        receipt: Receipt,
        gone: list[Gone],
    ) -> PenstockError | None:
        delivery = known.get(receipt.position)
        if delivery is None or delivery.receipt < receipt.receipt:
            return None
        if contents.fifo and not self._is_held(delivery, receipt):
            return receipt_expired()
        del known[receipt.position]
        gone.append((delivery.position, delivery.state, delivery.group_id))
        return None

    def _change(self, contents: Contents, known: dict[int, Delivery], change: VisibilityChange) -> PenstockError | None:
        receipt = change.receipt
        delivery = known.get(receipt.position)
        if delivery is None or delivery.receipt < receipt.receipt:
            return message_gone()
        if contents.fifo and not self._is_held(delivery, receipt):
            return receipt_expired()
        now_ms = self._transaction.now_ms
        if not change.lease_ms and delivery.visible_at_ms <= now_ms:
            return None  # It is visible already.
        end_ms = now_ms + change.lease_ms
        if change.lease_ms and end_ms > (delivery.leased_at_ms or 0) + self._limits.lease_ms_max:
            return lease_too_long(change.lease_ms, self._limits.lease_ms_max)
        known[receipt.position] = self._deliveries.hide(contents, delivery, end_ms)
        return None

    def _is_held(self, delivery: Delivery, receipt: Receipt) -> bool:
        """Return whether a message is leased under this very receipt. On FIFO, no other may change it."""
        leased = delivery.state == LEASED and delivery.visible_at_ms > self._transaction.now_ms
        return leased and delivery.receipt == receipt.receipt

    def _leave_out_expired(self, queue: Queue, known: dict[int, Delivery]) -> None:
        """Forget messages past their retention: they are as good as gone, swept or not."""
        if known:
            expired_ms = self._transaction.now_ms - queue.retention_ms
            for position, sent_at_ms in self._db.execute(_SENT_AT, (array_of(known),)):
                if sent_at_ms <= expired_ms:
                    del known[position]


def _held(contents: Contents, receipts: Iterable[Receipt]) -> list[int]:
    """Return the positions that receipts name, but for other queues' and for what this one held before a purge."""
    queue_id = contents.queue_id
    low, high = contents.bounds
    return [receipt.position for receipt in receipts if low < receipt.position <= high and receipt.queue_id == queue_id]
