"""Move tasks and the sweeper as the background work of an engine."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.domain.errors import InvalidParameter, QueueDoesNotExist
from penstock.domain.limits import Limits
from penstock.domain.move import MoveStatus, MoveTask
from penstock.domain.sending import Outgoing
from penstock.engine.engine import Engine
from penstock.store.port import Store
from penstock.testing import CountedIds, ManualClock
from tests.support.queues import make_queue, queue_name, send
from tests.support.stores import Reopen, working

ORDERS = queue_name("orders")
DEAD = queue_name("dead")


@pytest.fixture(autouse=True)
async def dead_letters(engine: Engine) -> None:
    """Twenty messages in the dead-letter queue."""
    await engine.queues.create(DEAD)
    policy = json.dumps({"deadLetterTargetArn": DEAD.arn, "maxReceiveCount": 1})
    await engine.queues.create(ORDERS, {"RedrivePolicy": policy})
    for first in (0, 10):
        await engine.messages.send_batch(DEAD, [Outgoing(body=str(first + number)) for number in range(10)])


async def ended(engine: Engine, clock: ManualClock, *, within_s: int) -> MoveTask:
    """Let time pass in small steps until the newest task has ended."""
    for _ in range(within_s * 20):
        [task] = await engine.moves.list_tasks(DEAD)
        if task.status is not MoveStatus.RUNNING:
            return task
        await clock.advance(ms=50)
    raise AssertionError("the task does not end")


async def test_a_task_runs_in_the_background_at_its_rate(engine: Engine, clock: ManualClock) -> None:
    async with working(engine) as at_work:
        started_at_ms = clock.now_ms()
        started = await at_work.moves.start(DEAD, destination=ORDERS, rate=10)
        assert (started.status, started.to_move) == (MoveStatus.RUNNING, 20)
        task = await ended(at_work, clock, within_s=10)
    assert (task.status, task.moved) == (MoveStatus.COMPLETED, 20)
    # Twenty at ten a second: the first at once, the last no sooner than this.
    assert clock.now_ms() - started_at_ms >= 1_900
    assert (await engine.queues.count(ORDERS)).visible == 20


async def test_a_task_goes_on_after_a_restart(
    engine: Engine, clock: ManualClock, ids: CountedIds, limits: Limits, reopen: Reopen
) -> None:
    async with working(engine) as at_work:
        await at_work.moves.start(DEAD, destination=ORDERS, rate=10)
        await clock.advance(ms=500)
    again = Engine(await reopen(), clock=clock, ids=ids, limits=limits)
    async with again:
        task = await ended(again, clock, within_s=20)
    assert (task.status, task.moved) == (MoveStatus.COMPLETED, 20)
    assert (await again.queues.count(ORDERS)).visible == 20


async def test_a_task_is_cancelled_with_what_it_moved(engine: Engine, clock: ManualClock) -> None:
    started = await engine.moves.start(DEAD, destination=ORDERS, rate=1)
    cancelled = await engine.moves.cancel(started.id)
    assert cancelled.status is MoveStatus.CANCELLED
    moved = (await engine.queues.count(ORDERS)).visible
    assert cancelled.moved == moved < 20


async def test_what_cannot_be_moved_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidParameter):
        await engine.moves.start(ORDERS)
    with pytest.raises(QueueDoesNotExist):
        await engine.moves.start(queue_name("none"))
    with pytest.raises(QueueDoesNotExist):
        await engine.moves.start(DEAD, destination=queue_name("none"))
    for rate in (0, 501):
        with pytest.raises(InvalidParameter):
            await engine.moves.start(DEAD, destination=ORDERS, rate=rate)
    await engine.queues.create(queue_name("orders.fifo"))
    with pytest.raises(InvalidParameter):
        await engine.moves.start(DEAD, destination=queue_name("orders.fifo"))
    with pytest.raises(InvalidParameter):
        await engine.moves.list_tasks(DEAD, limit=11)


async def test_the_sweeper_removes_what_has_expired(engine: Engine, store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "short", retention_s=60)
    await send(store, queue, *"abc")
    async with working(engine):
        await clock.advance(seconds=60)
        for _ in range(200):
            await clock.advance(seconds=5)
            if (await store.count_messages(queue)).visible == 0:
                break
            await asyncio.sleep(0)
        else:
            raise AssertionError("expired messages are still counted")


async def test_a_queue_is_not_moved_to_itself(engine: Engine) -> None:
    with pytest.raises(InvalidParameter):
        await engine.moves.start(DEAD, destination=DEAD)
