"""Message groups: the scope of order on a FIFO queue, the tenant on a standard one. Only groups with messages exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.sqlite.connection import array_of
from penstock.store.sqlite.contents import DELAYED, LEASED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.store.sqlite.contents import Contents
    from penstock.store.sqlite.transaction import Transaction

    Change = Sequence[int]
    """By how many a group's deliveries in each state, 0 to 2, became more."""

JOINED_MAX = 1_000
"""So many groups that messages joined lately are remembered."""

_FIND = "SELECT id, head FROM message_group WHERE partition = ? AND name = ?"

_MAKE_FIFO = """
INSERT INTO message_group (id, partition, name, head, in_flight, delayed, ready_at_ms)
VALUES ((SELECT min(coalesce(min(id), 0), 0) - 1 FROM message_group), ?, ?, ?, 0, 0, ?)
"""

_MAKE_FAIR = """
INSERT INTO message_group (id, partition, name, head, in_flight, delayed)
VALUES ((SELECT max(coalesce(max(id), 0), 0) + 1 FROM message_group), ?, ?, ?, 0, ?)
"""

_SHOW = "UPDATE message_group SET head = ?2 WHERE id = ?1"

_DELAY = "UPDATE message_group SET delayed = delayed + 1 WHERE id = ?"

_FAIR = """
SELECT g.id, g.in_flight, g.delayed,
    (SELECT min(position) FROM delivery WHERE group_id = g.id AND group_id > 0 AND state = 0)
FROM carray(?) AS wanted CROSS JOIN message_group AS g ON g.id = wanted.value
"""

# The first message decides when the group is ready; what it gives ends before the first that is hidden.
_FIFO = """
SELECT g.id, d.position, d.visible_at_ms
FROM carray(?) AS wanted CROSS JOIN message_group AS g ON g.id = wanted.value
    LEFT JOIN delivery AS d
        ON d.position = (SELECT min(position) FROM delivery WHERE group_id = g.id AND group_id < 0)
"""

_SAVE_FAIR = "UPDATE message_group SET in_flight = ?, delayed = ?, head = ? WHERE id = ?"

_SAVE_FIFO = "UPDATE message_group SET head = ?, ready_at_ms = ? WHERE id = ?"

_REMOVE = "DELETE FROM message_group WHERE id IN (SELECT value FROM carray(?))"

_SERVE = "UPDATE message_group SET in_flight = in_flight + ?, head = ? WHERE id = ?"

_BLOCK = "UPDATE message_group SET ready_at_ms = ? WHERE id = ?"


class Groups:
    """The groups of all queues."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._joined: dict[str, int] = {}
        self._joined_in: Contents | None = None
        """FIFO groups that were found lately, by name, and where: the messages of a batch often share one.

        After a rollback there are other contents, and these groups count for nothing.
        """

    def join(self, contents: Contents, name: str, position: int, visible_at_ms: int) -> int:
        """Tell the id of the group that a new message at `position` belongs to, making the group if it is the first."""
        if contents.fifo:
            return self._join_fifo(contents, name, position, visible_at_ms)
        found: tuple[int, int | None] | None = self._db.execute(_FIND, (contents.partition, name)).get
        delayed = visible_at_ms > self._transaction.now_ms
        if found is None:
            return self._make(contents, _MAKE_FAIR, (name, None if delayed else position, delayed))
        group_id, head = found
        if delayed:
            self._db.execute(_DELAY, (group_id,))
        elif head is None:
            self._db.execute(_SHOW, (group_id, position))
        return group_id

    def refresh(self, contents: Contents, changes: Mapping[int, Change]) -> None:
        """Bring groups up to date after their deliveries changed so; remove those that have none left.

        On FIFO, waiters are told of groups that may be leased now.
        """
        if not changes:
            return
        empty = self._refresh_fifo(contents, changes) if contents.fifo else self._refresh_fair(changes)
        if empty:
            self._joined.clear()
            contents.groups -= len(empty)
            self._db.execute(_REMOVE, (array_of(empty),))

    def block(self, leased: Sequence[tuple[int, int]]) -> None:
        """Let FIFO groups wait for the leases of their first messages: when they are over, and the id of each."""
        self._db.executemany(_BLOCK, leased)

    def serve(self, leased: Sequence[tuple[int, int | None, int]]) -> None:
        """Count leases from groups of standard queues: how many more, the first visible message, and id of each."""
        self._db.executemany(_SERVE, leased)

    def _join_fifo(self, contents: Contents, name: str, position: int, visible_at_ms: int) -> int:
        if self._joined_in is not contents or len(self._joined) >= JOINED_MAX:
            self._joined.clear()
            self._joined_in = contents
        group_id = self._joined.get(name)
        if group_id is None:
            found: tuple[int, int] | None = self._db.execute(_FIND, (contents.partition, name)).get
            first = (name, position, visible_at_ms)
            group_id = self._make(contents, _MAKE_FIFO, first) if found is None else found[0]
            self._joined[name] = group_id
        return group_id

    def _make(self, contents: Contents, sql: str, bindings: tuple[str | int | None, ...]) -> int:
        contents.groups += 1
        self._db.execute(sql, (contents.partition, *bindings))
        return self._db.last_insert_rowid()

    def _refresh_fifo(self, contents: Contents, changes: Mapping[int, Change]) -> list[int]:
        """Write what has become of FIFO groups, and return those that are empty."""
        now_ms = self._transaction.now_ms
        saved, empty, ready = [], [], 0
        for group_id, head, ready_at_ms in self._db.execute(_FIFO, (array_of(changes),)):
            if head is None:
                empty.append(group_id)
            else:
                saved.append((head, ready_at_ms, group_id))
                ready += ready_at_ms <= now_ms
        self._db.executemany(_SAVE_FIFO, saved)
        if ready:
            self._transaction.wake(contents.queue_id, ready)
        return empty

    def _refresh_fair(self, changes: Mapping[int, Change]) -> list[int]:
        """Write what has become of groups of standard queues, and return those that are empty."""
        saved, empty = [], []
        for group_id, in_flight_before, delayed_before, head in self._db.execute(_FAIR, (array_of(changes),)):
            change = changes[group_id]
            in_flight, delayed = in_flight_before + change[LEASED], delayed_before + change[DELAYED]
            if head is None and not in_flight and not delayed:
                empty.append(group_id)
            else:
                saved.append((in_flight, delayed, head, group_id))
        self._db.executemany(_SAVE_FAIR, saved)
        return empty
