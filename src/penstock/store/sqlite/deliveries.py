"""What becomes of messages: leased, returned, hidden for longer, removed; with the counters and groups that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.store.sqlite.connection import array_of
from penstock.store.sqlite.contents import DELAYED, LEASED, VISIBLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.store.sqlite.contents import Contents
    from penstock.store.sqlite.groups import Groups
    from penstock.store.sqlite.transaction import Transaction

COUNTED_DUE_MAX = 1_000
"""For so many queues it is remembered how much of what came due was counted."""

_FIND = """
SELECT d.position, d.state, d.visible_at_ms, d.leased_at_ms, d.receipt, d.receive_count, d.group_id, d.holder
FROM carray(?) AS wanted CROSS JOIN delivery AS d ON d.position = wanted.value
"""

_LEASE_FRESH = """
INSERT INTO delivery
    (position, partition, state, visible_at_ms, leased_at_ms, receipt, receive_count, first_received_at_ms)
SELECT value, ?2, 1, ?3, ?4, 1, 1, ?4 FROM carray(?1)
"""

_LEASE_AGAIN = """
UPDATE delivery
SET state = 1, visible_at_ms = ?2, leased_at_ms = ?3, receipt = receipt + 1, receive_count = receive_count + 1,
    holder = 0, first_received_at_ms = coalesce(first_received_at_ms, ?3)
WHERE position = ?1
"""

_HOLD = "UPDATE delivery SET holder = ?2 WHERE position = ?1"

_HIDE = "UPDATE delivery SET state = ?2, visible_at_ms = ?3, holder = ?4 WHERE position = ?1"

_UNDO = """
UPDATE delivery
SET state = 0, visible_at_ms = ?2, receipt = receipt + 1, receive_count = receive_count - 1,
    first_received_at_ms = CASE WHEN receive_count > 1 THEN first_received_at_ms END
WHERE position = ?1
"""

_DUE = """
SELECT position, state, group_id, visible_at_ms FROM delivery
WHERE partition = ? AND state > 0 AND visible_at_ms <= ?
ORDER BY visible_at_ms LIMIT ?
"""

_SHOW = "UPDATE delivery SET state = 0 WHERE position IN (SELECT value FROM carray(?))"

_NEXT_DUE = "SELECT min(visible_at_ms) FROM delivery WHERE partition = ? AND state > 0"

_COUNT_DUE = """
SELECT coalesce(sum(state = 1), 0), coalesce(sum(state = 2), 0) FROM delivery
WHERE partition = ? AND state > 0 AND visible_at_ms > ? AND visible_at_ms <= ?
"""


Gone = tuple[int, int | None, int | None]
"""A message to be removed: its position, its state (None if there is no delivery) and its group id."""


class Delivery(NamedTuple):
    """What is known of a message's delivery, without the message."""

    position: int
    state: int
    visible_at_ms: int
    leased_at_ms: int | None
    receipt: int
    receive_count: int
    group_id: int | None
    holder: int | None


class _CountedDue:
    """How many deliveries in states 1 and 2 came due by `until_ms` and are not settled, so that none is counted twice.

    It is forgotten when one of them may have changed in another way than by being settled.
    """

    __slots__ = ("by_state", "contents", "until_ms")

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        """Those of another transaction, if that one was rolled back; then this is worth nothing."""
        self.until_ms = -1
        self.by_state = [0, 0, 0]


