"""Restarts: the time of a store goes on where it was, whatever the wall clock shows by then."""

from __future__ import annotations

from penstock.domain.job import JobState
from penstock.domain.job_errors import LeaseLost
from penstock.domain.limits import HOUR_MS
from penstock.store.job_port import Heartbeat
from penstock.store.port import Store
from tests.support import job_steps
from tests.support.machine import Machine, after_a_step, after_any_step
from tests.support.queues import lease, lease_bodies, make_queue, on_both_kinds, send
from tests.support.stores import Reopen, on_sqlite


@on_both_kinds
@after_any_step
async def test_a_lease_goes_on_through_a_step_and_a_restart(
    store: Store, machine: Machine, reopen: Reopen, name: str, hours: int
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    await lease(store, queue, lease_ms=30_000)
    machine.step(hours=hours)
    await machine.wait(seconds=10)
    await store.ping()  # Any transaction notices the step.
    store = await reopen()
    await machine.wait(seconds=19.999)
    assert await lease(store, queue) == []
    await machine.wait(ms=1)
    assert await lease_bodies(store, queue) == ["a"]


@after_a_step
async def test_the_lease_of_a_job_goes_on_through_a_step_and_a_restart(
    store: Store, machine: Machine, reopen: Reopen, hours: int
) -> None:
    jobs = store.jobs
    queue = await job_steps.make_queue(jobs, lease_ms=30_000)
    await job_steps.enqueue(jobs, queue)
    held = await job_steps.start(jobs, queue)
    machine.step(hours=hours)
    await machine.wait(seconds=10)
    await store.ping()
    jobs = (await reopen()).jobs
    await machine.wait(ms=19_999)
    assert (await job_steps.report(jobs, Heartbeat(held))).state is JobState.RUNNING
    await machine.wait(ms=30_000)
    assert isinstance(await job_steps.refused(jobs, Heartbeat(held)), LeaseLost)


@on_sqlite
@on_both_kinds
async def test_a_clock_set_back_while_the_server_is_down_makes_no_lease_longer_than_it_was(
    store: Store, machine: Machine, reopen: Reopen, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    await lease(store, queue, lease_ms=30_000)
    machine.step(hours=-24 * 365)
    store = await reopen()
    # Nobody knows how long the server was down, but it was not less than no time at all.
    await machine.wait(seconds=29.999)
    assert await lease(store, queue) == []
    await machine.wait(ms=1)
    assert await lease_bodies(store, queue) == ["a"]


@on_sqlite
async def test_time_passes_while_the_server_is_down(store: Store, machine: Machine, reopen: Reopen) -> None:
    queue = await make_queue(store, retention_s=3_600)
    await send(store, queue, "a")
    machine.step(hours=-1)
    await machine.wait(seconds=10)
    await store.ping()
    await machine.wait(ms=HOUR_MS - 10_001)
    store = await reopen()
    [peeked] = (await store.peek(queue, limit=1)).messages
    assert peeked.message.sent_at_ms == machine.wall_ms - HOUR_MS + 1
    await machine.wait(ms=1)
    store = await reopen()
    assert await lease(store, queue) == []


@on_sqlite
async def test_a_clock_that_was_wrong_for_a_while_and_then_put_right_does_no_harm(
    store: Store, machine: Machine, reopen: Reopen
) -> None:
    """As on a board without a battery: it starts in the past, and is set when the network is there."""
    queue = await make_queue(store, retention_s=3_600)
    await send(store, queue, "a")
    for body in ("b", "c"):
        machine.step(hours=-24 * 3_650)
        store = await reopen()
        await send(store, queue, body)
        machine.step(hours=24 * 3_650)
        await machine.wait(seconds=60)
    shown = (await store.peek(queue, limit=10)).messages
    assert [machine.wall_ms - peeked.message.sent_at_ms for peeked in shown] == [120_000, 120_000, 60_000]
    assert await lease_bodies(store, queue) == ["a", "b", "c"]
