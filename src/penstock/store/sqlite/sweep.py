"""Upkeep: removes, in bounded passes, what no verb shows any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.sqlite.expiry import first_rows
from penstock.store.sqlite.positions import end_position, first_position
from penstock.store.sqlite.screen import BYTES_PER_PASS_MAX

if TYPE_CHECKING:
    from penstock.domain.limits import Limits
    from penstock.store.sqlite.contents import ContentsTable
    from penstock.store.sqlite.expiry import Expiry
    from penstock.store.sqlite.outcomes import Outcomes
    from penstock.store.sqlite.transaction import Transaction

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
SELECT position, NULL, NULL, sent_at_ms, octet_length(body) FROM message
WHERE position BETWEEN ? AND ? ORDER BY position LIMIT ?
"""

_QUEUES = "SELECT id, retention_ms FROM queue WHERE id > ? ORDER BY id LIMIT ?"


class Sweep:
    """Goes over everything in rounds; a round may take several passes."""

    def __init__(
        self, transaction: Transaction, contents: ContentsTable, expiry: Expiry, outcomes: Outcomes, limits: Limits
    ) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._contents = contents
        self._expiry = expiry
        self._outcomes = outcomes
        self._limits = limits
        self._after_queue = 0
        self._rows_left = 0

    def run(self) -> bool:
        """Do one pass, and tell whether the round goes on."""
        self._rows_left = self._limits.sweep_rows_max
        now_ms = self._transaction.now_ms
        self._rows_left -= self._outcomes.sweep(self._rows_left)
        self._sweep_deduplication(now_ms - self._limits.deduplication_window_ms)
        self._delete(_NAMES, (now_ms - self._limits.name_reuse_ms, self._rows_left))
        while self._rows_left > 0 and (partition := self._db.execute(_GARBAGE).get) is not None:
            self._sweep_partition(partition)
        return self._rows_left <= 0 or self._sweep_expired()

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
        """Remove what is left of a purged or deleted queue; the step that finds nothing more frees its number."""
        low, high = first_position(partition), end_position(partition)
        # Groups go after their deliveries: a new group may take the id of one that is gone, and would have those.
        self._delete(_DELETE_DELIVERIES, (low, high, self._rows_left))
        if self._rows_left > 0:
            self._delete(_DELETE_GROUPS, (partition, self._rows_left))
        if self._rows_left <= 0:
            return
        rows = list(self._db.execute(_MESSAGES, (low, high, self._rows_left)))
        freed = first_rows(rows, BYTES_PER_PASS_MAX)
        if freed:
            self._delete("DELETE FROM message WHERE position BETWEEN ? AND ?", (low, freed[-1][0]))
        if len(freed) < len(rows):
            self._rows_left = 0  # Few rows, but large ones: enough for one pass.
        elif self._rows_left > 0:
            self._db.execute("UPDATE garbage SET swept = 1 WHERE partition = ?", (partition,))

    def _sweep_expired(self) -> bool:
        """Remove expired messages of the next queues, and tell whether there are queues left in this round."""
        queues = list(self._db.execute(_QUEUES, (self._after_queue, QUEUES_PER_PASS_MAX)))
        for queue_id, retention_ms in queues:
            contents = self._contents.of(queue_id)
            if self._expiry.due(contents, retention_ms):
                removed = self._expiry.remove(self._contents.change(queue_id), retention_ms, self._rows_left)
                self._rows_left -= removed
                if self._rows_left <= 0 or self._expiry.due(contents, retention_ms):
                    return True
            self._after_queue = queue_id
        if len(queues) == QUEUES_PER_PASS_MAX:
            return True
        self._after_queue = 0
        return False
