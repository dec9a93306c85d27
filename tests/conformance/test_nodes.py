"""Several nodes on one PostgreSQL: they agree on everything, and hear of each other."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from penstock.domain.clock import SystemClock
from penstock.domain.errors import QueueDoesNotExist
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import IdSource
from penstock.domain.limits import Limits
from penstock.domain.queue import QueueAttributes
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    attempt_key,
    bodies,
    change_queue,
    counts,
    delete,
    draft,
    lease,
    lease_bodies,
    make_queue,
    on_both_kinds,
    queue_name,
    send,
)
from tests.support.stores import Home, Opener, on_postgres

pytestmark = on_postgres
KEY = attempt_key("send")


@pytest.fixture
async def other(home: Home, store: Store) -> Store:
    """Another node on the database of `store`."""
    return await home.open()


@on_both_kinds
async def test_what_one_node_stores_another_delivers_and_deletes(store: Store, other: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    leased = await lease(other, await other.find_queue(queue.name))
    assert bodies(leased) == ["a", "b"]
    assert await lease(store, queue) == []
    assert await delete(store, queue, leased[0]) == [None]
    assert await delete(other, queue, leased[1]) == [None]
    assert await counts(store, queue) == await counts(other, queue) == (0, 0, 0)


@on_both_kinds
async def test_a_count_at_one_node_includes_what_another_was_told_is_stored(home: Home, name: str) -> None:
    nodes = [await home.open(clock=SystemClock()) for _ in range(2)]
    queue = await make_queue(nodes[0], name)
    for sent in range(1, 11):
        await send(nodes[sent % 2], queue, str(sent), group=str(sent))
        assert [await counts(node, queue) for node in nodes] == [(sent, 0, 0)] * 2


@on_both_kinds
async def test_nodes_share_out_the_messages(store: Store, other: Store, name: str) -> None:
    queue = await make_queue(store, name)
    texts = [f"{number:03}" for number in range(60)]
    await send(store, queue, *(draft(text, group=text) for text in texts))
    given = await asyncio.gather(*(lease(node, queue, 3) for node in [store, other] * 15))
    assert sorted(bodies(list(itertools.chain(*given)))) == texts


async def test_a_group_is_with_one_node_at_a_time(store: Store, other: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", "b", "c")
    given = await asyncio.gather(*(lease_bodies(node, queue, 2) for node in [store, other] * 5))
    assert sorted(given, reverse=True) == [["a", "b"]] + [[]] * 9


async def test_order_holds_for_a_group_that_both_nodes_send_to(store: Store, other: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    for number in range(10):
        await send([store, other][number % 2], queue, str(number))
    assert await lease_bodies(other, queue) == [str(number) for number in range(10)]


@on_both_kinds
async def test_a_retry_at_another_node_is_the_first_send_again(store: Store, other: Store, name: str) -> None:
    queue = await make_queue(store, name)
    first = await store.append(queue, [draft("a", group="g")], attempt=KEY)
    assert await other.outcome(KEY) == first
    assert await other.append(queue, [draft("a", group="g")], attempt=KEY) == first
    assert await counts(store, queue) == (1, 0, 0)


@on_both_kinds
async def test_attempts_at_both_nodes_at_the_same_time_are_one(store: Store, other: Store, name: str) -> None:
    queue = await make_queue(store, name)
    calls = (node.append(queue, [draft("a", group="g")], attempt=KEY) for node in [store, other] * 5)
    answers = await asyncio.gather(*calls)
    assert answers == [answers[0]] * 10
    assert await counts(store, queue) == (1, 0, 0)


async def test_duplicates_at_both_nodes_at_the_same_time_are_one(store: Store, other: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    answers = await asyncio.gather(*(send(node, queue, "a", deduplication_id="1") for node in [store, other] * 5))
    assert answers == [answers[0]] * 10
    assert await counts(store, queue) == (1, 0, 0)


async def test_a_queue_made_at_both_nodes_at_the_same_time_is_one(store: Store, other: Store) -> None:
    name = queue_name("orders")
    made = await asyncio.gather(*(node.create_queue(name, QueueAttributes(), {}) for node in [store, other] * 5))
    assert sorted(created for _, created in made) == [False] * 9 + [True]
    assert len({queue.id for queue, _ in made}) == 1


async def test_a_change_at_another_node_is_found_soon(store: Store, other: Store) -> None:
    queue = await make_queue(store)
    assert await other.find_queue(queue.name) == queue
    changed = await change_queue(store, queue, delay_s=1)
    async with asyncio.timeout(30):
        while await other.find_queue(queue.name) != changed:
            await other.ping()


async def test_a_queue_deleted_at_another_node_takes_no_messages(store: Store, other: Store) -> None:
    queue = await make_queue(store)
    await send(other, await other.find_queue(queue.name), "a")
    await store.delete_queue(queue)
    with pytest.raises(QueueDoesNotExist):
        await send(other, queue, "b")
    with pytest.raises(QueueDoesNotExist):
        await lease(other, queue)


@on_both_kinds
async def test_a_purge_at_another_node_is_seen_at_once(store: Store, other: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "before", group="1")
    assert await counts(store, queue) == (1, 0, 0)
    await other.purge_queue(queue)
    await send(store, queue, "after", group="2")
    assert await counts(store, queue) == (1, 0, 0)
    assert await lease_bodies(store, queue) == ["after"]


@on_both_kinds
async def test_a_send_at_another_node_is_heard(store: Store, other: Store, name: str) -> None:
    queue = await make_queue(store, name)
    heard = asyncio.Event()
    other.listen(lambda queue_id, count: heard.set() if queue_id == queue.id else None)
    await send(store, queue, "a")
    async with asyncio.timeout(30):
        await heard.wait()


@on_both_kinds
async def test_steps_of_a_move_at_both_nodes_keep_to_its_rate(
    store: Store, other: Store, clock: ManualClock, name: str
) -> None:
    dead, queue = await make_queue(store, name.replace("orders", "dead")), await make_queue(store, name)
    texts = [str(number) for number in range(5)]
    await send(store, dead, *texts)
    await store.start_move("task", dead, queue, 1)
    for moved in range(1, 6):
        await asyncio.gather(*(node.advance_moves() for node in [store, other] * 3))
        [task] = await other.list_moves(dead, limit=1)
        assert task.moved == moved
        await clock.advance(seconds=1)
    assert await lease_bodies(store, queue) == texts


async def test_nodes_that_sweep_at_the_same_time_do_not_get_in_each_others_way(store: Store, other: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, *(str(number) for number in range(50)))
    await store.purge_queue(queue)
    await send(store, queue, "live")
    await asyncio.gather(*(node.sweep() for node in [store, other] * 3))
    assert await lease_bodies(store, queue) == ["live"]


async def test_nodes_may_open_a_new_database_at_the_same_time(
    another_opener: Opener, clock: ManualClock, ids: IdSource, limits: Limits
) -> None:
    calls = (another_opener(clock=clock, ids=ids, limits=limits, failpoints=Failpoints()) for _ in range(4))
    nodes = await asyncio.gather(*calls)
    secrets = {node.secret for node in nodes}
    for node in nodes:
        await node.close()
    assert len(secrets) == 1
