"""Batch tasks whose items end in different ways, and hooks that see every failure."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Context, Discard, Penstock, Retry, RetryAfter, Snooze, errors
from penstock.client.worker import notices
from penstock.client.worker.attempt import Stop
from tests.tasks.working import PATIENCE_S, until, working


async def test_items_of_a_batch_can_be_put_off_retried_later_and_discarded(app: Penstock, name: str) -> None:
    hooked: list[str] = []

    @app.on_failure
    def note(ctx: Context, error: Exception) -> None:
        hooked.append(f"{ctx.task} {error}")

    verdicts = {"snooze": Snooze("1h"), "later": RetryAfter("1h"), "discard": Discard("gone"), "bad": ValueError("no")}

    @app.batch_task(name=name, queue=name, size=5, linger=1, retry=Retry(2, permanent=(ValueError,)))
    async def judge(items: list[str]) -> list[int | Exception]:
        return [verdicts.get(item, 1) for item in items]

    jobs = {item: await judge.enqueue(item) for item in (*verdicts, "good")}
    async with working(app) as notes:
        await notes.wait_for(notices.Snoozed)
        await notes.wait_for(notices.Retrying)
        assert await jobs["good"].result(PATIENCE_S) == 1
        with pytest.raises(errors.JobCancelled, match="gone"):
            await jobs["discard"].result(PATIENCE_S)
        with pytest.raises(errors.JobDead, match="ValueError: no"):
            await jobs["bad"].result(PATIENCE_S)
    states = {item: (await job.view()).state for item, job in jobs.items()}
    assert (states["snooze"], states["later"]) == ("scheduled", "retrying")
    assert hooked == [f"{name} not before 3600 s from now", f"{name} no"]


async def test_a_cancelled_item_does_not_stop_its_batch(app: Penstock, name: str) -> None:
    began = asyncio.Event()
    go_on = asyncio.Event()

    @app.batch_task(name=name, queue=name, size=2, linger=1)
    async def double(items: list[int]) -> list[int]:
        began.set()
        await go_on.wait()
        return [2 * item for item in items]

    await app.queues.put(name, lease_ms=6_000)  # Heartbeats, which tell of the cancellation, come every 2 s.
    jobs = [await double.enqueue(n) for n in (1, 2)]
    async with working(app) as notes:
        async with asyncio.timeout(PATIENCE_S):
            await began.wait()
            await jobs[0].cancel()
        await until(lambda: any(attempt.stop is Stop.CANCELLED for attempt in notes.attempts()))
        go_on.set()
        assert await jobs[1].result(PATIENCE_S) == 4
        assert await jobs[0].result(PATIENCE_S) == 2
        assert notes.of(notices.Released) == []


async def test_the_failure_hook_sees_an_attempt_that_took_too_long(app: Penstock, name: str) -> None:
    hooked: list[Exception] = []

    @app.on_failure
    async def note(ctx: Context, error: Exception) -> None:
        hooked.append(error)

    @app.task(name=name, queue=name, timeout=2, retry=Retry(1))
    async def work() -> None:
        await asyncio.Event().wait()

    async with working(app):
        with pytest.raises(errors.JobDead, match="timeout"):
            await (await work.enqueue()).result(PATIENCE_S)
    assert [type(error) for error in hooked] == [TimeoutError]
