"""Sends: drafts become messages, once for each attempt key and for each deduplication id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.errors import PenstockError
from penstock.domain.message import Refused, SendResult, Sent, receives_served
from penstock.domain.queue import DeduplicationScope
from penstock.store.codec import decode_results, encode_attributes, result_rows
from penstock.store.sqlite.outcomes import APPENDED
from penstock.store.sqlite.positions import sequence_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.message import Draft
    from penstock.domain.queue import Queue
    from penstock.store.port import AttemptKey
    from penstock.store.sqlite.arrivals import Arrivals, MessageRow
    from penstock.store.sqlite.calls import Append
    from penstock.store.sqlite.contents import Contents, ContentsTable
    from penstock.store.sqlite.outcomes import Outcomes
    from penstock.store.sqlite.transaction import Transaction

_FIND_DUPLICATE = """
SELECT message_id, sequence FROM deduplication
WHERE queue_id = ? AND scope = ? AND deduplication_id = ? AND at_ms > ? AND sequence > ?
"""

# It may replace an entry whose window is over, or was ended by a purge, and which is not swept.
_KEEP_DEDUPLICATION = """
INSERT OR REPLACE INTO deduplication (queue_id, scope, deduplication_id, at_ms, message_id, sequence)
VALUES (?, ?, ?, ?, ?, ?)
"""


class Appends:
    """Does appends, all that were gathered at once."""

    def __init__(
        self,
        transaction: Transaction,
        contents: ContentsTable,
        arrivals: Arrivals,
        outcomes: Outcomes,
        *,
        deduplication_window_ms: int,
    ) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._contents = contents
        self._arrivals = arrivals
        self._outcomes = outcomes
        self._window_ms = deduplication_window_ms

    def run(self, calls: Sequence[Append]) -> None:
        """Answer every call."""
        rows: list[MessageRow] = []
        kept: dict[AttemptKey, list[SendResult]] = {}
        contents = None
        for call in calls:
            queue, key = call.queue, None if call.attempt is None else APPENDED + call.attempt
            try:
                # The earlier outcome comes first: its queue may have changed, or be gone.
                earlier = None if key is None else kept.get(key) or self.outcome(key)
                if earlier is not None:
                    call.answer = earlier
                    continue
                if key is not None:
                    self._outcomes.check_room()
                # Appends that come together are often to one queue.
                if contents is None or contents.queue_id != queue.id:
                    contents = self._contents.change(queue.id)
            except PenstockError as error:
                call.error = error
                continue
            stored = len(rows)
            results = call.answer = [self._append(queue, contents, draft, rows) for draft in call.drafts]
            if len(rows) > stored:
                self._transaction.wake(queue.id, receives_served(call.drafts, fifo=contents.fifo))
                if key is not None:
                    kept[key] = results
            elif key is not None and any(type(result) is Sent for result in results):
                kept[key] = results
        self._arrivals.store(rows)
        self._outcomes.keep([(key, result_rows(results)) for key, results in kept.items()])

    def outcome(self, key: AttemptKey) -> list[SendResult] | None:
        """Return the answer that was kept with a key."""
        answer = self._outcomes.find(key)
        return None if answer is None else decode_results(answer)

    def _append(self, queue: Queue, contents: Contents, draft: Draft | Refused, rows: list[MessageRow]) -> SendResult:
        if isinstance(draft, Refused):
            return draft
        if contents.fifo:
            return self._append_once(queue, contents, draft, rows)
        position = self._arrivals.place(contents, draft.group, draft.delay_ms)
        rows.append(self._row(position, draft))
        return Sent(draft.message_id)

    def _append_once(self, queue: Queue, contents: Contents, draft: Draft, rows: list[MessageRow]) -> SendResult:
        """Append to a FIFO queue, unless the deduplication id was seen within the window and since the last purge."""
        now_ms = self._transaction.now_ms
        group = draft.group or ""
        by_group = queue.attributes.deduplication_scope is DeduplicationScope.MESSAGE_GROUP
        scope = group if by_group else ""
        if draft.deduplication_id is not None:
            duplicate = self._db.execute(
                _FIND_DUPLICATE,
                (queue.id, scope, draft.deduplication_id, now_ms - self._window_ms, contents.purged_up_to),
            ).fetchone()
            if duplicate is not None:
                return Sent(*duplicate)
        position = self._arrivals.place(contents, group, draft.delay_ms)
        sequence = sequence_of(position)
        rows.append(self._row(position, draft))
        if draft.deduplication_id is not None:
            self._db.execute(
                _KEEP_DEDUPLICATION, (queue.id, scope, draft.deduplication_id, now_ms, draft.message_id, sequence)
            )
        return Sent(draft.message_id, sequence)

    def _row(self, position: int, draft: Draft) -> MessageRow:
        return (
            position,
            draft.message_id,
            self._transaction.now_ms,
            draft.sender,
            # Few have any, and each message has a row.
            encode_attributes(draft.attributes, draft.trace_header) if draft.attributes or draft.trace_header else None,
            draft.deduplication_id,
            None,
            draft.body,
        )
