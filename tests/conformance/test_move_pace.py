"""Message move tasks: bounded steps, taken when they are due and no sooner."""

from __future__ import annotations

import pytest

from penstock.domain.message import Draft
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.moves import latest, make_move_pair, numbered, run_moves
from tests.support.queues import draft, lease_bodies, make_queue, on_both_kinds, send, with_limits


@pytest.mark.parametrize(
    ("rate", "step", "due_in_ms"),
    [(1, 1, 1_000), (2, 1, 500), (10, 1, 100), (20, 2, 100), (500, 50, 100)],
)
async def test_a_step_moves_a_tenth_of_a_seconds_worth_and_at_least_one(
    store: Store, clock: ManualClock, rate: int, step: int, due_in_ms: int
) -> None:
    dead, queue = await make_move_pair(store)
    await send(store, dead, *numbered(step * 3))
    await store.start_move("task", dead, queue, rate)
    for moved in (step, 2 * step):
        assert await store.advance_moves() == due_in_ms
        assert (await latest(store, dead)).moved == moved
        await clock.advance(ms=due_in_ms)


async def test_nothing_moves_before_it_is_due(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store)
    await send(store, dead, "a", "b", "c")
    await store.start_move("task", dead, queue, 1)
    await store.advance_moves()
    await clock.advance(ms=400)
    assert await store.advance_moves() == 600
    await clock.advance(ms=599)
    assert await store.advance_moves() == 1
    assert (await latest(store, dead)).moved == 1
    await clock.advance(ms=1)
    await store.advance_moves()
    assert (await latest(store, dead)).moved == 2


async def test_a_pause_is_not_caught_up_with_a_burst(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store)
    await send(store, dead, *numbered(50))
    await store.start_move("task", dead, queue, 10)
    await store.advance_moves()
    await clock.advance(seconds=60)
    for _ in range(3):
        assert await store.advance_moves() == 100
    assert (await latest(store, dead)).moved == 2


@with_limits(sweep_rows_max=10)
@pytest.mark.parametrize("rate", [None, 500])
async def test_a_step_is_bounded(store: Store, rate: int | None) -> None:
    dead, queue = await make_move_pair(store)
    await send(store, dead, *numbered(30))
    await store.start_move("task", dead, queue, rate)
    await store.advance_moves()
    assert (await latest(store, dead)).moved == 10


@with_limits(sweep_rows_max=10)
@on_both_kinds
async def test_without_a_rate_the_next_step_is_due_at_once(store: Store, clock: ManualClock, name: str) -> None:
    dead, queue = await make_move_pair(store, name)
    await send(store, dead, *numbered(25))
    await store.start_move("task", dead, queue, None)
    start_ms = clock.now_ms()
    await run_moves(store, clock)
    assert clock.now_ms() == start_ms
    assert (await latest(store, dead)).moved == 25
    assert await lease_bodies(store, queue, 25) == numbered(25)


async def test_every_running_task_makes_its_step(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders")
    sources = [await make_queue(store, name) for name in ("dead-1", "dead-2")]
    for source in sources:
        await send(store, source, "a", "b")
        await store.start_move(source.name.name, source, queue, 1)
    assert await store.advance_moves() == 1_000
    assert [(await latest(store, source)).moved for source in sources] == [1, 1]


async def test_without_a_running_task_nothing_is_due(store: Store) -> None:
    assert await store.advance_moves() is None


def drafts_in(group: str, *texts: str) -> list[Draft]:
    return [draft(text, group=group) for text in texts]


async def test_groups_keep_their_order_through_a_paced_move(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store, "orders.fifo")
    await send(store, dead, *drafts_in("x", "x1", "x2", "x3"), *drafts_in("y", "y1", "y2", "y3"))
    await store.start_move("task", dead, queue, 20)
    await run_moves(store, clock)
    moved = await lease_bodies(store, queue)
    assert [body for body in moved if body[0] == "x"] == ["x1", "x2", "x3"]
    assert [body for body in moved if body[0] == "y"] == ["y1", "y2", "y3"]
