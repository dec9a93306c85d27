"""Leases from standard queues with groups: whoever has fewest messages in flight is served first."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from penstock.store.sqlite.connection import array_of
from penstock.store.sqlite.positions import sequence_of
from penstock.store.sqlite.rows import ROW_COLUMNS, ROWS_PER_PAGE, Row, leased_message

if TYPE_CHECKING:
    from penstock.domain.message import Message
    from penstock.store.sqlite.deliveries import Deliveries
    from penstock.store.sqlite.groups import Groups
    from penstock.store.sqlite.screen import Screen
    from penstock.store.sqlite.standard import Ungrouped
    from penstock.store.sqlite.transaction import Transaction

_FAIREST = """
SELECT g.id, g.name, g.in_flight, g.head,
    (SELECT min(position) FROM delivery WHERE group_id = g.id AND group_id > 0 AND state = 0 AND position > g.head)
FROM message_group AS g
WHERE g.partition = ?1 AND g.ready_at_ms IS NULL AND g.head IS NOT NULL AND (g.in_flight, g.head) > (?2, ?3)
ORDER BY g.in_flight, g.head LIMIT ?4
"""

_FOLLOWING = """
SELECT position FROM delivery WHERE group_id = ? AND group_id > 0 AND state = 0 AND position > ?
ORDER BY position LIMIT ?
"""

_READ = f"""
SELECT {ROW_COLUMNS}
FROM carray(?) AS wanted
    CROSS JOIN delivery AS d ON d.position = wanted.value
    CROSS JOIN message AS m ON m.position = d.position
