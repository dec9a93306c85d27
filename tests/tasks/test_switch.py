"""What would make a user switch, shown through tasks: on every kind of URL that it can happen with.

A lost answer needs a connection that can be cut, and a worker that dies needs to be another process than its store.
"""

from __future__ import annotations

import asyncio
import signal
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, Retry, current, errors
from penstock.client import calls
from penstock.wire.jobs.answers import JobView
from tests.end_to_end.cutting_proxy import Cut, CuttingProxy
from tests.support.campaigns import campaign, trials
from tests.tasks.worker_processes import WorkerProcess
from tests.tasks.working import PATIENCE_S, working, working_as

ONCE = Retry(1)


# -- a lost answer never doubles an enqueue -------------------------------------------------------


@pytest.fixture
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "BACKOFF_S", 0.001)


@pytest.fixture(params=["http-sqlite", "http-postgres", "unix"])
def proxy(request: pytest.FixtureRequest) -> Iterator[CuttingProxy]:
    with CuttingProxy(url_of(request.param, request)) as running:
        yield running


@pytest.fixture(params=["sqlite", "unix", "http-sqlite", "http-postgres", "postgres-in-process"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """A URL of each kind under which processes share a store: found before a test's event loop runs."""
    return url_of(request.param, request)


def url_of(kind: str, request: pytest.FixtureRequest) -> str:
    match kind:
        case "http-sqlite":
            url: str = request.getfixturevalue("sqlite_server").url
        case "http-postgres":
            url = request.getfixturevalue("postgres_node").url
        case "unix":
            url = f"unix:{request.getfixturevalue('shared_file')}.sock"
        case "postgres-in-process":
            request.getfixturevalue("postgres_node")  # It does the upkeep after the worker is gone.
            url = request.getfixturevalue("postgres_url")
        case _:
            url = f"sqlite:{request.getfixturevalue('shared_file')}"
    return url


@campaign
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("_short_pauses")
async def test_as_many_jobs_as_enqueues_although_their_answers_are_lost(
    proxy: CuttingProxy, name: str, record_property: Callable[[str, object], None]
) -> None:
    count = trials(1_000, share=10)
    async with Penstock(proxy.url, timeout=60) as app, Penstock(proxy.server_url, timeout=60) as direct:
        task = app.task(name=name, queue=name)(note)
        numbers = iter(range(count))

        def cut_one() -> Iterator[int]:
            for number in numbers:
                proxy.cut_next(Cut.CLOSE if number % 2 else Cut.RESET)
                yield number

        def in_a_thread() -> list[str]:
            return [task.enqueue_sync(number).id for number in cut_one()]

        async def on_the_loop() -> list[str]:
            return [(await task.enqueue(number)).id for number in cut_one()]

        each = await asyncio.gather(
            *(on_the_loop() for _ in range(4)), *(asyncio.to_thread(in_a_thread) for _ in range(4))
        )
        acknowledged = [job_id for ids in each for job_id in ids]
        stored = (await direct.queues.get(name)).counts["queued"]
        ran = await numbers_of(direct, name, count)
    assert len(set(acknowledged)) == len(acknowledged) == stored == count
    assert len(proxy.cut_answers) == count
    assert sorted(ran) == list(range(count))
    record_property("evidence", f"{len(proxy.cut_answers)} answers to {count} enqueues of tasks cut: {stored} jobs")


async def note(number: int) -> int:
    return number


async def numbers_of(app: Penstock, name: str, count: int) -> list[int]:
    """Run all jobs, and return what they were called with."""
    ran: list[int] = []

    @app.task(name=name, queue=name)
    async def seen(number: int) -> None:
        ran.append(number)

    async with working_as(app, {name: 20}):
        async with asyncio.timeout(PATIENCE_S):
            while (await app.queues.get(name)).counts.get("succeeded", 0) < count:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.02)
    return ran


@pytest.mark.usefixtures("_short_pauses")
async def test_many_and_fan_outs_are_stored_once_although_their_answers_are_lost(
    proxy: CuttingProxy, name: str
) -> None:
    async with Penstock(proxy.url, timeout=20) as app, Penstock(proxy.server_url, timeout=20) as direct:
        task = app.task(name=name, queue=name)(note)

        @app.task(name=f"{name}-all", queue=name)
        async def everything(numbers: list[int]) -> int:
            return sum(numbers)

        proxy.cut_next(Cut.CLOSE, Cut.RESET)
        outcomes = await app.enqueue_many(task.call(number) for number in range(3))
        assert not any(isinstance(one, Exception) for one in outcomes)
        proxy.cut_next(Cut.RESET, Cut.CLOSE)
        flow = await app.fan_out([task.call(number) for number in range(4)], then=everything)
        proxy.cut_next(Cut.CLOSE)
        chain = await task.call(7).then(task).enqueue()
        assert len(proxy.cut_answers) == 5
        assert (await direct.queues.get(name)).counts["queued"] == 3 + 4 + 1
        direct.task(name=name, queue=name)(note)
        direct.task(name=f"{name}-all", queue=name)(everything.function)
        async with working(direct):
            assert (await flow.result(PATIENCE_S), await chain.result(PATIENCE_S)) == (6, 7)
        assert (await direct.queues.get(name)).counts["succeeded"] == 3 + 4 + 1 + 2


# -- kill -9 of a worker that holds offers --------------------------------------------------------

HELD = 100
OFFER_MS = 4_000

COLLECTOR = """
    from penstock import Penstock

    app = Penstock({url!r})

    @app.batch_task(name={name!r}, queue={name!r}, size=500, linger=5)
    async def collect(items: list[int]) -> list[int]:
        return items
"""


@pytest.mark.slow
async def test_offers_of_a_killed_worker_cost_no_attempt_and_are_offered_again(
    shared_url: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / "collector.py").write_text(textwrap.dedent(COLLECTOR.format(url=shared_url, name=name)))
    async with Penstock(shared_url, timeout=20) as app:
        await app.queues.put(name, offer_ms=OFFER_MS)

        @app.task(name=name, queue=name)
        async def collect(items: int) -> int:
            assert (current().attempt, current().losses) == (1, 0)
            return items

        outcomes = await app.enqueue_many(collect.call(number) for number in range(HELD))
        jobs = [one for one in outcomes if not isinstance(one, Exception)]
        with WorkerProcess(tmp_path, "collector:app") as worker:
            async with asyncio.timeout(PATIENCE_S):
                while (await app.queues.get(name)).counts.get("offered", 0) < HELD:  # noqa: ASYNC110 - nothing signals it
                    await asyncio.sleep(0.01)
            worker.send(signal.SIGKILL)
            worker.exit_code()
        assert {(await job.view()).attempts for job in jobs} == {0}
        async with working_as(app, {name: 20}):
            assert [await job.result(PATIENCE_S) for job in jobs] == list(range(HELD))
        views: list[JobView] = [await job.view() for job in jobs]
    assert {(view.attempts, view.losses) for view in views} == {(1, 0)}


# -- one suite for all stores ---------------------------------------------------------------------


async def test_fan_in_runs_the_continuation_once(app: Penstock, name: str) -> None:
    assembled: list[int] = []

    @app.task(name=f"{name}-field", queue=name)
    async def field(number: int) -> int:
        return number

    @app.task(name=f"{name}-assemble", queue=name)
    async def assemble(doc: str, fields: list[int]) -> str:
        assembled.append(len(fields))
        return f"{doc}: {sum(fields)}"

    async with working_as(app, {name: 20}):
        flow = await app.fan_out([field.call(number) for number in range(42)], entity="doc", then=assemble)
        assert await flow.result(PATIENCE_S) == f"doc: {sum(range(42))}"
    assert assembled == [42]


async def test_a_unique_key_has_one_unfinished_job(app: Penstock, name: str) -> None:
    task = app.task(name=name, queue=name)(note)
    first, *others = [await task.opts(unique="order-17").enqueue(number) for number in range(5)]
    assert {job.id for job in others} == {first.id}
    assert [job.duplicate for job in others] == [True] * 4
    async with working(app):
        assert await first.result(PATIENCE_S) == 0
        later = await task.opts(unique="order-17").enqueue(9)
        assert (later.duplicate, await later.result(PATIENCE_S)) == (False, 9)


async def test_a_concurrency_key_bounds_what_runs_at_once(app: Penstock, name: str) -> None:
    running = most = 0
    both = asyncio.Event()

    @app.task(name=name, queue=name, concurrency=("api", 2))
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            both.set()
        await both.wait()
        await asyncio.sleep(0.01)  # Long enough for a third to begin, if it could.
        running -= 1

    async with working_as(app, {name: 8}):
        jobs = [await work.enqueue() for _ in range(10)]
        for job in jobs:
            await job.result(PATIENCE_S)
    assert most == 2


async def test_a_start_rate_bounds_how_many_start(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name, rate=("stripe", 20))
    async def work() -> None: ...

    async with working_as(app, {name: 8}):
        # Together, or the calls alone might take as long as the starts have to.
        jobs = [one for one in await app.enqueue_many([work.call()] * 7) if not isinstance(one, Exception)]
        for job in jobs:
            await job.result(PATIENCE_S)
    views: list[JobView] = [await job.view() for job in jobs]
    assert len(views) == 7
    took_ms = max(view.history[0].started_at_ms for view in views) - min(view.enqueued_at_ms for view in views)
    assert took_ms >= 6 * 50 - 50, "the first may start at once, and one every 50 ms after it"


async def test_a_batch_shares_one_call_and_each_item_ends_by_itself(app: Penstock, name: str) -> None:
    sizes: list[int] = []

    @app.batch_task(name=name, queue=name, size=10, linger=2, retry=ONCE)
    async def halve(numbers: list[int]) -> list[float | Exception]:
        sizes.append(len(numbers))
        return [number / 2 if number else ValueError("nothing") for number in numbers]

    jobs = [await halve.enqueue(number) for number in range(10)]
    async with working(app):
        assert [await job.result(PATIENCE_S) for job in jobs[1:]] == [number / 2 for number in range(1, 10)]
        with pytest.raises(errors.JobDead, match="nothing"):
            await jobs[0].result(PATIENCE_S)
    assert (sum(sizes), max(sizes) > 1) == (10, True)


async def test_dead_letters_are_kept_and_can_be_run_again(app: Penstock, name: str) -> None:
    broken = True

    @app.task(name=name, queue=name, retry=ONCE)
    async def work(number: int) -> int:
        if broken:
            raise ConnectionError("the service is down")
        return number

    async with working(app):
        jobs = [await work.enqueue(number) for number in range(3)]
        for job in jobs:
            with pytest.raises(errors.JobDead, match="ConnectionError: the service is down"):
                await job.result(PATIENCE_S)
        dead = (await app.jobs.dead(queue=name)).jobs
        assert {job.id for job in dead} == {job.id for job in jobs}
        broken = False
        await app.queues.requeue_dead(name)

        async def again(job: Any) -> Any:
            async with asyncio.timeout(PATIENCE_S):
                while (await job.view()).state == "dead":  # noqa: ASYNC110 - nothing signals it
                    await asyncio.sleep(0.01)
            return await job.result(PATIENCE_S)

        assert [await again(job) for job in jobs] == [0, 1, 2]
        assert (await app.jobs.dead(queue=name)).jobs == []


async def test_a_lost_job_is_rescued_once_its_lease_is_over_and_not_before(app: Penstock, name: str) -> None:
    await app.queues.put(name, lease_ms=1_000)
    ran: list[tuple[int, int]] = []

    @app.task(name=name, queue=name)
    async def work(number: int) -> int:
        ran.append((current().attempt, current().losses))
        return number

    job = await work.enqueue(5)
    [offer] = (await app.work.dequeue([name], wait=10)).offers
    await app.work.accept(offer.token)  # And its worker is never heard of again.
    await app.queues.change(name, lease_ms=600_000)  # The next lease must not end, however slow the machine is.
    async with working(app):
        assert await job.result(PATIENCE_S) == 5
    with pytest.raises(errors.LeaseLost):
        await app.work.complete(offer.token, 6)
    view = await job.view()
    lost, done = view.history
    assert (ran, view.attempts, view.losses, view.failures) == ([(2, 1)], 2, 1, 0)
    assert (lost.number, lost.outcome, done.number, done.outcome) == (1, "lost", 2, "succeeded")
    assert done.started_at_ms - lost.started_at_ms >= 1_000
    assert await job.result(PATIENCE_S) == 5
