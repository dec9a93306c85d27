"""Counters, cursors and groups agree with the rows they stand for, whatever happened, and survive a restart."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from penstock.domain.limits import Limits
from penstock.domain.message import Draft, Message, VisibilityChange
from penstock.domain.queue import Counts, Queue
from penstock.store.sqlite import SqliteStore, deliveries
from penstock.testing import ManualClock
from tests.support.queues import (
    attempt_key,
    bodies,
    counts,
    dead_letters_to,
    delete,
    draft,
    lease,
    lease_bodies,
    make_queue,
    receipt_of,
    release,
    send,
)
from tests.unit.store.sqlite.conftest import OpenStore

RECOUNT = """
SELECT q.name, q.partition,
    (SELECT count(*) FROM message WHERE position >> 43 = q.partition),
    (SELECT count(*) FROM delivery WHERE partition = q.partition AND state = 1),
    (SELECT count(*) FROM delivery WHERE partition = q.partition AND state = 2),
    (SELECT count(*) FROM delivery WHERE partition = q.partition AND state = 0 AND group_id IS NULL),
    (SELECT count(DISTINCT group_id) FROM delivery WHERE partition = q.partition)
FROM queue AS q ORDER BY q.name
"""

BOOKED = """
SELECT q.name, q.partition, c.messages, c.leased, c.delayed, c.returned, c.groups
FROM queue AS q JOIN contents AS c ON c.partition = q.partition ORDER BY q.name
"""

STRAY = """
SELECT count(*) FROM delivery AS d
WHERE NOT EXISTS (SELECT 1 FROM message AS m WHERE m.position = d.position) OR d.partition <> d.position >> 43
"""

LOST = """
SELECT count(*) FROM message AS m
    JOIN queue AS q ON q.partition = m.position >> 43 JOIN contents AS c ON c.partition = q.partition
WHERE m.position <= c.cursor AND NOT EXISTS (SELECT 1 FROM delivery AS d WHERE d.position = m.position)
"""

FAIR_GROUPS = """
SELECT count(*) FROM message_group AS g
WHERE id > 0 AND partition IN (SELECT partition FROM queue) AND (
    head IS NOT (SELECT min(position) FROM delivery WHERE group_id = g.id AND state = 0)
    OR in_flight <> (SELECT count(*) FROM delivery WHERE group_id = g.id AND state = 1)
    OR delayed <> (SELECT count(*) FROM delivery WHERE group_id = g.id AND state = 2)
    OR ready_at_ms IS NOT NULL)
"""

FIFO_GROUPS = """
SELECT count(*) FROM message_group AS g
WHERE id < 0 AND partition IN (SELECT partition FROM queue) AND (
    head IS NOT (SELECT min(position) FROM delivery WHERE group_id = g.id)
    OR ready_at_ms IS NOT (SELECT visible_at_ms FROM delivery WHERE position = g.head))
