"""Messages coming into a queue: their place in it, and the rows that are written for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.sqlite.contents import DELAYED, VISIBLE
from penstock.store.sqlite.positions import SEQUENCE_MAX, TRACKED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.store.sqlite.contents import Contents
    from penstock.store.sqlite.groups import Groups
    from penstock.store.sqlite.transaction import Transaction

MessageRow = tuple[int, str, int, str, bytes | None, str | None, str | None, str]
"""position, message id, sent at, sender, extras, deduplication id, dead-letter source, body."""

_STORE = """
INSERT INTO message
    (position, message_id, sent_at_ms, sender, extras, deduplication_id, dead_letter_source, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

_TRACK = """
INSERT INTO delivery
    (position, partition, state, visible_at_ms, receipt, receive_count, group_id, received_elsewhere)
VALUES (?, ?, ?, ?, ?, 0, ?, ?)
"""


class Arrivals:
    """Where messages come in, whether they were sent, died elsewhere or were moved."""

    def __init__(self, transaction: Transaction, groups: Groups) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._groups = groups

    def place(
        self,
        contents: Contents,
        group: str | None,
        delay_ms: int = 0,
        *,
        receipt: int = 0,
        received_elsewhere: int | None = None,
    ) -> int:
        """Find the place of another message, and count it. Its row is still to be stored.

        `receipt` is that of its last delivery elsewhere, which the next one must exceed.
        """
        contents.sequence += 1
        contents.messages += 1
        assert contents.sequence <= SEQUENCE_MAX, "the queue has given out its last sequence number"
        position = contents.bounds[0] + contents.sequence
        if group is None and delay_ms == 0 and receipt == 0:
            return position
        position |= TRACKED
        visible_at_ms = self._transaction.now_ms + delay_ms
        group_id = None if group is None else self._groups.join(contents, group, position, visible_at_ms)
        state = DELAYED if delay_ms else VISIBLE
        contents.count(state, group_id, 1)
        if delay_ms:
            contents.expect(visible_at_ms)
        self._db.execute(
            _TRACK, (position, contents.partition, state, visible_at_ms, receipt, group_id, received_elsewhere)
        )
        return position

    def store(self, rows: Sequence[MessageRow]) -> None:
        """Write the messages themselves."""
        if rows:
            self._db.executemany(_STORE, rows)
