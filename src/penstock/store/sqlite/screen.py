"""What stands between visible messages and a consumer: expired ones are removed, dead ones moved away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.sqlite.rows import Row

if TYPE_CHECKING:
    from penstock.domain.queue import Queue
    from penstock.store.sqlite.contents import Contents
    from penstock.store.sqlite.dead_letters import DeadLetters
    from penstock.store.sqlite.deliveries import Deliveries
    from penstock.store.sqlite.transaction import Transaction

_PAGE_MAX = 100


class Screen:
    """Sifts the visible messages of one queue for one run of leases.

    It takes away at most `rows_max` messages; then `cut` is set, and the run ends with what it has.
    """

    def __init__(
        self,
        transaction: Transaction,
        deliveries: Deliveries,
        dead_letters: DeadLetters,
        queue: Queue,
        contents: Contents,
        *,
        rows_max: int,
    ) -> None:
        self.queue = queue
        self.contents = contents
        self.cut = False
        self._deliveries = deliveries
        self._dead_letters = dead_letters
        self._rows_left = rows_max
        self._expired_ms = transaction.now_ms - queue.retention_ms
        self._deadline: tuple[int, int] | None = None
        self._deadline_known = queue.attributes.redrive is None

    def page(self, count: int) -> int:
        """Tell how many rows to fetch when `count` are wanted and some of the last ones were taken away."""
        return max(count, min(_PAGE_MAX, self._rows_left))

    def sift(self, rows: list[Row], group: str | None = None) -> list[Row]:
        """Return the messages that may be delivered. `rows` have at least the columns of `Row`, and one group."""
        expired_ms = self._expired_ms
        if not self._deadline_known:
            self._deadline = self._dead_letters.deadline(self.queue)
            self._deadline_known = True
        receives_max = self._deadline[0] if self._deadline else None
        good, gone, dead = [], [], []
        for row in rows:
            if row[2] <= expired_ms:
                gone.append(Row._make(row).delivery)
            elif receives_max is not None and row[11] >= receives_max:
                gone.append(Row._make(row).delivery)
                dead.append((Row._make(row), group))
            else:
                good.append(row)
        if gone:
            if dead and self._deadline:
                self._dead_letters.bury(self.queue, self._deadline[1], dead)
            self._deliveries.remove(self.contents, gone)
            self._rows_left -= len(gone)
            self.cut = self._rows_left <= 0
        return good
