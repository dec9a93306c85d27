"""Fan-out, fan-in and chains on every kind of URL."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Penstock, Progress, Retry, errors
from penstock.client.errors import JobCancelled, JobDead, JobEnded
from tests.tasks.working import PATIENCE_S, working, working_as

ONCE = Retry(1)


async def test_a_continuation_gets_the_results_in_order(app: Penstock, name: str) -> None:
    @app.task(name=f"{name}-extract", queue=name)
    async def extract(doc: str, field: int) -> int:
        return field * 10

    @app.task(name=f"{name}-assemble", queue=name)
    async def assemble(doc: str, results: list[int]) -> str:
        return f"{doc}: {results}"

    async with working(app):
        flow = await app.fan_out([extract.call("d", n) for n in range(42)], entity="d", then=assemble)
        assert await flow.result(PATIENCE_S) == f"d: {[n * 10 for n in range(42)]}"
        assert await flow.progress() == Progress(done=42, failed=0, total=42)
        assert str(await flow.progress()) == "42 of 42"


async def test_collect_hands_over_errors_in_place_of_results(app: Penstock, name: str) -> None:
    @app.task(name=f"{name}-halve", queue=name, retry=ONCE)
    async def halve(n: int) -> int:
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n // 2

    @app.task(name=f"{name}-sum", queue=name)
    async def add_up(results: list[int | JobEnded]) -> tuple[int, list[str]]:
        failed = [str(one.failure.message) for one in results if isinstance(one, JobDead) and one.failure]
        return sum(one for one in results if isinstance(one, int)), failed

    async with working(app):
        flow = await app.fan_out([halve.call(n) for n in range(4)], then=add_up, on_error="collect")
        assert await flow.result(PATIENCE_S) == (1, ["1 is odd", "3 is odd"])
        assert (await flow.progress()).failed == 2


async def test_fail_waits_until_what_failed_is_retried(app: Penstock, name: str) -> None:
    broken = True

    @app.task(name=f"{name}-part", queue=name, retry=ONCE)
    async def part(n: int) -> int:
        if broken and n == 1:
            raise RuntimeError("not yet")
        return n

    @app.task(name=f"{name}-sum", queue=name)
    async def add_up(results: list[int]) -> int:
        return sum(results)

    async with working(app):
        calls = [part.call(n) for n in range(3)]
        flow = await app.fan_out(calls, then=add_up)
        ended = Progress(done=3, failed=1, total=3)
        async with asyncio.timeout(PATIENCE_S):
            while await flow.progress() != ended:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)
        with pytest.raises(errors.JobUnfinished, match="3 of 3 jobs"):
            await flow.result(0)
        broken = False
        [dead] = [one for one in (await app.gathers.results(flow.id)).results if one.state == "dead"]
        await app.jobs.retry(dead.id)
        assert await flow.result(PATIENCE_S) == 3


async def test_a_chain_hands_each_result_to_the_next(app: Penstock, name: str) -> None:
    @app.task(name=f"{name}-extract", queue=name)
    async def extract(doc: str) -> list[str]:
        return doc.split()

    @app.task(name=f"{name}-count", queue=name)
    async def count(words: list[str]) -> int:
        return len(words)

    @app.task(name=f"{name}-show", queue=name)
    def show(number: int, suffix: str = "words") -> str:
        return f"{number} {suffix}"

    async with working(app):
        flow = await extract.call("one two three").then(count).then(show).enqueue()
        assert await flow.result(PATIENCE_S) == "3 words"


async def test_a_chain_whose_first_job_is_dead_does_not_go_on(app: Penstock, name: str) -> None:
    ran: list[int] = []

    @app.task(name=f"{name}-first", queue=name, retry=ONCE)
    async def first() -> int:
        raise RuntimeError("no")

    @app.task(name=f"{name}-second", queue=name)
    async def second(n: int) -> None:
        ran.append(n)

    async with working_as(app, {name: 2}):
        flow = await first.call().then(second).enqueue()
        async with asyncio.timeout(PATIENCE_S):
            while not (await flow.progress()).failed:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)
        await flow.cancel()
        with pytest.raises(errors.FanOutEnded, match="is cancelled"):
            await flow.result(PATIENCE_S)
    assert ran == []


async def test_a_chain_can_be_cancelled_when_it_is_under_way(app: Penstock, name: str) -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    @app.task(name=f"{name}-first", queue=name)
    async def first() -> int:
        return 1

    @app.task(name=f"{name}-second", queue=name)
    async def second(n: int) -> int:
        began.set()
        await goes_on.wait()
        return n

    @app.task(name=f"{name}-third", queue=name)
    async def third(n: int) -> int:
        return n

    async with working(app):
        flow = await first.call().then(second).then(third).enqueue()
        await began.wait()
        await flow.cancel()
        goes_on.set()
        with pytest.raises(errors.FanOutEnded, match="third will not run"):
            await flow.result(PATIENCE_S)


async def test_what_follows_can_have_options_of_its_own(app: Penstock, name: str) -> None:
    @app.task(name=f"{name}-part", queue=name)
    async def part(n: int) -> int:
        return n

    @app.task(name=f"{name}-sum", queue=name)
    async def add_up(results: list[int]) -> int:
        return sum(results)

    @app.task(name=f"{name}-show", queue=name)
    async def show(n: int) -> str:
        return str(n)

    async with working(app):
        flow = await app.fan_out([part.call(n) for n in range(3)], then=add_up.opts(priority=9, tags=["sum"]))
        assert await flow.result(PATIENCE_S) == 3
        assert ((await flow.job.view()).priority, (await flow.job.view()).tags) == (9, ("sum",))
        chain = await part.call(7).then(show.opts(tenant="t")).enqueue()
        assert await chain.result(PATIENCE_S) == "7"
        assert (await chain.job.view()).tenant == "t"


async def test_sync_callers_fan_out(app: Penstock, name: str) -> None:
    @app.task(name=f"{name}-part", queue=name)
    def part(n: int) -> int:
        return n

    @app.task(name=f"{name}-sum", queue=name)
    def add_up(results: list[int]) -> int:
        return sum(results)

    def calls() -> int:
        flow = app.fan_out_sync([part.call(n) for n in range(5)], then=add_up)
        assert part.call(1).then(add_one).enqueue_sync().result_sync(PATIENCE_S) == 2
        total: int = flow.result_sync(PATIENCE_S)
        return total

    @app.task(name=f"{name}-one", queue=name)
    def add_one(n: int) -> int:
        return n + 1

    async with working(app):
        assert await asyncio.to_thread(calls) == 10


async def test_a_fan_out_of_more_jobs_than_fit_a_request(app: Penstock, name: str) -> None:
    @app.task(name=f"{name}-part", queue=name)
    async def part(n: int) -> int:
        return n

    @app.task(name=f"{name}-sum", queue=name)
    async def add_up(results: list[int]) -> int:
        return sum(results)

    async with working_as(app, {name: 20}):
        flow = await app.fan_out([part.call(n) for n in range(1_100)], then=add_up)
        assert await flow.result(PATIENCE_S) == sum(range(1_100))


async def test_a_cancelled_member_is_an_error_of_its_own_kind(app: Penstock, name: str) -> None:
    @app.task(name=f"{name}-part", queue=name)
    async def part(n: int) -> int:
        return n

    @app.task(name=f"{name}-kinds", queue=name)
    async def kinds(results: list[int | JobEnded]) -> list[str]:
        return [type(one).__name__ for one in results]

    flow = await app.fan_out([part.call(1), part.opts(delay="1h").call(2)], then=kinds, on_error="collect")
    late = (await app.gathers.results(flow.id)).results[1]
    await app.jobs.cancel(late.id)
    async with working(app):
        assert await flow.result(PATIENCE_S) == ["int", JobCancelled.__name__]
