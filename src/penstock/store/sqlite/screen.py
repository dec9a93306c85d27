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

BYTES_PER_PASS_MAX = 8 * 1024 * 1024
"""How many bytes of bodies a pass removes or moves: SQLite walks over every page of a large one."""


class Screen:
    """Sifts the visible messages of one queue for one run of leases.

    It takes away about `rows_max` messages or `BYTES_PER_PASS_MAX` at most; then `cut` is set, and the run ends with
    what it has.
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
        self._bytes_left = BYTES_PER_PASS_MAX
        self._largest_bytes = 1
        self._expired_ms = transaction.now_ms - queue.retention_ms
        self._deadline: tuple[int, int] | None = None
        self._deadline_known = queue.attributes.redrive is None

    def page(self, count: int) -> int:
        """Tell how many rows to fetch when `count` are wanted and some of the last ones were taken away."""
        return max(count, min(_PAGE_MAX, self._rows_left, self._bytes_left // self._largest_bytes))

    def sift(self, rows: list[Row], group: str | None = None) -> list[Row]:
        """Return the messages that may be delivered. `rows` have at least the columns of `Row`, and one group."""
        expired_ms = self._expired_ms
        if not self._deadline_known:
            self._deadline = self._dead_letters.deadline(self.queue)
            self._deadline_known = True
        receives_max, target_id = self._deadline or (None, None)
        # In a FIFO queue a dead letter goes to the end of its group, be it that of the same queue.
        stay = target_id == self.queue.id and not self.contents.fifo
        good: list[Row] = []
        gone: list[Row] = []
        dead: list[tuple[Row, str | None]] = []
        for row in rows:
            if row[2] <= expired_ms:
                gone.append(Row._make(row))
            elif receives_max is None or row[11] < receives_max:
                good.append(row)
            elif stay:
                good.append(self._dead_letters.renew(self.queue, Row._make(row)))
            else:
                gone.append(Row._make(row))
                dead.append((gone[-1], group))
        if gone:
            if dead and target_id is not None:
                self._dead_letters.bury(self.queue, target_id, dead)
            self._deliveries.remove(self.contents, [row.delivery for row in gone])
            self._note_removed([len(row.body) for row in gone])
        return good

    def _note_removed(self, sizes: list[int]) -> None:
        self._rows_left -= len(sizes)
        self._bytes_left -= sum(sizes)
        self._largest_bytes = max(self._largest_bytes, *sizes)
        self.cut = self._rows_left <= 0 or self._bytes_left <= 0
