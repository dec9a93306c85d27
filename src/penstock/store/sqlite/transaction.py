"""What all the work of one transaction shares: the connection, the instant, and whom to wake after the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.sqlite.store_time import StoreTime

if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw

    from penstock.domain.clock import Clock


class Transaction:
    """The transaction under way. There is one at a time, so one object serves them all."""

    def __init__(self, db: apsw.Connection, clock: Clock) -> None:
        self.db = db
        self.now_ms = 0
        """The instant of this transaction, in the store's own time. It never goes back, whatever the clock does."""
        self.ready: dict[int, int] = {}
        """By queue id, how many messages may have become leasable."""
        self.then: list[Callable[[], None]] = []
        """What else to do once it is durable."""
        self._time = StoreTime(db, clock)

    def begin(self) -> None:
        """Start another one."""
        self.now_ms = max(self.now_ms, self._time.now_ms())
        self.ready = {}
        self.then = []

    @property
    def ahead_ms(self) -> int:
        """How far the store's time is ahead of the wall clock: 0, unless somebody has set that."""
        return self._time.ahead_ms

    @property
    def wall_ms(self) -> int:
        """The instant of this transaction by the wall clock."""
        return self.now_ms - self._time.ahead_ms

    def clock_ms(self) -> int:
        """Return the present instant outside a transaction."""
        return self._time.now_ms()

    def save(self) -> None:
        """Keep what the transaction itself has to keep."""
        self._time.keep(self.now_ms)

    def drop(self) -> None:
        """Forget what was rolled back."""
        self._time.drop()

    def wake(self, queue_id: int, count: int) -> None:
        """Note that messages of a queue may have become leasable sooner than its waiters were told."""
        self.ready[queue_id] = self.ready.get(queue_id, 0) + count
