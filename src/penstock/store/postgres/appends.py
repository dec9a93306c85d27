"""Appending: the messages of many callers stored by one call, each caller's answer kept under its attempt key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.errors import QueueDoesNotExist
from penstock.domain.message import Draft, Refused, SendResult, Sent, receives_served
from penstock.domain.queue import DeduplicationScope
from penstock.store.codec import decode_results, encode_attributes, encode_results
from penstock.store.postgres.lanes import Done, Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from penstock.domain.errors import PenstockError
    from penstock.domain.limits import Limits
    from penstock.domain.queue import Queue
    from penstock.store.postgres.lanes import Batch
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Session

_APPEND = "SELECT * FROM penstock.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
_APPEND_FIFO = (
    "SELECT * FROM penstock.append_fifo($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"
)
_OUTCOME = """
SELECT o.results, o.message_ids, o.sequences, penstock.confirm(o.expires_at)
  FROM penstock.append_outcome o WHERE o.key = $2 AND o.expires_at > penstock.now_ms($1)
"""


class Append(Operation[list[SendResult]]):
    """One append. `key` is the caller's attempt key, or one of the store's own."""

    verb = "append"

    def __init__(self, queue: Queue, entries: Sequence[Draft | Refused], key: bytes) -> None:
        super().__init__()
        self.queue = queue
        self.key = key
        self.drafts = [entry for entry in entries if isinstance(entry, Draft)]
        self.results: list[SendResult] = [
            Sent(entry.message_id) if isinstance(entry, Draft) else entry for entry in entries
        ]
        self.rows = len(self.drafts)
        self.size_bytes = sum(len(draft.body) for draft in self.drafts)


class Appends:
    """Carries out appends."""

    def __init__(self, clock: PinnedClock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits

    async def standard(self, session: Session, batch: Batch[Append]) -> Done[list[SendResult]]:
        """Append to standard queues."""
        appends = batch.operations
        rows = await session.fetch(
            _APPEND,
            self._clock.pinned_ms,
            self._limits.outcome_window_ms,
            [append.key for append in appends],
            [append.queue.id for append in appends],
            [encode_results(append.results) for append in appends],
            *_columns(appends),
        )
        return _done(appends, rows)

    async def fifo(self, session: Session, batch: Batch[Append]) -> Done[list[SendResult]]:
        """Append to FIFO queues."""
        appends = batch.operations
        rows = await session.fetch(
            _APPEND_FIFO,
            self._clock.pinned_ms,
            self._limits.outcome_window_ms,
            self._limits.deduplication_window_ms,
            [append.key for append in appends],
            [append.queue.id for append in appends],
            [encode_results(append.results) for append in appends],
            [append.queue.retention_ms for append in appends],
            *_columns(appends),
            [_scope(append.queue, draft) for append in appends for draft in append.drafts],
            [draft.deduplication_id for append in appends for draft in append.drafts],
        )
        return _done(appends, rows)

    async def outcome(self, session: Session, key: bytes) -> list[SendResult] | None:
        """Return the answer that was kept with a key."""
        row = await session.fetchrow(_OUTCOME, self._clock.pinned_ms, key)
        return None if row is None else _kept(row["results"], row["message_ids"], row["sequences"])


def _columns(appends: Sequence[Append]) -> tuple[list[object], ...]:
    drafts = [draft for append in appends for draft in append.drafts]
    return (
        [number for number, append in enumerate(appends, start=1) for _ in append.drafts],
        [draft.delay_ms for draft in drafts],
        [draft.message_id for draft in drafts],
        [draft.body for draft in drafts],
        [encode_attributes(draft.attributes, draft.trace_header) for draft in drafts],
        [draft.sender or None for draft in drafts],
        [draft.group for draft in drafts],
    )


def _scope(queue: Queue, draft: Draft) -> str:
    by_group = queue.attributes.deduplication_scope is DeduplicationScope.MESSAGE_GROUP
    return draft.group or "" if by_group else ""


def _done(appends: Sequence[Append], rows: Sequence[asyncpg.Record]) -> Done[list[SendResult]]:
    """Answer as the store was told to, but for the requests that came back with something to say."""
    answers: list[list[SendResult] | PenstockError] = [append.results for append in appends]
    for row in rows:
        number = row["request"] - 1
        if row["kept"] is not None:
            answers[number] = _kept(row["kept"], row["kept_ids"], row["kept_sequences"])
        elif row["missing"]:
            answers[number] = QueueDoesNotExist("The specified queue does not exist.")
        else:
            assert row["kept_ids"] is not None, "a request is stored, kept or without a queue"
            answers[number] = _numbered(appends[number].results, row["kept_ids"], row["kept_sequences"])
    arrived: dict[int, int] = {}
    for append in appends:
        served = receives_served(append.drafts, fifo=append.queue.fifo)
        arrived[append.queue.id] = arrived.get(append.queue.id, 0) + served
    return Done(answers, arrived)


def _kept(results: bytes, ids: Sequence[str] | None, sequences: Sequence[int] | None) -> list[SendResult]:
    decoded = decode_results(results)
    return decoded if ids is None or sequences is None else _numbered(decoded, ids, sequences)


def _numbered(results: Sequence[SendResult], ids: Sequence[str], sequences: Sequence[int]) -> list[SendResult]:
    """Give each stored entry, in order, its id and sequence number."""
    numbers = iter(zip(ids, sequences, strict=True))
    return [Sent(*next(numbers)) if isinstance(result, Sent) else result for result in results]
