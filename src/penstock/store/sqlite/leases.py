"""Receives: visible messages become leased, and the same ones again for the same attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.domain.errors import PenstockError
from penstock.domain.queue import Counts
from penstock.store.codec import decode_deliveries
from penstock.store.port import FULL_AGAIN_MS, Leased
from penstock.store.refusals import over_limit
from penstock.store.sqlite.connection import array_of
from penstock.store.sqlite.contents import LEASED as LEASED_STATE
from penstock.store.sqlite.fair import Fair
from penstock.store.sqlite.fifo import Fifo
from penstock.store.sqlite.outcomes import LEASED
from penstock.store.sqlite.rows import ROW_COLUMNS, leased_message
from penstock.store.sqlite.screen import Screen
from penstock.store.sqlite.standard import Ungrouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.limits import Limits
    from penstock.domain.message import Message
    from penstock.domain.queue import Queue
    from penstock.store.port import AttemptKey
    from penstock.store.sqlite.calls import Lease
    from penstock.store.sqlite.contents import Contents, ContentsTable
    from penstock.store.sqlite.dead_letters import DeadLetters
    from penstock.store.sqlite.deliveries import Deliveries
    from penstock.store.sqlite.expiry import Expiry
    from penstock.store.sqlite.groups import Groups
    from penstock.store.sqlite.outcomes import Outcomes
    from penstock.store.sqlite.transaction import Transaction

_LEASED_BEFORE = f"""
SELECT {ROW_COLUMNS}, g.name
FROM carray(?) AS wanted
    CROSS JOIN delivery AS d ON d.position = wanted.value
    CROSS JOIN message AS m ON m.position = d.position
    LEFT JOIN message_group AS g ON g.id = d.group_id
