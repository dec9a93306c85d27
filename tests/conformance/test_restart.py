"""Restarts: what a store said is so after it was closed and opened again."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import IdSource
from penstock.domain.limits import Limits
from penstock.domain.message import Attribute, Receipt, VisibilityChange
from penstock.domain.queue import QueueAttributes
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    bodies,
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
from tests.support.stores import Opener, Reopen


@on_both_kinds
async def test_messages_are_as_they_were(store: Store, clock: ManualClock, reopen: Reopen, name: str) -> None:
    queue = await make_queue(store, name)
    sent = draft("grün", group="g", attributes={"bytes": Attribute("Binary", b"\x00")}, trace_header="Root=1")
    await store.append(queue, [sent])
    [before] = await lease(store, queue, lease_ms=1_000)
    store = await reopen()
    assert await lease(store, queue) == []
    await clock.advance(seconds=1)
    [after] = await lease(store, queue)
    assert (after.message_id, after.body, after.attributes) == (sent.message_id, sent.body, sent.attributes)
    assert (after.sent_at_ms, after.first_received_at_ms) == (before.sent_at_ms, before.first_received_at_ms)
    assert (after.receive_count, after.position, after.sequence) == (2, before.position, before.sequence)
    assert after.receipt > before.receipt


@on_both_kinds
async def test_receipts_are_good_across_a_restart(store: Store, reopen: Reopen, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    leased = await lease(store, queue)
    store = await reopen()
    assert await delete(store, queue, *leased) == [None, None]
    assert await counts(store, queue) == (0, 0, 0)


@on_both_kinds
async def test_deleted_messages_do_not_come_back(store: Store, clock: ManualClock, reopen: Reopen, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b", "c")
    await delete(store, queue, *await lease(store, queue, 2))
    for _ in range(2):
        store = await reopen()
        assert await counts(store, queue) == (1, 0, 0)
    assert await lease_bodies(store, queue) == ["c"]


@on_both_kinds
async def test_a_position_is_never_used_again(store: Store, reopen: Reopen, name: str) -> None:
    """Or an old receipt would name a message that it was not given for."""
    queue = await make_queue(store, name)
    await send(store, queue, "old")
    [old] = await lease(store, queue)
    await delete(store, queue, old)
    while await store.sweep():
        pass
    store = await reopen()
    await send(store, queue, "new")
    [new] = await lease(store, queue)
    assert new.position != old.position
    await delete(store, queue, old)
    assert await counts(store, queue) == (0, 1, 0)


async def test_delays_go_on_through_a_restart(store: Store, clock: ManualClock, reopen: Reopen) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", delay_ms=10_000)
    await clock.advance(seconds=5)
    store = await reopen()
    await clock.advance(ms=4_999)
    assert await lease_bodies(store, queue) == []
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == ["a"]


async def test_the_secret_is_the_stores_for_good(store: Store, reopen: Reopen) -> None:
    secret = store.secret
    assert len(secret) == 32
    assert (await reopen()).secret == secret


async def test_each_store_has_a_secret_of_its_own(
    another_opener: Opener, opener: Opener, clock: ManualClock, ids: IdSource, limits: Limits, failpoints: Failpoints
) -> None:
    secrets = set()
    for place in (opener, another_opener):
        store = await place(clock=clock, ids=ids, limits=limits, failpoints=failpoints)
        secrets.add(store.secret)
        await store.close()
    assert len(secrets) == 2


# -- close ----------------------------------------------------------------------------------------


async def test_close_finishes_what_is_under_way(store: Store, reopen: Reopen) -> None:
    queue = await make_queue(store)
    sends = [asyncio.create_task(store.append(queue, [draft(str(number))])) for number in range(20)]
    await asyncio.sleep(0)
    store = await reopen()
    await asyncio.gather(*sends)
    assert sorted(await lease_bodies(store, queue, 20)) == sorted(str(number) for number in range(20))


async def test_a_closed_store_refuses_every_verb(store: Store) -> None:
    queue = await make_queue(store)
    await store.close()
    receipt = Receipt(queue.id, 1, 1)
    calls = [
        store.ping(),
        store.create_queue(queue_name("other"), QueueAttributes(), {}),
        store.list_queues(queue.name.region, queue.name.account, limit=1),
        store.dead_letter_sources(queue.name, limit=1),
        store.save_queue(queue, tags={}),
        store.delete_queue(queue),
        store.purge_queue(queue),
        store.count_messages(queue),
        store.append(queue, [draft("a")]),
        store.append(queue, [draft("a")], attempt=b"0123456789abcdef"),
        store.outcome(b"0123456789abcdef"),
        store.lease(queue, count=1, lease_ms=1),
        store.release(queue, [receipt]),
        store.delete(queue, [receipt]),
        store.change_visibility(queue, [VisibilityChange(receipt, 0)]),
        store.start_move("task", queue, None, None),
        store.cancel_move("task"),
        store.list_moves(queue, limit=1),
        store.advance_moves(),
        store.sweep(),
    ]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}


async def test_closing_twice_is_harmless(store: Store) -> None:
    await store.close()
    await store.close()


async def test_an_open_store_answers_a_ping(store: Store, reopen: Reopen) -> None:
    await store.ping()
    await (await reopen()).ping()


async def test_what_was_closed_can_be_opened_again_and_again(store: Store, reopen: Reopen) -> None:
    queue = await make_queue(store)
    for number in range(5):
        await send(store, queue, str(number))
        store = await reopen()
    assert bodies(await lease(store, queue)) == ["0", "1", "2", "3", "4"]


async def test_find_queue_of_a_closed_store_is_refused(store: Store) -> None:
    queue = await make_queue(store)
    await store.find_queue(queue.name)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.find_queue(queue.name)
