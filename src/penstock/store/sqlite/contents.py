"""How much each queue holds: a few counters, kept in memory and written with every commit that changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.errors import QueueDoesNotExist
from penstock.store.sqlite.positions import PARTITION_MAX, end_position, first_position

if TYPE_CHECKING:
    import apsw

    from penstock.store.sqlite.transaction import Transaction

VISIBLE, LEASED, DELAYED = 0, 1, 2
"""The states of a delivery."""

CONTENTS_CACHED_MAX = 20_000

_LOAD = """
SELECT c.partition, c.messages, c.leased, c.delayed, c.returned, c.groups, c.cursor, c.sequence, q.purged_up_to,
       q.name LIKE '%.fifo',
       (SELECT min(visible_at_ms) FROM delivery WHERE partition = c.partition AND state > 0)
FROM queue AS q JOIN contents AS c ON c.partition = q.partition
WHERE q.id = ?
"""

_SAVE = """
UPDATE contents
SET messages = ?, leased = ?, delayed = ?, returned = ?, groups = ?, cursor = ?, sequence = ?
WHERE partition = ?
"""


class Contents:
    """What a queue holds now, all its counters agreeing with the rows of its partition.

    `next_due_ms` is no later than the first instant at which a hidden message comes due; None says that none is hidden.
    `oldest_ms` is no later than the instant at which the oldest message was sent. `purged_up_to` is the last sequence
    number that was given out before the last purge.
    """

    __slots__ = (
        "bounds",
        "cursor",
        "delayed",
        "dirty",
        "fifo",
        "groups",
        "leased",
        "messages",
        "next_due_ms",
        "oldest_ms",
        "partition",
        "purged_up_to",
        "queue_id",
        "returned",
        "sequence",
    )

    def __init__(self, queue_id: int, row: tuple[int, int, int, int, int, int, int, int, int, int, int | None]) -> None:
        self.queue_id = queue_id
        (
            self.partition,
            self.messages,
            self.leased,
            self.delayed,
            self.returned,
            self.groups,
            self.cursor,
            self.sequence,
            self.purged_up_to,
            fifo,
            self.next_due_ms,
        ) = row
        self.fifo = bool(fifo)
        self.bounds = (first_position(self.partition), end_position(self.partition))
        self.oldest_ms = 0
        self.dirty = False

    @property
    def visible(self) -> int:
        """How many messages are visible, if everything that has come due is settled."""
        return self.messages - self.leased - self.delayed

    def count(self, state: int | None, group_id: int | None, change: int) -> None:
        """Count deliveries that come into a state (`change` 1) or leave it (-1). A fresh message has no state."""
        if state == LEASED:
            self.leased += change
        elif state == DELAYED:
            self.delayed += change
        elif state == VISIBLE and group_id is None:
            self.returned += change

    def expect(self, due_ms: int) -> None:
        """Note that a message is hidden until `due_ms`."""
        if self.next_due_ms is None or due_ms < self.next_due_ms:
            self.next_due_ms = due_ms


class ContentsTable:
    """The contents of all queues, read when first asked for."""

    def __init__(self, transaction: Transaction) -> None:
        self._db: apsw.Connection = transaction.db
        self._known: dict[int, Contents] = {}
        self._dirty: list[Contents] = []

    def of(self, queue_id: int) -> Contents:
        """Return the contents of a queue, or raise `QueueDoesNotExist`."""
        known = self._known.get(queue_id)
        if known is not None:
            return known
        row = self._db.execute(_LOAD, (queue_id,)).fetchone()
        if row is None:
            message = "The specified queue does not exist."
            raise QueueDoesNotExist(message)
        contents = self._known[queue_id] = Contents(queue_id, row)
        return contents

    def change(self, queue_id: int) -> Contents:
        """Return the contents of a queue, which are about to change."""
        contents = self.of(queue_id)
        if not contents.dirty:
            contents.dirty = True
            self._dirty.append(contents)
        return contents

    def make(self, sequence: int = 0) -> int:
        """Make an empty partition whose numbers go on after `sequence`, and return its number."""
        partition = self._db.execute("SELECT partition FROM garbage WHERE swept = 1 LIMIT 1").get
        if partition is None:
            partition = self._db.execute("SELECT value FROM meta WHERE name = 'next_partition'").get
            assert partition <= PARTITION_MAX, "every partition number is in use"
            self._db.execute("UPDATE meta SET value = value + 1 WHERE name = 'next_partition'")
        else:
            self._db.execute("DELETE FROM garbage WHERE partition = ?", (partition,))
        self._db.execute(
            "INSERT INTO contents VALUES (?, 0, 0, 0, 0, 0, ?, ?)", (partition, first_position(partition), sequence)
        )
        return int(partition)

    def discard(self, contents: Contents) -> None:
        """Leave a partition to the sweeper, whatever it holds."""
        self._db.execute("DELETE FROM contents WHERE partition = ?", (contents.partition,))
        self._db.execute("INSERT INTO garbage (partition) VALUES (?)", (contents.partition,))
        del self._known[contents.queue_id]
        if contents.dirty:
            self._dirty.remove(contents)

    def save(self) -> None:
        """Write what has changed."""
        if self._dirty:
            self._db.executemany(
                _SAVE,
                [
                    (c.messages, c.leased, c.delayed, c.returned, c.groups, c.cursor, c.sequence, c.partition)
                    for c in self._dirty
                ],
            )
            for contents in self._dirty:
                contents.dirty = False
            self._dirty.clear()
        while len(self._known) > CONTENTS_CACHED_MAX:
            del self._known[next(iter(self._known))]

    def drop(self) -> None:
        """Forget everything, because a transaction was rolled back."""
        self._known.clear()
        self._dirty.clear()
