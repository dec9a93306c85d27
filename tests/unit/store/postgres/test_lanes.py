"""Coalescing: what waits at the same time goes together, and what one operation raises stays with it."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from penstock.domain.errors import QueueDoesNotExist, StoreUnavailable
from penstock.domain.limits import Limits
from penstock.domain.message import Receipt, Sent, VisibilityChange
from penstock.store.port import Store
from tests.support.postgres import PostgresServer
from tests.support.queues import (
    bodies,
    counts,
    draft,
    lease,
    lease_bodies,
    make_queue,
    on_both_kinds,
    receipt_of,
    send,
)
from tests.unit.store.postgres.conftest import OpenNode


@on_both_kinds
async def test_appends_at_the_same_time_share_transactions(
    store: Store, postgres_server: PostgresServer, database: str, name: str
) -> None:
    queue = await make_queue(store, name)
    await asyncio.gather(*(send(store, queue, str(number), group=str(number)) for number in range(200)))
    table = "fifo_message" if queue.fifo else "message"
    transactions = postgres_server.psql(f"SELECT count(DISTINCT xmin::text) FROM penstock.{table}", database)
    assert int(transactions) <= 10


async def test_a_lone_operation_does_not_wait(store: Store) -> None:
    queue = await make_queue(store)
    async with asyncio.timeout(30):
        for number in range(20):
            await send(store, queue, str(number))


@on_both_kinds
async def test_an_append_to_a_missing_queue_fails_alone(store: Store, name: str) -> None:
    queue, gone = await make_queue(store, name), await make_queue(store, f"gone-{name}")
    await store.delete_queue(gone)
    answers = await asyncio.gather(
        *(store.append(gone if number == 5 else queue, [draft(str(number), group="g")]) for number in range(10)),
        return_exceptions=True,
    )
    assert [number for number, answer in enumerate(answers) if isinstance(answer, QueueDoesNotExist)] == [5]
    assert await counts(store, queue) == (9, 0, 0)


@on_both_kinds
async def test_an_entry_that_the_database_refuses_fails_alone(store: Store, name: str) -> None:
    """The engine lets no such body through; whatever else the database may refuse goes the same way."""
    queue = await make_queue(store, name)
    texts = [str(number) for number in range(9)] + ["with a \0 in it"]
    answers = await asyncio.gather(
        *(store.append(queue, [draft(text, group=text[:1])]) for text in texts), return_exceptions=True
    )
    assert [isinstance(answer, asyncpg.PostgresError) for answer in answers] == [False] * 9 + [True]
    assert sorted(await lease_bodies(store, queue)) == texts[:9]


async def test_an_append_of_many_is_stored_wholly_or_not_at_all(store: Store) -> None:
    queue = await make_queue(store)
    with pytest.raises(asyncpg.PostgresError):
        await store.append(queue, [draft("a"), draft("b"), draft("\0")])
    assert await counts(store, queue) == (0, 0, 0)


@on_both_kinds
async def test_leases_at_the_same_time_are_given_different_messages(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    for number in range(50):
        await send(store, queue, str(number), group=str(number))
    answers = await asyncio.gather(*(lease(store, queue, 3) for _ in range(20)))
    given = [body for answer in answers for body in bodies(answer)]
    assert sorted(given) == sorted(map(str, range(50)))
    assert max(map(len, answers)) == 3


async def test_leases_of_a_fifo_group_at_the_same_time_go_to_one_consumer(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", "b", "c", "d")
    answers = await asyncio.gather(*(lease(store, queue, 2) for _ in range(5)))
    assert [bodies(answer) for answer in answers if answer] == [["a", "b"]]


@on_both_kinds
async def test_receipts_of_a_missing_queue_fail_alone(store: Store, name: str) -> None:
    queue, gone = await make_queue(store, name), await make_queue(store, f"gone-{name}")
    for number in range(3):
        await send(store, queue, str(number), group=str(number))
    first, second, third = [receipt_of(queue, message) for message in await lease(store, queue)]
    await store.delete_queue(gone)
    nowhere = Receipt(gone.id, 1, 1)
    answers = await asyncio.gather(
        store.delete(queue, [first]),
        store.delete(gone, [nowhere]),
        store.change_visibility(queue, [VisibilityChange(second, 0)]),
        store.change_visibility(gone, [VisibilityChange(nowhere, 0)]),
        store.release(queue, [third]),
        store.release(gone, [nowhere]),
        return_exceptions=True,
    )
    assert [isinstance(answer, QueueDoesNotExist) for answer in answers] == [False, True] * 3
    assert await counts(store, queue) == (2, 0, 0)


async def test_changes_of_one_message_in_one_call_follow_each_other(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a")
    [message] = await lease(store, queue)
    receipt = receipt_of(queue, message)
    changes = [VisibilityChange(receipt, lease_ms) for lease_ms in (60_000, 0, 60_000)]
    answers = await store.change_visibility(queue, changes)
    assert [answer is None for answer in answers] == [True, True, False]
    assert await counts(store, queue) == (1, 0, 0)


async def test_more_than_may_wait_is_turned_away(open_node: OpenNode) -> None:
    store = await open_node(limits=Limits(pending_operations_max=3))
    queue = await make_queue(store)
    answers = await asyncio.gather(
        *(store.append(queue, [draft(str(number))]) for number in range(5)), return_exceptions=True
    )
    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [False] * 3 + [True] * 2
    assert await counts(store, queue) == (3, 0, 0)


async def test_what_is_under_way_is_finished_before_the_store_closes(open_node: OpenNode) -> None:
    closing, other = await open_node(), await open_node()
    queue = await make_queue(closing)
    appends = [asyncio.create_task(closing.append(queue, [draft(str(number))])) for number in range(50)]
    await asyncio.sleep(0)
    await closing.close()
    for append in appends:
        [answer] = await append
        assert isinstance(answer, Sent)
    assert (await counts(other, queue))[0] == 50
    with pytest.raises(StoreUnavailable):
        await closing.append(queue, [draft("late")])