"""

KINDS = """
SELECT count(*) FROM message_group AS g JOIN queue AS q ON q.partition = g.partition
WHERE (g.id < 0) <> (q.name LIKE '%.fifo')
"""


def check_books(path: Path) -> None:
    """Compare everything that is counted with the rows, in a file that no store has open."""
    db = apsw.Connection(str(path))
    assert db.execute(BOOKED).fetchall() == db.execute(RECOUNT).fetchall()
    assert db.execute(STRAY).get == 0, "a delivery without its message, or in a wrong partition"
    assert db.execute(LOST).get == 0, "a message behind the cursor that nobody will ever find"
    assert db.execute(FAIR_GROUPS).get == 0, "a group whose head or number in flight is wrong"
    assert db.execute(FIFO_GROUPS).get == 0, "a group whose head is wrong, or that is not ready when its head is"
    assert db.execute(KINDS).get == 0, "a group of one kind of queue in another"
    assert db.pragma("integrity_check") == "ok"
    db.close()


class Client:
    """Does a random thing at a time with one of the queues."""

    def __init__(self, store: SqliteStore, queues: list[Queue], chance: random.Random) -> None:
        self.store = store
        self.queues = queues
        self.chance = chance
        self.held: list[tuple[Queue, Message]] = []

    def draft(self, queue: Queue) -> Draft:
        group = self.chance.choice(("a", "b", "c"))
        if queue.fifo:
            delay_ms = self.chance.choice((0, 0, 2_000))
            return draft("x", group=group, deduplication_id=self.chance.choice((None, "1", "2")), delay_ms=delay_ms)
        fields: dict[str, Any] = {"group": self.chance.choice((None, None, group))}
        return draft("x", delay_ms=self.chance.choice((0, 0, 2_000)), **fields)

    async def act(self) -> None:
        queue = self.chance.choice(self.queues)
        deed = self.chance.randrange(10)
        attempt = self.chance.choice((None, attempt_key(str(self.chance.randrange(20)))))
        if deed < 4:
            drafts = [self.draft(queue) for _ in range(self.chance.randrange(1, 5))]
            await self.store.append(queue, drafts, attempt=attempt)
        elif deed < 7:
            lease_ms = self.chance.choice((0, 1_000, 30_000))
            leased = await self.store.lease(queue, count=5, lease_ms=lease_ms, attempt=attempt)
            self.held += [(queue, message) for message in leased.messages]
        elif self.held:
            queue, message = self.held.pop(self.chance.randrange(len(self.held)))
            receipt = receipt_of(queue, message)
            if deed == 7:
                await self.store.change_visibility(queue, [VisibilityChange(receipt, self.chance.choice((0, 5_000)))])
            elif deed == 8:
                await self.store.release(queue, [receipt])
            else:
                await self.store.delete(queue, [receipt, receipt])


@pytest.mark.parametrize("seed", range(4))
async def test_the_books_agree_with_the_rows_after_any_work(
    path: Path, open_store: OpenStore, clock: ManualClock, seed: int
) -> None:
    chance = random.Random(seed)
    limits = Limits(sweep_rows_max=7, purge_interval_ms=0, in_flight_standard_max=30)
    store = await open_store(limits=limits)
    queues = [
        await make_queue(store, "dead", retention_s=120),
        await make_queue(store, "work", redrive=dead_letters_to("dead", after=2), retention_s=90),
        await make_queue(store, "work.fifo", retention_s=90),
    ]
    for _ in range(3):
        clients = [Client(store, queues, chance) for _ in range(8)]
        for _ in range(40):
            await asyncio.gather(*(client.act() for client in clients), return_exceptions=True)
            await clock.advance(ms=chance.choice((0, 100, 3_000)))
            if chance.random() < 0.2:
                await store.sweep()
            if chance.random() < 0.5:
                await asyncio.gather(*(store.count_messages(queue) for queue in queues))
        if chance.random() < 0.5:
            await store.purge_queue(chance.choice(queues))
        before = [await store.count_messages(queue) for queue in queues]
        await store.close()
        check_books(path)
        store = await open_store(limits=limits)
        assert [await store.count_messages(queue) for queue in queues] == before


async def test_a_restart_goes_on_where_the_last_lease_stopped(open_store: OpenStore) -> None:
    store = await open_store()
    queue = await make_queue(store)
    await send(store, queue, *"abcdef")
    first = await lease(store, queue, 2)
    await delete(store, queue, first[0])
    await store.close()
    store = await open_store()
    assert await counts(store, queue) == (4, 1, 0)
    assert await lease_bodies(store, queue, 2) == ["c", "d"]


async def test_a_purge_gives_a_new_partition_and_the_sweeper_frees_the_old_one(
    path: Path, open_store: OpenStore, clock: ManualClock
) -> None:
    store = await open_store(limits=Limits(purge_interval_ms=0))
    orders, bills = await make_queue(store, "orders"), await make_queue(store, "bills")
    used = set()
    for turn in range(5):
        await send(store, orders, *(f"{turn}.{number}" for number in range(3)))
        [old, *_] = await lease(store, orders)
        used.add(old.position >> 43)
        await store.purge_queue(orders)
        assert await counts(store, orders) == (0, 0, 0)
        while await store.sweep():
            pass
        await send(store, bills, f"bill {turn}")
        assert await delete(store, orders, old) == [None]
    assert len(used) == 2, "two numbers are used in turn"
    assert await lease_bodies(store, bills) == [f"bill {turn}" for turn in range(5)]
    await store.close()
    check_books(path)


async def test_a_receipt_from_before_a_purge_touches_nothing_swept_or_not(
    path: Path, open_store: OpenStore, clock: ManualClock
) -> None:
    store = await open_store()
    orders = await make_queue(store, "orders")
    await send(store, orders, "order")
    old = await lease(store, orders)
    await store.purge_queue(orders)
    assert await delete(store, orders, *old) == [None]
    assert await counts(store, orders) == (0, 0, 0)
    while await store.sweep():
        pass
    bills = await make_queue(store, "bills")
    await send(store, bills, "bill")
    [bill] = await lease(store, bills)
    assert (bill.position, bill.receipt) == (old[0].position, old[0].receipt), "the number is used again"
    assert await delete(store, orders, *old) == [None]
    assert await counts(store, bills) == (0, 1, 0)
    await store.close()
    check_books(path)


async def test_a_number_that_is_not_swept_is_not_used_again(open_store: OpenStore) -> None:
    store = await open_store(limits=Limits(purge_interval_ms=0, sweep_rows_max=2))
    orders = await make_queue(store, "orders")
    await send(store, orders, *"abcdef")
    await store.purge_queue(orders)
    assert await store.sweep(), "six messages take more than one pass of two"
    late = await make_queue(store, "late")
    assert await counts(store, late) == (0, 0, 0)
    assert await lease(store, late) == []


async def test_sequence_numbers_go_on_through_purges_and_restarts(open_store: OpenStore) -> None:
    store = await open_store(limits=Limits(purge_interval_ms=0))
    queue = await make_queue(store, "orders.fifo")
    sequences = []
    for turn in range(4):
        [sent] = await send(store, queue, str(turn))
        sequences.append(sent.sequence)
        await store.purge_queue(queue)
        await store.close()
        store = await open_store(limits=Limits(purge_interval_ms=0))
    assert sequences == [1, 2, 3, 4]


async def test_large_bodies_are_swept_a_few_at_a_time(open_store: OpenStore) -> None:
    store = await open_store()
    queue = await make_queue(store)
    for _ in range(20):
        await send(store, queue, "x" * 1_000_000)
    await store.purge_queue(queue)
    passes = 1
    while await store.sweep():
        passes += 1
    assert passes >= 3


async def test_more_than_one_pass_comes_due_at_once(open_store: OpenStore, clock: ManualClock) -> None:
    store = await open_store(limits=Limits(sweep_rows_max=3))
    queue = await make_queue(store)
    await send(store, queue, *"abcdefgh", delay_ms=1_000)
    await clock.advance(seconds=1)
    assert await counts(store, queue) == (8, 0, 0), "a count is exact, settled or not"
    found: list[str] = []
    while len(found) < 8:
        leased = await store.lease(queue, count=10, lease_ms=30_000)
        found += bodies(leased.messages)
        assert len(found) == 8 or leased.next_in_ms == 0
    assert sorted(found) == list("abcdefgh")


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
async def test_counts_are_exact_while_much_comes_due(open_store: OpenStore, clock: ManualClock, name: str) -> None:
    store = await open_store(limits=Limits(sweep_rows_max=3))
    queue = await make_queue(store, name)
    for number in range(20):
        await send(store, queue, str(number), group=str(number))
        await send(store, queue, str(number), group=f"delayed {number}", delay_ms=10_000 + number)
    leased = await lease(store, queue, 12, lease_ms=10_000)
    leased += await lease(store, queue, 8, lease_ms=10_010)
    await clock.advance(ms=9_999)
    assert await counts(store, queue) == (0, 20, 20)
    await clock.advance(ms=1)
    assert await counts(store, queue) == (13, 8, 19)
    await clock.advance(ms=9)
    assert await counts(store, queue) == (22, 8, 10)
    await delete(store, queue, leased[-1])
    assert await counts(store, queue) == (22, 7, 10)
    await clock.advance(ms=1)
    assert await counts(store, queue) == (30, 0, 9)
    [again] = await lease(store, queue, 1, lease_ms=0)
    assert await counts(store, queue) == (30, 0, 9)
    assert again.receive_count >= 1
    await clock.advance(ms=9)
    assert await counts(store, queue) == (39, 0, 0)


async def lapse(store: SqliteStore, clock: ManualClock, queue: Queue) -> list[Message]:
    """Let six leases run out and be counted, of which hardly any is settled."""
    for group in "abcdef":
        await send(store, queue, group, group=group)
    leased = await lease(store, queue, 6, lease_ms=1_000)
    await clock.advance(seconds=1)
    assert await counts(store, queue) == (6, 0, 0)
    return leased


async def test_counts_follow_what_is_deleted_or_released_after_its_lease(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = await open_store(limits=Limits(sweep_rows_max=1))
    for name in ("deleted", "released"):
        queue = await make_queue(store, name)
        *_, last = await lapse(store, clock, queue)
        if name == "deleted":
            await delete(store, queue, last)
        else:
            await release(store, queue, last)
        assert await counts(store, queue) == (5 if name == "deleted" else 6, 0, 0)


async def test_counts_follow_what_is_leased_again_before_it_is_settled(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = await open_store(limits=Limits(sweep_rows_max=1))
    queue = await make_queue(store, "orders.fifo")
    await lapse(store, clock, queue)
    assert len(await lease(store, queue, 4)) == 4
    assert await counts(store, queue) == (2, 4, 0)


async def test_counts_follow_a_transaction_that_was_rolled_back(open_store: OpenStore, clock: ManualClock) -> None:
    store = await open_store(limits=Limits(sweep_rows_max=1))
    queue = await make_queue(store)
    await lapse(store, clock, queue)
    counted, broken = await asyncio.gather(
        store.count_messages(queue), store.append(queue, [draft("\ud800")]), return_exceptions=True
    )
    assert isinstance(broken, UnicodeEncodeError)
    assert counted == Counts(visible=6, in_flight=0, delayed=0)


async def test_what_came_due_is_counted_once(
    open_store: OpenStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(limits=Limits(sweep_rows_max=1))
    queue = await make_queue(store)
    await send(store, queue, *"abcdefgh", delay_ms=1_000)
    await clock.advance(seconds=1)
    assert await counts(store, queue) == (8, 0, 0)
    # Whatever is looked for from now on is not found: the count has to know of the others.
    monkeypatch.setattr(deliveries, "_COUNT_DUE", "SELECT 0, 0 WHERE coalesce(?, ?, ?) IS NOT NULL")
    for _ in range(3):
        assert await counts(store, queue) == (8, 0, 0)


@pytest.mark.parametrize(("name", "group"), [("dead", None), ("dead", "g"), ("dead.fifo", "g")])
async def test_large_bodies_are_moved_a_few_at_a_time(open_store: OpenStore, name: str, group: str | None) -> None:
    store = await open_store()
    dead = await make_queue(store, name)
    orders = await make_queue(store, name.replace("dead", "orders"))
    for _ in range(12):
        await send(store, dead, "x" * 1_048_576, group=group)
    await store.start_move("task", dead, orders, None)
    assert await store.advance_moves() == 0
    assert await counts(store, orders) == (8, 0, 0)
    assert await store.advance_moves() is None
    assert await counts(store, orders) == (12, 0, 0)


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
async def test_large_bodies_expire_a_few_at_a_time(
    path: Path, open_store: OpenStore, clock: ManualClock, name: str
) -> None:
    store = await open_store()
    queue = await make_queue(store, name, retention_s=60)
    for _ in range(40):
        await send(store, queue, "x" * 1_048_576)
    await clock.advance(seconds=60)
    leased = await store.lease(queue, count=10, lease_ms=1_000)
    assert (leased.messages, leased.next_in_ms) == ([], 0)
    await store.close()
    db = apsw.Connection(str(path))
    assert 15 <= db.execute("SELECT count(*) FROM message").get < 40
    db.close()
