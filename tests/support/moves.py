"""Message move tasks, run to their ends by tests."""

from __future__ import annotations

from typing import Any

from penstock.domain.move import MoveTask
from penstock.domain.queue import Queue
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import make_queue

STEPS_MAX = 100


async def run_moves(store: Store, clock: ManualClock) -> None:
    """Do every step when it is due, until no task runs."""
    for _ in range(STEPS_MAX):
        due_in_ms = await store.advance_moves()
        if due_in_ms is None:
            return
        await clock.advance(ms=due_in_ms)
    raise AssertionError(f"still running after {STEPS_MAX} steps")


async def latest(store: Store, source: Queue) -> MoveTask:
    [task] = await store.list_moves(source, limit=1)
    return task


async def make_move_pair(store: Store, name: str = "orders", **attributes: Any) -> tuple[Queue, Queue]:
    """Make a dead-letter queue and a queue to move to."""
    return await make_queue(store, name.replace("orders", "dead")), await make_queue(store, name, **attributes)


def numbered(count: int) -> list[str]:
    return [f"{number:03}" for number in range(count)]