"""  # noqa: S608  # The columns are our own text.

_QUEUE_ID_BYTES = 8


class Source(Protocol):
    """Where a run of leases takes its messages from, by the rules of a kind of queue."""

    @property
    def unsaved(self) -> int:
        """How many messages were leased since the last `save`."""

    def lease(self, count: int, lease_ms: int, ahead: int, /) -> list[Message]:
        """Lease up to `count` messages; `ahead` says how many this and all later calls of the run want."""

    def save(self) -> None:
        """Write what `lease` has not written."""


class _Run:
    """Leases on one queue that share what is fetched, and are written together."""

    def __init__(self, calls: list[Lease], kept: dict[AttemptKey, list[tuple[int, int]]]) -> None:
        self.kept = kept
        """What was given for which attempt key, in this run and in others of the same pass."""
        self.ahead = sum(call.count for call in calls)
        """How many messages the calls that are still to be done want."""
        self.source: Source | None = None
        self.screen: Screen | None = None
        self.repeated: list[Lease] = []
        """Calls with the attempt key of another one, whose messages are not written yet."""
        self.retried: list[tuple[list[Message], int]] = []
        """What was leased by retries, and their numbers."""

    @property
    def cut(self) -> bool:
        """Whether the bound of one pass was reached before the end of the messages."""
        return self.screen is not None and self.screen.cut


class Leases:
    """Does leases, all that were gathered at once."""

    def __init__(
        self,
        transaction: Transaction,
        contents: ContentsTable,
        deliveries: Deliveries,
        groups: Groups,
        expiry: Expiry,
        dead_letters: DeadLetters,
        outcomes: Outcomes,
        limits: Limits,
    ) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._contents = contents
        self._deliveries = deliveries
        self._groups = groups
        self._expiry = expiry
        self._dead_letters = dead_letters
        self._outcomes = outcomes
        self._limits = limits

    def run(self, calls: Sequence[Lease]) -> None:
        """Answer every call. Those on one queue, with the same policies, are a run that fetches messages at once."""
        runs: dict[tuple[int, int, int], list[Lease]] = {}
        for call in calls:
            # With a lease of no length the next call may have the same messages, so it has to look for itself.
            alone = id(call) if call.lease_ms == 0 else 0
            runs.setdefault((call.queue.id, call.queue.revision, alone), []).append(call)
        kept: dict[AttemptKey, list[tuple[int, int]]] = {}
        repeated = [call for alike in runs.values() for call in self._run(alike, kept)]
        self._outcomes.keep(list(kept.items()))
        if repeated:
            self.run(repeated)

    def screen(self, queue: Queue, contents: Contents) -> Screen:
        """Make a screen for one run."""
        return Screen(
            self._transaction,
            self._deliveries,
            self._dead_letters,
            queue,
            contents,
            rows_max=self._limits.sweep_rows_max,
        )

    def settle(self, queue: Queue) -> Contents:
        """Return a queue's contents after what has come due was made visible and what expired was removed.

        Both up to a bound: `unsettled` tells whether there is more.
        """
        contents = self._contents.of(queue.id)
        if contents.next_due_ms is not None and contents.next_due_ms <= self._transaction.now_ms:
            self._deliveries.settle(self._contents.change(queue.id))
        # An expired message is not only not delivered: if it is leased, it holds up its FIFO group no longer.
        if self._expiry.due(contents, queue.retention_ms):
            self._expiry.remove(self._contents.change(queue.id), queue.retention_ms, self._limits.sweep_rows_max)
        return contents

    def unsettled(self, queue: Queue, contents: Contents) -> bool:
        """Tell whether more has come due or expired than one pass settles."""
        return self._next_in_ms(contents) == 0 or self._expiry.due(contents, queue.retention_ms)

    def count(self, queue: Queue) -> Counts:
        """Count a queue's messages."""
        contents = self.settle(queue)
        leased, delayed = contents.leased, contents.delayed
        if self._next_in_ms(contents) == 0:
            # More has come due than one pass settles.
            leased_over, delayed_over = self._deliveries.count_due(contents)
            leased, delayed = leased - leased_over, delayed - delayed_over
        return Counts(visible=contents.messages - leased - delayed, in_flight=leased, delayed=delayed)

    def ungrouped(self, screen: Screen) -> Ungrouped:
        """Give the visible messages without a group of a standard queue."""
        return Ungrouped(self._transaction, self._deliveries, screen)

    def fifo(self, screen: Screen) -> Fifo:
        """Give the visible messages of a FIFO queue."""
        return Fifo(self._transaction, self._deliveries, self._groups, screen)

    def _source(self, screen: Screen) -> Source:
        if screen.contents.fifo:
            return self.fifo(screen)
        ungrouped = self.ungrouped(screen)
        if not screen.contents.groups:
            return ungrouped
        return Fair(self._transaction, self._deliveries, self._groups, screen, ungrouped)

    def _run(self, calls: list[Lease], kept: dict[AttemptKey, list[tuple[int, int]]]) -> list[Lease]:
        """Answer calls, and add to what is to be `kept`; return those that have to wait until that is done."""
        run = _Run(calls, kept)
        for call in calls:
            try:
                call.answer = self._lease(run, call)
            except PenstockError as error:
                call.error = error
        if run.source is not None:
            run.source.save()
        for messages, retry in run.retried:
            self._deliveries.hold((message.position for message in messages), retry)
        return run.repeated

    def _lease(self, run: _Run, call: Lease) -> Leased:
        run.ahead -= call.count
        key = None if call.attempt is None else _outcome_key(call.queue, call.attempt)
        if key in run.kept:
            run.repeated.append(call)
            return Leased([])
        # Once in a run: what it works through stays bounded, and its source has seen all that was settled.
        contents = self.settle(call.queue) if run.source is None else self._contents.of(call.queue.id)
        if key is not None and (again := self._lease_again(call, key, contents)):
            return Leased(again, holder=call.retry)
        room = self._room(call.queue, contents, run.source)
        messages: list[Message] = []
        if room and contents.visible > 0:
            if run.source is None:
                run.screen = self.screen(call.queue, self._contents.change(contents.queue_id))
                run.source = self._source(run.screen)
            count = min(call.count, room)
            messages = run.source.lease(count, call.lease_ms, count + run.ahead)
        # Fewer than asked for, though there may be more: a bound was reached, and the next look goes on from there.
        more = len(messages) < call.count and (run.cut or self.unsettled(call.queue, contents))
        next_in_ms = 0 if more else self._next_in_ms(contents)
        if not messages:
            full = not room and next_in_ms is not None
            return Leased(messages, min(next_in_ms or 0, FULL_AGAIN_MS) if full else next_in_ms)
        if key is not None:
            run.kept[key] = [(message.position, message.receipt) for message in messages]
        if call.retry:
            run.retried.append((messages, call.retry))
        if call.lease_ms == 0:
            self._transaction.wake(contents.queue_id, len(messages))
        elif next_in_ms is None:
            next_in_ms = call.lease_ms  # Nothing was hidden but what this lease hides.
        return Leased(messages, next_in_ms, call.retry)

    def _room(self, queue: Queue, contents: Contents, source: Source | None) -> int:
        """Return how many more messages may be leased. Raises `OverLimit` if none may, on a standard queue."""
        limits = self._limits
        in_flight_max = limits.in_flight_fifo_max if contents.fifo else limits.in_flight_standard_max
        room = in_flight_max - contents.leased - (source.unsaved if source is not None else 0)
        # Leases that are over but not settled make room in the next pass, for which the caller looks again at once.
        if room <= 0 and not contents.fifo and not self.unsettled(queue, contents):
            raise over_limit(in_flight_max)
        return max(0, room)

    def _next_in_ms(self, contents: Contents) -> int | None:
        if contents.next_due_ms is None:
            return None
        return max(0, contents.next_due_ms - self._transaction.now_ms)

    def _lease_again(self, call: Lease, key: AttemptKey, contents: Contents) -> list[Message]:
        """Return what an earlier lease with this key gave and is still leased, its lease renewed."""
        answer = self._outcomes.find(key)
        if answer is None:
            self._outcomes.check_room()
            return []
        now_ms = self._transaction.now_ms
        low, high = contents.bounds
        receipts = {position: receipt for position, receipt in decode_deliveries(answer) if low < position <= high}
        if not receipts:
            self._outcomes.forget(key)  # The queue was purged.
            return []
        rows = {row[0]: row for row in self._db.execute(_LEASED_BEFORE, (array_of(receipts),))}
        deliveries = self._deliveries.find(list(receipts))
        messages = []
        passed: set[int | None] = set()
        for position, receipt in receipts.items():
            delivery = deliveries.get(position)
            if delivery is None or rows[position][2] + call.queue.retention_ms <= now_ms:
                continue
            held = (delivery.receipt, delivery.state) == (receipt, LEASED_STATE) and delivery.visible_at_ms > now_ms
            if not held or (contents.fifo and delivery.group_id in passed):
                # On FIFO, what came back is to be delivered before whatever is behind it.
                passed.add(delivery.group_id)
                continue
            # The retry is the holder from now on, or nobody is if it may be the older request.
            newer = delivery.holder is not None and call.retry > delivery.holder
            until_ms = max(delivery.visible_at_ms, now_ms + call.lease_ms)
            self._deliveries.hide(contents, delivery, until_ms, holder=call.retry if newer else None)
            *row, group = rows[position]
            messages.append(leased_message(row, now_ms, group, fifo=contents.fifo, leases=0))
        if not messages:
            self._outcomes.forget(key)
        return messages


def _outcome_key(queue: Queue, attempt: AttemptKey) -> AttemptKey:
    """Make the key of a lease's outcome. It names positions, which another queue may have after this one is gone."""
    return LEASED + queue.id.to_bytes(_QUEUE_ID_BYTES) + attempt
