"""The work that is measured is the work that was asked for."""

from __future__ import annotations

import pytest

from benchmarks.scratch import ScratchQueues
from benchmarks.timing import Budget
from benchmarks.workload import QueueLoad, Workload, make_bodies
from penstock.domain.queue import Queue
from penstock.store.port import Store

WORKLOADS = [
    Workload(callers=4, batch=1, body_bytes=50),
    Workload(callers=4, batch=10, body_bytes=50, attempts=False),
    Workload(callers=4, batch=10, body_bytes=50, groups=3),
    Workload(callers=4, batch=10, body_bytes=50, fifo=True, groups=7),
    Workload(callers=4, batch=3, body_bytes=50, fifo=True, groups=2),
]


def told(workload: Workload) -> str:
    kind = "fifo" if workload.fifo else "standard"
    return f"{kind}-{workload.batch}-{workload.groups}groups-{'with' if workload.attempts else 'no'}keys"


async def waiting(store: Store, queue: Queue) -> tuple[int, int]:
    counts = await store.count_messages(queue)
    return counts.visible, counts.in_flight


@pytest.mark.parametrize("workload", WORKLOADS, ids=told)
async def test_phases_handle_every_message_once(store: Store, workload: Workload) -> None:
    queue = await ScratchQueues().make(store, "phases", fifo=workload.fifo)
    phases = await QueueLoad(store, queue, workload).phases(95)
    assert phases.send.messages == phases.receive.messages == phases.delete.messages == 95
    assert phases.send.operations >= 95 // workload.batch
    assert await waiting(store, queue) == (0, 0)


@pytest.mark.parametrize("workload", WORKLOADS, ids=told)
async def test_lifecycles_keep_the_backlog_that_was_filled_in(store: Store, workload: Workload) -> None:
    queue = await ScratchQueues().make(store, "lifecycle", fifo=workload.fifo)
    load = QueueLoad(store, queue, workload)
    stored: list[int] = []
    await load.fill(250, stored.append)
    assert sum(stored) == 250
    rate = await load.lifecycle(Budget(messages=200))
    visible, in_flight = await waiting(store, queue)
    # A FIFO group that another caller is at work on gives nothing, so a caller may find fewer than it sent.
    assert (rate.messages == 200) or workload.fifo
    assert (visible, in_flight) == (250 + 200 - rate.messages, 0)


async def test_messages_are_as_large_as_asked_for(store: Store) -> None:
    queue = await ScratchQueues().make(store, "size")
    await QueueLoad(store, queue, Workload(body_bytes=777)).fill(1)
    leased = await store.lease(queue, count=1, lease_ms=1000)
    assert [len(message.body) for message in leased.messages] == [777]
    assert make_bodies(777) == make_bodies(777)
