"""What consumers do with a delivery: delete it, hide it longer or shorter, or hand it back."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from penstock.domain.errors import PenstockError, QueueDoesNotExist
from penstock.store.postgres.lanes import Done, Operation
from penstock.store.refusals import lease_too_long, message_gone, receipt_expired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.limits import Limits
    from penstock.domain.message import Receipt
    from penstock.domain.queue import Queue
    from penstock.store.postgres.lanes import Batch
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Session

_DELETE = "SELECT penstock.delete($1, $2, $3)"
_DELETE_FIFO = "SELECT * FROM penstock.delete_fifo($1, $2, $3, $4, $5)"
_CHANGE = "SELECT penstock.change_visibility($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
_CHANGE_FIFO = "SELECT penstock.change_visibility_fifo($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
_RELEASE = "SELECT penstock.release($1, $2, $3, $4, $5)"
_RELEASE_FIFO = "SELECT penstock.release_fifo($1, $2, $3, $4, $5, $6)"

# What the functions say of one entry.
_DONE, _DONE_SOONER, _EXPIRED, _GONE, _TOO_LONG, _NO_QUEUE = range(6)

Judgement = list[PenstockError | None]
"""An answer for each entry; None is success."""


class Settlement(Operation[Judgement]):
    """One call upon deliveries of one queue. `lease_ms` is given for visibility changes only, `holder` for releases."""

    def __init__(
        self, verb: str, queue: Queue, receipts: Sequence[Receipt], lease_ms: Sequence[int] = (), holder: int = 0
    ) -> None:
        super().__init__()
        self.verb = verb  # type: ignore[misc] # One class for three verbs that take the same.
        self.queue = queue
        self.receipts = receipts
        self.lease_ms = lease_ms
        self.holder = holder
        self.rows = len(receipts)


class _Entry:
    """One receipt of one settlement, with its place among the answers."""

    __slots__ = ("index", "lease_ms", "operation", "position", "queue", "receipt", "round")

    def __init__(self, operation: Settlement, index: int) -> None:
        receipt = operation.receipts[index]
        self.operation = operation
        self.index = index
        self.queue = operation.queue
        # Another queue's receipt names nothing here, though its message may have come here under the same position.
        self.position = receipt.position if receipt.queue_id == operation.queue.id else 0
        self.receipt = receipt.receipt
        self.lease_ms = operation.lease_ms[index] if operation.lease_ms else 0
        self.round = 1


class Receipts:
    """Carries out settlements."""

    def __init__(self, clock: PinnedClock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits

    async def delete(self, session: Session, batch: Batch[Settlement]) -> Done[Judgement]:
        """Delete from standard queues, where nothing but a missing queue is an error."""
        entries = _sorted(batch)
        gone = await session.fetchval(_DELETE, *_named(entries))
        return _judged(
            batch, entries, [_NO_QUEUE if entry.queue.id in gone else _DONE for entry in entries] if gone else None
        )

    async def delete_fifo(self, session: Session, batch: Batch[Settlement]) -> Done[Judgement]:
        """Delete from FIFO queues."""
        entries = _sorted(batch)
        row = await session.fetchrow(_DELETE_FIFO, self._clock.pinned_ms, *_named(entries), _retentions(entries))
        assert row is not None
        done = _judged(batch, entries, row["codes"])
        done.arrived = _counted([entries[number - 1] for number in row["ready"]])
        return done

    async def change(self, session: Session, batch: Batch[Settlement]) -> Done[Judgement]:
        """Change visibilities on standard queues."""
        return await self._change(session, _CHANGE, batch)

    async def change_fifo(self, session: Session, batch: Batch[Settlement]) -> Done[Judgement]:
        """Change visibilities on FIFO queues."""
        return await self._change(session, _CHANGE_FIFO, batch)

    async def _change(self, session: Session, statement: str, batch: Batch[Settlement]) -> Done[Judgement]:
        entries = _sorted(batch)
        codes = await session.fetchval(
            statement,
            self._clock.pinned_ms,
            self._limits.outcome_window_ms,
            self._limits.lease_ms_max,
            batch.attempt,
            batch.repeated,
            *_named(entries),
            [entry.lease_ms for entry in entries],
            _retentions(entries),
            [entry.round for entry in entries],
        )
        return _judged(batch, entries, codes, sooner=_DONE_SOONER, lease_ms_max=self._limits.lease_ms_max)

    async def release(self, session: Session, batch: Batch[Settlement]) -> Done[Judgement]:
        """Release messages of standard queues."""
        entries = _sorted(batch)
        codes = await session.fetchval(_RELEASE, self._clock.pinned_ms, *_named(entries), _holders(entries))
        return _judged(batch, entries, codes, sooner=_DONE)

    async def release_fifo(self, session: Session, batch: Batch[Settlement]) -> Done[Judgement]:
        """Release messages of FIFO queues."""
        entries = _sorted(batch)
        codes = await session.fetchval(
            _RELEASE_FIFO, self._clock.pinned_ms, *_named(entries), _holders(entries), _retentions(entries)
        )
        return _judged(batch, entries, codes, sooner=_DONE)


def _sorted(batch: Batch[Settlement]) -> list[_Entry]:
    """All entries in the one order in which every call locks rows. The order of those upon one message is kept."""
    entries = [_Entry(operation, index) for operation in batch.operations for index in range(operation.rows)]
    entries.sort(key=lambda entry: (entry.queue.id, entry.position))
    for earlier, later in itertools.pairwise(entries):
        if (earlier.queue.id, earlier.position) == (later.queue.id, later.position):
            later.round = earlier.round + 1
    return entries


def _named(entries: Sequence[_Entry]) -> tuple[list[int], list[int], list[int]]:
    return (
        [entry.queue.id for entry in entries],
        [entry.position for entry in entries],
        [entry.receipt for entry in entries],
    )


def _holders(entries: Sequence[_Entry]) -> list[int]:
    return [entry.operation.holder for entry in entries]


def _retentions(entries: Sequence[_Entry]) -> list[int]:
    return [entry.queue.retention_ms for entry in entries]


def _judged(
    batch: Batch[Settlement],
    entries: Sequence[_Entry],
    codes: Sequence[int] | None,
    *,
    sooner: int | None = None,
    lease_ms_max: int = 0,
) -> Done[Judgement]:
    """Turn codes into answers. None: all is done. `sooner` is the code of entries that can now be leased sooner."""
    answers: dict[Settlement, Judgement | PenstockError] = {
        operation: [None] * operation.rows for operation in batch.operations
    }
    for entry, code in zip(entries, codes or (), strict=codes is not None):
        answer = answers[entry.operation]
        if code == _NO_QUEUE:
            answers[entry.operation] = QueueDoesNotExist("The specified queue does not exist.")
        elif code > _DONE_SOONER and isinstance(answer, list):
            answer[entry.index] = _error(entry, code, lease_ms_max)
    arrived = [entry for entry, code in zip(entries, codes or (), strict=False) if code == sooner]
    return Done([answers[operation] for operation in batch.operations], _counted(arrived))


def _error(entry: _Entry, code: int, lease_ms_max: int) -> PenstockError:
    if code == _TOO_LONG:
        return lease_too_long(entry.lease_ms, lease_ms_max)
    if code == _GONE:
        return message_gone()
    assert code == _EXPIRED
    return receipt_expired()


def _counted(entries: Sequence[_Entry]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for entry in entries:
        counts[entry.queue.id] = counts.get(entry.queue.id, 0) + 1
    return counts
