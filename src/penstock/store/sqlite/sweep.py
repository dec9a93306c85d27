"""Upkeep: removes, in bounded passes, what no verb shows any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.sqlite.positions import end_position, first_position, first_tracked_position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.domain.limits import Limits
    from penstock.store.sqlite.contents import ContentsTable
    from penstock.store.sqlite.deliveries import Deliveries
    from penstock.store.sqlite.outcomes import Outcomes
    from penstock.store.sqlite.transaction import Transaction

BYTES_PER_PASS_MAX = 8 * 1024 * 1024
"""How many bytes of bodies a pass frees: SQLite walks over every page of a large one."""

QUEUES_PER_PASS_MAX = 100

_DEDUPLICATION = "SELECT id, at_ms FROM deduplication ORDER BY id LIMIT ?"

_NAMES = """
DELETE FROM deleted_name WHERE (region, account, name) IN
    (SELECT region, account, name FROM deleted_name WHERE deleted_at_ms <= ? LIMIT ?)
"""

_GARBAGE = "SELECT partition FROM garbage WHERE swept = 0 LIMIT 1"

_DELETE_GROUPS = "DELETE FROM message_group WHERE id IN (SELECT id FROM message_group WHERE partition = ? LIMIT ?)"

_DELETE_DELIVERIES = """
DELETE FROM delivery WHERE position IN (SELECT position FROM delivery WHERE position BETWEEN ? AND ? LIMIT ?)
"""

_MESSAGES = """
SELECT m.position, d.state, d.group_id, m.sent_at_ms, octet_length(m.body)
FROM message AS m LEFT JOIN delivery AS d ON d.position = m.position
WHERE m.position BETWEEN ? AND ? ORDER BY m.position LIMIT ?
"""

_DEAD_LETTERS = """
SELECT m.position, d.state, d.group_id, m.sent_at_ms, octet_length(m.body)
FROM message AS m LEFT JOIN delivery AS d ON d.position = m.position
WHERE m.position >> 43 = ? AND m.dead_letter_source IS NOT NULL AND m.sent_at_ms <= ?
ORDER BY m.sent_at_ms LIMIT ?
"""

_QUEUES = """
SELECT q.id, q.partition, q.retention_ms FROM queue AS q JOIN contents AS c ON c.partition = q.partition
WHERE q.id > ? AND c.messages > 0 ORDER BY q.id LIMIT ?
"""


class Sweep:
    """Goes over everything in rounds; a round may take several passes."""

    def __init__(
        self,
        transaction: Transaction,
        contents: ContentsTable,
        deliveries: Deliveries,
        outcomes: Outcomes,
        limits: Limits,
    ) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._contents = contents
        self._deliveries = deliveries
        self._outcomes = outcomes
        self._limits = limits
        self._after_queue = 0
        self._rows_left = 0
        self._bytes_left = 0

    def run(self) -> bool:
        """Do one pass, and tell whether the round goes on."""
        self._rows_left = self._limits.sweep_rows_max
        self._bytes_left = BYTES_PER_PASS_MAX
        now_ms = self._transaction.now_ms
        self._rows_left -= self._outcomes.sweep(self._rows_left)
        self._sweep_deduplication(now_ms - self._limits.deduplication_window_ms)
        self._delete(_NAMES, (now_ms - self._limits.name_reuse_ms, self._rows_left))
        while self._room and (partition := self._db.execute(_GARBAGE).get) is not None:
            self._sweep_partition(partition)
        return not self._room or self._sweep_expired()

    @property
    def _room(self) -> bool:
        return self._rows_left > 0 and self._bytes_left > 0

    def _delete(self, sql: str, bindings: tuple[int, ...]) -> None:
        self._db.execute(sql, bindings)
        self._rows_left -= self._db.changes()

    def _sweep_deduplication(self, over_ms: int) -> None:
        last_id = None
        for entry_id, at_ms in self._db.execute(_DEDUPLICATION, (self._rows_left,)):
            if at_ms > over_ms:
                break
            last_id = entry_id
        if last_id is not None:
            self._delete("DELETE FROM deduplication WHERE id <= ?", (last_id,))

    def _sweep_partition(self, partition: int) -> None:
        """Remove what is left of a purged or deleted queue; the last step frees its number."""
        low, high = first_position(partition), end_position(partition)
        self._delete(_DELETE_GROUPS, (partition, self._rows_left))
        if self._room:
            self._delete(_DELETE_DELIVERIES, (low, high, self._rows_left))
        if self._room:
            rows = self._within_bounds(self._db.execute(_MESSAGES, (low, high, self._rows_left)))
            if rows:
                self._delete("DELETE FROM message WHERE position BETWEEN ? AND ?", (low, rows[-1][0]))
        if self._room:
            self._db.execute("UPDATE garbage SET swept = 1 WHERE partition = ?", (partition,))

    def _sweep_expired(self) -> bool:
        """Remove expired messages of the next queues, and tell whether there are queues left in this round."""
        queues = list(self._db.execute(_QUEUES, (self._after_queue, QUEUES_PER_PASS_MAX)))
        for queue_id, partition, retention_ms in queues:
            self._remove_expired(queue_id, partition, self._transaction.now_ms - retention_ms)
            if not self._room:
                return True
            self._after_queue = queue_id
        if len(queues) == QUEUES_PER_PASS_MAX:
            return True
        self._after_queue = 0
        return False

    def _remove_expired(self, queue_id: int, partition: int, expired_ms: int) -> None:
        """Remove from the head of each lane, where the oldest are, and dead letters by their age."""
        low, middle, high = first_position(partition), first_tracked_position(partition), end_position(partition)
        for sql, bindings in (
            (_MESSAGES, (low, middle - 1)),
            (_MESSAGES, (middle, high)),
            (_DEAD_LETTERS, (partition, expired_ms)),
        ):
            if not self._room:
                return
            # Most queues have nothing expired, which one row tells.
            first = self._db.execute(sql, (*bindings, 1)).fetchone()
            if first is None or first[3] > expired_ms:
                continue
            rows = self._within_bounds(self._db.execute(sql, (*bindings, self._rows_left)), expired_ms)
            self._deliveries.remove(self._contents.change(queue_id), [(row[0], row[1], row[2]) for row in rows])
            self._rows_left -= len(rows)

    def _within_bounds(
        self, rows: Iterable[tuple[int, int | None, int | None, int, int]], expired_ms: int | None = None
    ) -> list[tuple[int, int | None, int | None, int, int]]:
        """Return the first rows: expired ones only, and as many as this pass may free the bodies of."""
        chosen = []
        for row in rows:
            if self._bytes_left <= 0 or (expired_ms is not None and row[3] > expired_ms):
                break
            self._bytes_left -= row[4]
            chosen.append(row)
        return chosen