class Deliveries:
    """The deliveries of all queues. Every change goes through here, so that counters and groups stay right."""

    def __init__(self, transaction: Transaction, groups: Groups, *, rows_max: int) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._groups = groups
        self._rows_max = rows_max
        self._counted_due: dict[int, _CountedDue] = {}

    def find(self, positions: Sequence[int]) -> dict[int, Delivery]:
        """Look deliveries up; those that are gone are missing from the answer."""
        if not positions:
            return {}
        return {row[0]: Delivery._make(row) for row in self._db.execute(_FIND, (array_of(positions),))}

    def lease_fresh(self, contents: Contents, positions: Sequence[int], lease_ms: int) -> None:
        """Lease messages that have no delivery yet."""
        now_ms = self._transaction.now_ms
        self._db.execute(_LEASE_FRESH, (array_of(positions), contents.partition, now_ms + lease_ms, now_ms))
        contents.leased += len(positions)
        self._note_leases(contents, lease_ms)

    def lease_again(self, contents: Contents, taken: Iterable[tuple[int, int, int | None]], lease_ms: int) -> None:
        """Lease messages that have a delivery: position, state and group id of each. Their groups are not refreshed."""
        now_ms = self._transaction.now_ms
        positions = []
        for position, state, group_id in taken:
            positions.append(position)
            contents.count(state, group_id, -1)
            if state != VISIBLE:
                self._forget_due(contents)
        self._db.executemany(_LEASE_AGAIN, [(position, now_ms + lease_ms, now_ms) for position in positions])
        contents.leased += len(positions)
        self._note_leases(contents, lease_ms)

    def hide(
        self, contents: Contents, delivery: Delivery, visible_at_ms: int, *, holder: int | None = None
    ) -> Delivery:
        """Hide a message until an instant; one that has come makes it visible. Return the delivery as it is now.

        `holder` may give it back from now on; without one, nobody may.
        """
        state = LEASED if visible_at_ms > self._transaction.now_ms else VISIBLE
        self._db.execute(_HIDE, (delivery.position, state, visible_at_ms, holder))
        self._move(contents, delivery, state)
        if state == LEASED:
            contents.expect(visible_at_ms)
        if visible_at_ms < delivery.visible_at_ms:
            self._transaction.wake(contents.queue_id, 1)
        return delivery._replace(state=state, visible_at_ms=visible_at_ms, holder=holder)

    def hold(self, positions: Iterable[int], retry: int) -> None:
        """Make a retry the holder of what it has leased."""
        self._db.executemany(_HOLD, [(position, retry) for position in positions])

    def undo(self, contents: Contents, delivery: Delivery) -> None:
        """Make a delivery not to have been: visible at once, not counted, and its receipt not the last one any more."""
        self._db.execute(_UNDO, (delivery.position, self._transaction.now_ms))
        self._move(contents, delivery, VISIBLE)
        self._transaction.wake(contents.queue_id, 1)

    def remove(self, contents: Contents, gone: Iterable[Gone]) -> None:
        """Remove messages of one queue."""
        self.remove_all([(contents, gone)])

    def remove_all(self, gone_of: Iterable[tuple[Contents, Iterable[Gone]]]) -> None:
        """Remove messages of several queues."""
        positions: list[int] = []
        tracked: list[int] = []
        changed: list[tuple[Contents, dict[int, list[int]]]] = []
        for contents, gone in gone_of:
            groups: dict[int, list[int]] = {}
            for position, state, group_id in gone:
                positions.append(position)
                contents.messages -= 1
                if state is None:
                    continue
                tracked.append(position)
                contents.count(state, group_id, -1)
                self._forget_due(contents)
                if group_id is not None:
                    groups.setdefault(group_id, [0, 0, 0])[state] -= 1
            changed.append((contents, groups))
        if tracked:
            self._db.execute(
                "DELETE FROM delivery WHERE position IN (SELECT value FROM carray(?))", (array_of(tracked),)
            )
        if positions:
            self._db.execute(
                "DELETE FROM message WHERE position IN (SELECT value FROM carray(?))", (array_of(positions),)
            )
        for contents, groups in changed:
            self._groups.refresh(contents, groups)

    def settle(self, contents: Contents) -> None:
        """Make visible what has come due, up to a bound; `contents.next_due_ms` tells whether more has.

        It goes by the order of time, so that what is settled was due before what is not.
        """
        now_ms = self._transaction.now_ms
        due = list(self._db.execute(_DUE, (contents.partition, now_ms, self._rows_max)))
        if due:
            self._db.execute(_SHOW, (array_of(row[0] for row in due),))
            counted = self._counted_due.get(contents.queue_id)
            groups: dict[int, list[int]] = {}
            for _, state, group_id, visible_at_ms in due:
                contents.count(state, group_id, -1)
                contents.count(VISIBLE, group_id, 1)
                if counted is not None and visible_at_ms <= counted.until_ms:
                    counted.by_state[state] -= 1
                # A FIFO group knew all along when it would be ready.
                if group_id is not None and not contents.fifo:
                    change = groups.setdefault(group_id, [0, 0, 0])
                    change[state] -= 1
                    change[VISIBLE] += 1
            self._groups.refresh(contents, groups)
        contents.next_due_ms = self._db.execute(_NEXT_DUE, (contents.partition,)).get
        if contents.next_due_ms is None or contents.next_due_ms > now_ms:
            self._forget_due(contents)

    def count_due(self, contents: Contents) -> tuple[int, int]:
        """Count leased and delayed messages that have come due but are not settled: all at first, then the new ones."""
        now_ms = self._transaction.now_ms
        counted = self._counted_due.get(contents.queue_id)
        if counted is None or counted.contents is not contents:
            if len(self._counted_due) >= COUNTED_DUE_MAX:
                self._counted_due.clear()
            counted = self._counted_due[contents.queue_id] = _CountedDue(contents)
        leased, delayed = self._db.execute(_COUNT_DUE, (contents.partition, counted.until_ms, now_ms)).get
        counted.by_state[LEASED] += leased
        counted.by_state[DELAYED] += delayed
        counted.until_ms = now_ms
        return counted.by_state[LEASED], counted.by_state[DELAYED]

    def _note_leases(self, contents: Contents, lease_ms: int) -> None:
        contents.expect(self._transaction.now_ms + lease_ms)
        if lease_ms == 0:
            self._forget_due(contents)

    def _forget_due(self, contents: Contents) -> None:
        self._counted_due.pop(contents.queue_id, None)

    def _move(self, contents: Contents, delivery: Delivery, state: int) -> None:
        contents.count(delivery.state, delivery.group_id, -1)
        contents.count(state, delivery.group_id, 1)
        self._forget_due(contents)
        # A lease that becomes longer or shorter may change when a FIFO group is ready, and nothing for another.
        if delivery.group_id is not None and (contents.fifo or state != delivery.state):
            change = [0, 0, 0]
            change[delivery.state] -= 1
            change[state] += 1
            self._groups.refresh(contents, {delivery.group_id: change})