"""  # noqa: S608  # The columns are our own text.


class _Tenant:
    """A group with visible messages: how many would be in flight, and what is left, if all that is picked were leased.

    `taken` says how many of them were.
    """

    __slots__ = ("group_id", "in_flight", "name", "taken", "waiting")

    def __init__(self, group_id: int, name: str, in_flight: int, waiting: list[int]) -> None:
        self.group_id = group_id
        self.name = name
        self.in_flight = in_flight
        self.waiting = deque(waiting)
        self.taken = 0


class Fair:
    """The visible messages of a standard queue, with and without groups, for one run of leases.

    Those with groups are picked ahead, in the order in which they are to be leased, and read together. What is picked
    but not taken stays as it was.
    """

    def __init__(
        self, transaction: Transaction, deliveries: Deliveries, groups: Groups, screen: Screen, ungrouped: Ungrouped
    ) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._deliveries = deliveries
        self._groups = groups
        self._screen = screen
        self._contents = screen.contents
        self._ungrouped = ungrouped
        self._tenants: dict[int, _Tenant] = {}
        self._urgent: list[tuple[int, int, _Tenant]] = []
        """The tenants with something waiting, as a heap by how many are in flight and what is first."""
        self._fetched_to = (-1, -1)
        self._fetched_all = False
        self._picked: deque[tuple[int, Row, _Tenant]] = deque()
        self._taken: dict[int, list[tuple[int, int, int | None]]] = {}
        self._unsaved = 0

    @property
    def unsaved(self) -> int:
        """How many messages were leased since the last `save`."""
        return self._unsaved + self._ungrouped.unsaved

    def lease(self, count: int, lease_ms: int, ahead: int) -> list[Message]:
        """Lease up to `count`, one after the other: each makes its group less urgent."""
        messages: list[Message] = []
        now_ms = self._transaction.now_ms
        taken = self._taken.setdefault(lease_ms, [])
        while len(messages) < count:
            if not self._picked:
                self._pick(ahead - len(messages))
            plain = self._ungrouped.peek()
            if not self._picked:
                messages += self._ungrouped.lease(count - len(messages), lease_ms, ahead)
                break
            in_flight, row, tenant = self._picked[0]
            # Messages without a group count as a group with nothing in flight.
            if plain is not None and (0, sequence_of(plain[0])) < (in_flight, sequence_of(row[0])):
                messages += self._ungrouped.lease(1, lease_ms, 1)
                continue
            self._picked.popleft()
            tenant.taken += 1
            self._unsaved += 1
            taken.append((row[0], row[8] or 0, tenant.group_id))
            messages.append(leased_message(row, now_ms, tenant.name))
        if taken and lease_ms:
            self._contents.expect(now_ms + lease_ms)
        return messages

    def save(self) -> None:
        """Write the leases."""
        self._ungrouped.save()
        for lease_ms, taken in self._taken.items():
            if taken:
                self._deliveries.lease_again(self._contents, taken, lease_ms)
        # What was picked in vain is waiting again.
        for _, row, tenant in reversed(self._picked):
            tenant.waiting.appendleft(row[0])
        self._groups.serve(
            [
                (tenant.taken, tenant.waiting[0] if tenant.waiting else None, tenant.group_id)
                for tenant in self._tenants.values()
                if tenant.taken
            ]
        )
        self._picked.clear()
        self._taken.clear()
        self._tenants.clear()
        self._urgent.clear()
        self._unsaved = 0

    def _pick(self, wanted: int) -> None:
        """Pick up to `wanted` messages that may be delivered."""
        while wanted > 0 and not self._screen.cut:
            chosen: list[tuple[int, int, _Tenant]] = []
            while len(chosen) < wanted and (urgent := self._most_urgent(wanted)) is not None:
                chosen.append(urgent)
            if not chosen:
                return
            rows: list[Row] = self._db.execute(_READ, (array_of(one[1] for one in chosen),)).fetchall()  # type: ignore[assignment]  # As its columns.
            picked = len(self._picked)
            for (in_flight, _, tenant), row in zip(chosen, rows, strict=True):
                if good := self._screen.sift([row], tenant.name):
                    self._picked.append((in_flight, good[0], tenant))
                else:
                    tenant.in_flight -= 1
            picked = len(self._picked) - picked
            if picked < len(chosen):
                self._order()
            wanted -= picked

    def _most_urgent(self, wanted: int) -> tuple[int, int, _Tenant] | None:
        """Take the next message of the tenant that has fewest in flight, the older one among equals."""
        urgent = self._urgent
        # Nobody who is not fetched yet comes before the last one who is.
        while not self._fetched_all and not (urgent and urgent[0][:2] <= self._fetched_to):
            self._fetch(wanted)
        if not urgent:
            return None
        first = heappop(urgent)
        _, position, tenant = first
        tenant.in_flight += 1
        tenant.waiting.popleft()
        if not tenant.waiting:
            tenant.waiting.extend(
                row[0] for row in self._db.execute(_FOLLOWING, (tenant.group_id, position, ROWS_PER_PAGE))
            )
        if tenant.waiting:
            heappush(urgent, (tenant.in_flight, tenant.waiting[0], tenant))
        return first

    def _fetch(self, count: int) -> None:
        """Fetch the next tenants, in their order."""
        rows: list[tuple[int, str, int, int, int | None]] = self._db.execute(
            _FAIREST, (self._contents.partition, *self._fetched_to, count)
        ).fetchall()  # type: ignore[assignment]  # As its columns.
        for group_id, name, in_flight, head, following in rows:
            self._fetched_to = (in_flight, head)
            if group_id in self._tenants:
                continue  # It lost what could not be delivered, and so has another place.
            tenant = _Tenant(group_id, name, in_flight, [head] if following is None else [head, following])
            self._tenants[group_id] = tenant
            heappush(self._urgent, (in_flight, head, tenant))
        self._fetched_all = len(rows) < count

    def _order(self) -> None:
        """Order the tenants anew, because some have fewer in flight than was thought."""
        self._urgent = [
            (tenant.in_flight, tenant.waiting[0], tenant) for tenant in self._tenants.values() if tenant.waiting
        ]
        heapify(self._urgent)
