"""What all the work of one transaction shares: the connection, the instant, and whom to wake after the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw

    from penstock.domain.clock import Clock


class Transaction:
    """The transaction under way. There is one at a time, so one object serves them all."""

    def __init__(self, db: apsw.Connection, clock: Clock) -> None:
        self.db = db
        self.now_ms = 0
        """The instant of this transaction. It never goes back, whatever the clock does."""
        self.ready: dict[int, int] = {}
        """By queue id, how many messages may have become leasable."""
        self.then: list[Callable[[], None]] = []
        """What else to do once it is durable."""
        self._clock = clock

    def begin(self) -> None:
        """Start another one."""
        self.now_ms = max(self.now_ms, self._clock.now_ms())
        self.ready = {}
        self.then = []

    def clock_ms(self) -> int:
        """Tell the present instant outside a transaction."""
        return self._clock.now_ms()

    def wake(self, queue_id: int, count: int) -> None:
        """Note that messages of a queue may have become leasable sooner than its waiters were told."""
        self.ready[queue_id] = self.ready.get(queue_id, 0) + count
