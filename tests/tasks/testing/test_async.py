"""`async with app.testing()`: tasks tested on the event loop of the test."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from penstock import Penstock, Retry, Snooze, current, errors


async def test_tasks_run_on_the_loop_of_the_test(app: Penstock) -> None:
    @app.task(name="where")
    async def where() -> bool:
        return asyncio.get_running_loop() is loop

    loop = asyncio.get_running_loop()
    async with app.testing() as t:
        job = await where.enqueue()
        t.assert_enqueued(where)
        assert (await t.run_all()).done == 1
        assert await job.result(0) is True


async def test_who_waits_for_a_result_gets_it_when_the_test_runs_the_job(app: Penstock) -> None:
    @app.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    async with app.testing() as t:
        job = await double.enqueue(4)
        waiting = asyncio.create_task(job.result(20))
        await t.run_all()
        assert await waiting == 8
        unfinished = await double.enqueue(5)
        with pytest.raises(errors.JobUnfinished):
            await unfinished.result(0.01)


async def test_fourteen_days_of_backoff_and_a_schedule_pass_together(app: Penstock) -> None:
    nights: list[int] = []

    @app.task(name="call", retry=Retry(40, backoff="1h", max_backoff="1d", jitter=False))
    async def call() -> str:
        if t.clock.now() - began < timedelta(days=14):
            raise ConnectionError("still away")
        return "back"

    @app.cron("0 3 * * *", name="nightly")
    async def nightly() -> None:
        nights.append(t.clock.now().hour)

    async with app.testing() as t:
        began = t.clock.now()
        await t.save_schedules()
        job = await call.enqueue()
        assert (await t.run_until_idle()).retrying == 18
        assert await job.result(0) == "back"
        await t.run_for(timedelta(days=20) - (t.clock.now() - began))
        assert nights == [3] * 20


async def test_a_snoozed_job_waits_for_the_clock(app: Penstock) -> None:
    @app.task(name="poll")
    async def poll() -> int:
        if current().attempt < 3:
            raise Snooze(60)
        return current().attempt

    async with app.testing() as t:
        job = await poll.enqueue()
        assert (await t.run_all()).snoozed == 1
        await t.clock.advance(minutes=1)
        assert (await t.run_all()).snoozed == 1
        await t.clock.advance(seconds=59)
        assert (await t.run_all()).total == 0
        await t.clock.advance(seconds=1)
        assert (await t.run_all()).done == 1
        assert await job.result(0) == 3


async def test_a_fan_out_collects_what_failed(app: Penstock) -> None:
    @app.task(name="extract", retry=Retry(1))
    async def extract(n: int) -> int:
        if n == 2:
            raise ValueError("unreadable")
        return n

    @app.task(name="count")
    async def count(results: list[int | errors.JobEnded]) -> int:
        return sum(isinstance(result, errors.JobDead) for result in results)

    async with app.testing() as t:
        flow = await app.fan_out([extract.call(n) for n in range(5)], then=count, on_error="collect")
        with pytest.raises(ValueError, match="unreadable"):
            await t.run_all()
        assert await flow.result(0) == 1


async def test_a_job_can_be_cancelled_while_it_runs(app: Penstock) -> None:
    begun = asyncio.Event()

    @app.task(name="hang")
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with app.testing() as t:
        job = await hang.enqueue()
        running = asyncio.create_task(t.run_all())
        await begun.wait()
        await job.cancel()
        assert (await running).cancelled == 1
        with pytest.raises(errors.JobCancelled):
            await job.result(0)


async def test_a_test_that_is_cancelled_stops_what_it_runs(app: Penstock) -> None:
    stopped: list[str] = []
    begun = asyncio.Event()

    @app.task(name="hang")
    async def hang() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            stopped.append("stopped")

    async with app.testing() as t:
        await hang.enqueue()
        running = asyncio.create_task(t.run_all())
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert stopped == ["stopped"]


async def test_the_app_is_given_back_also_after_an_error(app: Penstock) -> None:
    @app.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    async def fail() -> None:
        async with app.testing():
            await double.enqueue(4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with pytest.raises(errors.ConnectionFailed):
        await double.enqueue(4)
    async with app.testing() as t:
        t.assert_not_enqueued(double)
        with pytest.raises(errors.AlreadyTesting):
            async with app.testing():
                pass
    with pytest.raises(errors.Closed):
        await t.run_all()


async def test_the_sync_form_is_refused_on_a_loop(app: Penstock) -> None:
    with pytest.raises(errors.WrongThread, match=r"Await async with app\.testing\(\)"), app.testing():
        pass
    async with app.testing():
        pass


def test_sync_methods_are_refused_on_a_loop(app: Penstock) -> None:
    @app.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    with app.testing() as t:

        async def ask() -> None:
            with pytest.raises(errors.WrongThread, match=r"t\.run_all .* `async with app\.testing\(\) as t`"):
                t.run_all()
            with pytest.raises(errors.WrongThread, match=r"t\.clock\.advance"):
                t.clock.advance(seconds=1)

        asyncio.run(ask())


async def test_no_thread_is_left_behind(app: Penstock) -> None:
    @app.task(name="plain")
    def plain() -> None:
        return

    async with app.testing() as t:
        await plain.enqueue()
        await t.run_all()
    assert "penstock-engine" not in [thread.name for thread in threading.enumerate()]
