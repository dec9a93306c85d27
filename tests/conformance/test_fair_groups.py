"""Fair delivery on standard queues: the tenants with fewer messages in flight come first."""

from __future__ import annotations

from penstock.domain.message import Message
from penstock.domain.queue import Queue
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import bodies, delete, hide, lease_bodies, lease_one, make_queue, release, send


async def lease_one_by_one(store: Store, queue: Queue, count: int) -> list[Message]:
    return [await lease_one(store, queue) for _ in range(count)]


async def test_tenants_with_fewer_messages_in_flight_come_first(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a1", "a2", "a3", "a4", group="a")
    await send(store, queue, "b1", "b2", group="b")
    assert bodies(await lease_one_by_one(store, queue, 6)) == ["a1", "b1", "a2", "b2", "a3", "a4"]


async def test_what_a_lease_takes_counts_for_the_rest_of_that_lease(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a1", "a2", "a3", "a4", group="a")
    await send(store, queue, "b1", "b2", group="b")
    await send(store, queue, "x")
    assert await lease_bodies(store, queue, 5) == ["a1", "b1", "x", "a2", "b2"]


async def test_among_equals_the_older_message_comes_first(store: Store) -> None:
    queue = await make_queue(store)
    for body, group in [("b1", "b"), ("a1", "a"), ("c1", "c")]:
        await send(store, queue, body, group=group)
    assert bodies(await lease_one_by_one(store, queue, 3)) == ["b1", "a1", "c1"]


async def test_messages_without_a_group_count_as_one_with_nothing_in_flight(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a1", "a2", group="a")
    await send(store, queue, "x", "y", "z")
    assert bodies(await lease_one_by_one(store, queue, 5)) == ["a1", "x", "y", "z", "a2"]


async def test_a_message_without_a_group_waits_for_older_ones_of_idle_tenants(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a1", group="a")
    await send(store, queue, "x")
    await send(store, queue, "b1", group="b")
    assert bodies(await lease_one_by_one(store, queue, 3)) == ["a1", "x", "b1"]


async def test_a_quiet_tenant_is_served_next_behind_a_long_backlog(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, *(f"noisy-{number}" for number in range(300)), group="noisy")
    await lease_bodies(store, queue, 10)
    await send(store, queue, "quiet", group="quiet")
    assert (await lease_bodies(store, queue, 10))[0] == "quiet"


async def test_a_noisy_tenant_alone_is_not_held_back(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, *(str(number) for number in range(30)), group="noisy")
    for first in (0, 10, 20):
        assert await lease_bodies(store, queue, 10) == [str(number) for number in range(first, first + 10)]


async def test_deleted_released_revealed_and_lapsed_messages_are_not_in_flight(
    store: Store, clock: ManualClock
) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a1", "a2", "a3", group="a")
    await send(store, queue, "b1", "b2", group="b")
    first, busy = await lease_one_by_one(store, queue, 2)
    assert (first.group, busy.group) == ("a", "b")
    await hide(store, queue, busy, lease_ms=60_000)
    await delete(store, queue, first)
    second = await lease_one(store, queue)
    assert second.group == "a"
    await release(store, queue, second)
    third = await lease_one(store, queue)
    assert third.group == "a"
    await hide(store, queue, third, lease_ms=0)
    assert (await lease_one(store, queue, lease_ms=10_000)).group == "a"
    await clock.advance(seconds=10)
    assert (await lease_one(store, queue)).group == "a"


async def test_purged_messages_are_not_in_flight(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a1", group="a")
    await lease_one(store, queue)
    await store.purge_queue(queue)
    await send(store, queue, "a2", group="a")
    await send(store, queue, "b1", group="b")
    assert bodies(await lease_one_by_one(store, queue, 2)) == ["a2", "b1"]


async def test_tenants_of_other_queues_do_not_count(store: Store) -> None:
    orders, invoices = await make_queue(store, "orders"), await make_queue(store, "invoices")
    await send(store, orders, "a1", group="a")
    await lease_one(store, orders)
    await send(store, invoices, "a1", group="a")
    await send(store, invoices, "b1", group="b")
    assert bodies(await lease_one_by_one(store, invoices, 2)) == ["a1", "b1"]
