"""The parts of the store and how they fit together; kept in step with the transactions that they work in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.domain.errors import PenstockError
from penstock.store.sqlite.appends import Appends
from penstock.store.sqlite.arrivals import Arrivals
from penstock.store.sqlite.calls import Append, ChangeVisibility, Delete, Lease, Work
from penstock.store.sqlite.contents import ContentsTable
from penstock.store.sqlite.dead_letters import DeadLetters
from penstock.store.sqlite.deliveries import Deliveries
from penstock.store.sqlite.expiry import Expiry
from penstock.store.sqlite.groups import Groups
from penstock.store.sqlite.leases import Leases
from penstock.store.sqlite.moves import Moves
from penstock.store.sqlite.outcomes import Outcomes
from penstock.store.sqlite.peeks import Peeks
from penstock.store.sqlite.queues import Queues
from penstock.store.sqlite.receipts import Receipts
from penstock.store.sqlite.shown import shown
from penstock.store.sqlite.sweep import Sweep
from penstock.store.sqlite.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import apsw

    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.limits import Limits
    from penstock.store.sqlite.calls import Call


class Parts:
    """Everything that works on the connection. None of it is to be used outside a call that `Commits` runs."""

    def __init__(self, db: apsw.Connection, clock: Clock, ids: IdSource, limits: Limits) -> None:
        self.transaction = Transaction(db, clock)
        self.contents = ContentsTable(self.transaction)
        self.queues = Queues(self.transaction, self.contents, limits)
        groups = Groups(self.transaction)
        arrivals = Arrivals(self.transaction, groups)
        self.deliveries = Deliveries(self.transaction, groups, rows_max=limits.sweep_rows_max)
        expiry = Expiry(self.transaction, self.deliveries)
        outcomes = Outcomes(self.transaction, window_ms=limits.outcome_window_ms)
        dead_letters = DeadLetters(self.transaction, self.contents, self.queues, arrivals)
        self.appends = Appends(
            self.transaction,
            self.contents,
            arrivals,
            outcomes,
            deduplication_window_ms=limits.deduplication_window_ms,
        )
        self.leases = Leases(
            self.transaction, self.contents, self.deliveries, groups, expiry, dead_letters, outcomes, limits
        )
        self.receipts = Receipts(self.transaction, self.contents, self.deliveries, limits)
        self.peeks = Peeks(self.transaction, self.contents, limits)
        self.moves = Moves(
            self.transaction, self.contents, self.queues, arrivals, self.deliveries, self.leases, ids, limits
        )
        self.upkeep = Sweep(self.transaction, self.contents, expiry, outcomes, limits)
        self.listeners: list[Callable[[int, int], None]] = []

    def handlers(self) -> dict[type[Call[Any]], Callable[[Sequence[Any]], None]]:
        """Tell what does each kind of call, in the order to do them: what makes room, what fills it, who awaits it."""
        return {
            Work: self._work,
            Delete: self.receipts.delete,
            ChangeVisibility: self.receipts.change_visibility,
            Append: self.appends.run,
            Lease: self._lease,
        }

    def _work(self, calls: Sequence[Work[object]]) -> None:
        for call in calls:
            try:
                call.answer = call.run()
            except PenstockError as error:
                call.error = error
        self._show(calls)

    def _lease(self, calls: Sequence[Lease]) -> None:
        self.leases.run(calls)
        self._show(calls)

    def _show(self, calls: Sequence[Call[Any]]) -> None:
        """Let answers have their instants by the wall clock."""
        ahead_ms = self.transaction.ahead_ms
        if ahead_ms:
            for call in calls:
                call.answer = shown(call.answer, ahead_ms)

    def touch(self) -> None:
        """Write something, to see whether that works."""
        self.transaction.db.execute("UPDATE meta SET value = value WHERE name = 'next_partition'")

    def begin(self) -> None:
        """Follow the start of a transaction."""
        self.transaction.begin()

    def save(self) -> None:
        """Write what was changed in memory only."""
        self.contents.save()
        self.transaction.save()

    def drop(self) -> None:
        """Forget what was rolled back."""
        self.transaction.drop()
        self.contents.drop()
        self.queues.drop()

    def committed(self) -> None:
        """Let everyone see and hear what is durable now."""
        self.queues.committed()
        loop = asyncio.get_running_loop()
        for queue_id, count in self.transaction.ready.items():
            for listener in self.listeners:
                # In a turn of its own, so that what a listener raises is no caller's.
                loop.call_soon(listener, queue_id, count)
        for tell in self.transaction.then:
            tell()
