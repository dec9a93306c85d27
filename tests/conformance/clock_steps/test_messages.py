"""Messages: what lasts a while is measured by the time that passes, and shown by the wall clock.

On PostgreSQL it is the nodes' clocks that are set; for the database's see `unit/store/postgres/test_clock_steps.py`.
"""

from __future__ import annotations

import asyncio

from penstock.domain.limits import HOUR_MS, MINUTE_MS
from penstock.engine.engine import Engine
from penstock.store.port import Store
from penstock.store.sqlite.store_time import LOOK_EVERY_MS
from tests.support.machine import Machine, after_a_step, after_any_step
from tests.support.queues import draft, hide, lease, lease_bodies, make_queue, on_both_kinds, queue_name, send
from tests.support.stores import on_sqlite


@on_both_kinds
@after_any_step
async def test_a_lease_lasts_as_long_as_it_was_made_for(store: Store, machine: Machine, name: str, hours: int) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    [message] = await lease(store, queue, lease_ms=30_000)
    await machine.wait(seconds=10)
    machine.step(hours=hours)
    await machine.wait(seconds=19.999)
    assert await lease(store, queue) == []
    assert await hide(store, queue, message, lease_ms=5_000) == [None]
    await machine.wait(seconds=4.999)
    assert await lease(store, queue) == []
    await machine.wait(ms=1)
    assert await lease_bodies(store, queue) == ["a"]


@on_both_kinds
@after_a_step
async def test_a_lease_made_after_the_step_lasts_as_long_too(
    store: Store, machine: Machine, name: str, hours: int
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    machine.step(hours=hours)
    await lease(store, queue, lease_ms=30_000)
    await machine.wait(seconds=29.999)
    assert await lease(store, queue) == []
    await machine.wait(ms=1)
    assert await lease_bodies(store, queue) == ["a"]


@after_a_step
async def test_a_delay_lasts_as_long_as_it_was_asked_for(store: Store, machine: Machine, hours: int) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", delay_ms=60_000)
    machine.step(hours=hours)
    await machine.wait(seconds=59.999)
    assert await lease(store, queue) == []
    await machine.wait(ms=1)
    assert await lease_bodies(store, queue) == ["a"]


@after_a_step
async def test_deduplication_goes_on_for_five_minutes(store: Store, machine: Machine, hours: int) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, draft("a", group="g", deduplication_id="once"))
    machine.step(hours=hours)
    await machine.wait(ms=5 * MINUTE_MS - 1)
    await send(store, queue, draft("b", group="g", deduplication_id="once"))
    await machine.wait(ms=1)
    await send(store, queue, draft("c", group="g", deduplication_id="once"))
    assert await lease_bodies(store, queue) == ["a", "c"]


@after_a_step
async def test_a_retry_is_recognised_for_five_minutes(store: Store, machine: Machine, hours: int) -> None:
    queue = await make_queue(store)
    attempt = b"0123456789abcdef"
    first = await store.append(queue, [draft("a")], attempt=attempt)
    machine.step(hours=hours)
    await machine.wait(ms=5 * MINUTE_MS - 1)
    assert await store.append(queue, [draft("a")], attempt=attempt) == first
    await machine.wait(ms=1)
    assert await store.append(queue, [draft("a")], attempt=attempt) != first


@on_both_kinds
@after_any_step
async def test_a_message_is_kept_for_its_retention(store: Store, machine: Machine, name: str, hours: int) -> None:
    queue = await make_queue(store, name, retention_s=3_600)
    await send(store, queue, "a")
    machine.step(hours=hours)
    await machine.wait(ms=HOUR_MS - 1)
    while await store.sweep():
        pass
    assert await lease_bodies(store, queue, lease_ms=0) == ["a"]
    await machine.wait(ms=1)
    assert await lease(store, queue) == []


@on_sqlite
@after_any_step
async def test_messages_show_the_time_of_the_wall_clock(store: Store, machine: Machine, hours: int) -> None:
    queue = await make_queue(store)
    machine.step(hours=hours)
    await machine.wait_until_noticed()
    later = await make_queue(store, "later")
    await send(store, queue, "a")
    sent_at_ms = machine.wall_ms
    await machine.wait(seconds=5)
    [message] = await lease(store, queue, lease_ms=0)
    assert (message.sent_at_ms, message.first_received_at_ms) == (sent_at_ms, sent_at_ms + 5_000)
    [peeked] = (await store.peek(queue, limit=1)).messages
    assert (peeked.message.sent_at_ms, peeked.visible_at_ms) == (sent_at_ms, sent_at_ms + 5_000)
    assert later.created_at_ms == sent_at_ms
    # A correction holds for what was sent before, too: it was as long ago as it was.
    machine.step(seconds=-60)
    await machine.wait_until_noticed()
    [message] = await lease(store, queue, lease_ms=0)
    assert message.sent_at_ms == machine.wall_ms - 5_000 - LOOK_EVERY_MS


@after_a_step
async def test_a_long_poll_ends_when_its_time_is_over(
    engine: Engine, store: Store, machine: Machine, hours: int
) -> None:
    await make_queue(store)
    poll = asyncio.create_task(engine.messages.receive(queue_name("orders"), wait_ms=20_000))
    await machine.wait(seconds=1)
    machine.step(hours=hours)
    await machine.wait(seconds=18.999)
    assert not poll.done()
    await machine.wait(ms=1)
    async with asyncio.timeout(10):
        assert await poll == []


@after_a_step
async def test_a_long_poll_gets_what_comes_due_meanwhile(
    engine: Engine, store: Store, machine: Machine, hours: int
) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    await lease(store, queue, lease_ms=10_000)
    poll = asyncio.create_task(engine.messages.receive(queue_name("orders"), wait_ms=20_000))
    await machine.wait(seconds=1)
    while not engine.long_polls:
        await machine.wait()
    machine.step(hours=hours)
    await machine.wait(seconds=9)
    async with asyncio.timeout(10):
        [delivery] = await poll
    assert delivery.message.body == "a"
