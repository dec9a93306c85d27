"""What goes wrong around a worker, one thing at a time: its own tasks, its observer, its way to the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from penstock import Context, Penstock, Retry, Worker, current, errors
from penstock.client.requests import NewJob
from penstock.client.worker import notices
from penstock.client.worker.events import FLUSH_COUNT
from penstock.client.worker.notices import Notice
from penstock.wire.jobs.answers import Problem, ReportEntry
from tests.end_to_end.running import RunningServer
from tests.tasks.links import Link
from tests.tasks.working import PATIENCE_S, Notes, until, working_as

AT_ONCE = Retry(5, losses=5, backoff=0, max_backoff=0)
REPORTS = b"POST /v1/leases "
STREAM = b"POST /v1/dequeue "
CREDIT = b"POST /v1/dequeue/"


@pytest.fixture
def link(served: RunningServer) -> Iterator[Link]:
    with Link(served.url) as link:
        yield link


@pytest.fixture
async def direct(served: RunningServer) -> AsyncIterator[Penstock]:
    """A client with a way of its own."""
    async with Penstock(served.url) as app:
        yield app


@pytest.fixture
async def linked(link: Link) -> AsyncIterator[Penstock]:
    async with Penstock(link.url) as app:
        yield app


async def test_a_task_that_raises_cancelled_error_fails_and_frees_its_slot(direct: Penstock, name: str) -> None:
    @direct.task(name=name, queue=name, retry=AT_ONCE)
    async def cancels_itself() -> int:
        if current().attempt < 3:
            raise asyncio.CancelledError
        return current().attempt

    async with working_as(direct, {name: 1}) as notes:
        assert await (await cancels_itself.enqueue()).result(PATIENCE_S) == 3
    assert [notice.trouble.kind for notice in notes.of(notices.Retrying)] == ["CancelledError"] * 2


async def test_a_base_exception_of_a_thread_fails_the_attempt(direct: Penstock, name: str) -> None:
    class Gone(BaseException):
        pass

    @direct.task(name=name, queue=name, retry=AT_ONCE)
    def raises() -> int:
        if current().attempt < 3:
            raise Gone
        return current().attempt

    async with working_as(direct, {name: 1}):
        assert await (await raises.enqueue()).result(PATIENCE_S) == 3


async def test_an_observer_that_fails_stops_nothing(direct: Penstock, name: str) -> None:
    class Broken:
        verbose = True

        def notice(self, notice: Notice) -> None:
            raise RuntimeError(f"cannot take in {notice}")

    @direct.task(name=name, queue=name)
    async def double(n: int) -> int:
        return 2 * n

    worker = Worker(direct, {name: 1}, observer=Broken(), grace=5)
    running = asyncio.create_task(worker.run(signals=False))
    for n in range(3):
        assert await (await double.enqueue(n)).result(PATIENCE_S) == 2 * n
    worker.stop()
    await running


async def test_an_offer_that_comes_twice_is_run_once(linked: Penstock, direct: Penstock, link: Link, name: str) -> None:
    starts: list[int] = []
    ends = asyncio.Event()

    @linked.task(name=name, queue=name)
    async def work() -> None:
        starts.append(current().attempt)
        await ends.wait()

    await direct.queues.put(name, offer_ms=30_000)
    async with working_as(linked, {name: 2}) as notes:
        await notes.wait_for(notices.Ready)
        link.hold(REPORTS)
        enqueued = await direct.jobs.enqueue(name, name, {})
        await asyncio.to_thread(link.wait_until_holding)
        # The accept is under way. The stream breaks, and the next one repeats the offer.
        assert link.cut(STREAM, unnoticed=True)
        await notes.wait_for(notices.ConnectionBack)
        link.let_go()
        await until(lambda: starts)
        # A job that comes later has been accepted after whatever was accepted twice.
        later = await direct.jobs.enqueue(name, name, {})
        await until(lambda: len(starts) > 1)
        ends.set()
        for job in (enqueued, later):
            assert (await direct.jobs.result(job.id, wait=PATIENCE_S)).state == "succeeded"
    assert starts == [1, 1]


async def test_a_worker_fences_itself_while_a_change_of_credit_hangs(
    linked: Penstock, direct: Penstock, link: Link, name: str
) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @linked.task(name=f"{name}-quick", queue=name)
    async def quick() -> None:
        return

    @linked.task(name=f"{name}-long", queue=name)
    async def long() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with working_as(linked, {name: 1}) as notes:
        await notes.wait_for(notices.Ready)
        link.hold(CREDIT)
        enqueued = 0
        while not link.holding:
            # Together, so that the worker and not this test decides how fast they are done.
            await direct.jobs.enqueue_many([NewJob(queue=name, task=f"{name}-quick", payload={})] * 200)
            enqueued += 200
            await until(lambda: len(notes.of(notices.Done)) == enqueued)  # noqa: B023 - it is awaited here
        # Its lease alone is short: those before it must not end, however slow the machine is.
        await direct.queues.change(name, lease_ms=3_000)
        await long.enqueue()
        await started.wait()
        link.hold()
        [over] = await notes.wait_for(notices.LeaseOver)
        assert notes.is_changing_credit()
        assert over.task == f"{name}-long"
        await stopped.wait()
        link.let_go()
        await direct.jobs.cancel(over.job)
    assert not notes.of(notices.Stalled)


async def test_an_accept_that_is_answered_too_late_starts_nothing(
    linked: Penstock, direct: Penstock, link: Link, name: str
) -> None:
    @linked.task(name=name, queue=name)
    async def work() -> tuple[int, int]:
        return current().attempt, current().losses

    await direct.queues.put(name, lease_ms=1_000, offer_ms=60_000)
    async with working_as(linked, {name: 1}) as notes:
        await notes.wait_for(notices.Ready)
        link.hold(REPORTS)
        job = await direct.jobs.enqueue(name, name, {})
        await asyncio.to_thread(link.wait_until_holding)
        # The leases that the server gives from now on outlast the test.
        await direct.queues.change(name, lease_ms=600_000)
        await asyncio.sleep(1.1)  # Longer than the lease, as far as the worker can know.
        link.let_go()
        # It is given back, and nothing waits for a lease to lapse.
        assert await linked.job(job.id).result(PATIENCE_S) == [2, 0]
    assert not notes.of(notices.LeaseOver)


async def test_a_report_of_a_timeout_that_is_under_way_is_no_lost_connection(
    linked: Penstock, direct: Penstock, link: Link, name: str
) -> None:
    started = asyncio.Event()
    hooked: list[Exception] = []

    @linked.on_failure
    async def note(ctx: Context, error: Exception) -> None:
        hooked.append(error)

    @linked.task(name=name, queue=name, timeout=2, retry=Retry(1))
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    async with working_as(linked, {name: 1}) as notes:
        job = await direct.jobs.enqueue(name, name, {}, timeout_ms=2_000, retry=Retry(1).settings)
        await started.wait()
        link.hold(REPORTS)
        # Nothing reaches the server in time, which ends the attempt itself.
        found = await direct.jobs.result(job.id, wait=PATIENCE_S)
        assert (found.state, found.failure and found.failure.kind) == ("dead", "timeout")
        # Since then the worker has looked after its leases, more than once.
        await asyncio.sleep(0.5)
        assert notes.of(notices.ConnectionLost) == []
        link.let_go()
        [over] = await notes.wait_for(notices.LeaseOver)
    assert over.job == job.id
    assert [type(error) for error in hooked] == [TimeoutError]


async def test_a_step_returns_only_once_it_is_recorded_also_beside_another(
    linked: Penstock, link: Link, name: str
) -> None:
    early: set[asyncio.Task[int]] = set()

    @linked.task(name=name, queue=name)
    async def two_steps() -> list[int]:
        async def step(n: int) -> int:
            return n

        for n in range(FLUSH_COUNT):
            await current().publish("event", n)
        await asyncio.sleep(0)  # So that they are sent behind the task's back.
        await current().step("step 0", step, 0)
        # The two steps that follow are recorded by one request.
        link.hold(REPORTS)
        steps = [asyncio.create_task(current().step(f"step {n}", step, n)) for n in (1, 2)]
        await asyncio.to_thread(link.wait_until_holding)
        done, _ = await asyncio.wait(steps, timeout=0.2)
        early.update(done)
        link.let_go()
        return await asyncio.gather(*steps)

    async with working_as(linked, {name: 1}):
        assert await (await two_steps.enqueue()).result(PATIENCE_S) == [1, 2]
    assert not early


async def test_a_task_that_will_not_stop_is_given_back_within_the_grace(direct: Penstock, name: str) -> None:
    started, ends = asyncio.Event(), asyncio.Event()

    @direct.task(name=name, queue=name)
    async def stubborn() -> None:
        started.set()
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue

    await direct.queues.put(name, lease_ms=600_000)
    notes = Notes()
    worker = Worker(direct, {name: 1}, grace=1, observer=notes)
    running = asyncio.create_task(worker.run(signals=False))
    job = await stubborn.enqueue()
    await started.wait()
    worker.stop()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await running  # Though the task is not at its end, and will not be.
        view = await direct.jobs.get(job.id)
        assert (view.state, view.losses) == ("queued", 0)
        assert len(notes.of(notices.Released)) == 1
    finally:
        ends.set()
        await running


async def test_offers_that_wait_for_a_batch_go_back_at_once_when_the_worker_stops(direct: Penstock, name: str) -> None:
    @direct.batch_task(name=name, queue=name, size=50, linger=5)
    async def many(items: list[int]) -> list[int]:
        return items

    await direct.queues.put(name, offer_ms=60_000)
    async with working_as(direct, {name: 1}) as notes:
        jobs = [await many.enqueue(n) for n in range(5)]
        await until(lambda: notes.held() == 5)
    assert notes.of(notices.Stopping)[0].returned == 5
    await until_counted(direct, name, "queued", 5)
    assert {(await direct.jobs.get(job.id)).attempts for job in jobs} == {0}


async def until_counted(app: Penstock, queue: str, state: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await app.queues.get(queue)).counts[state] < count:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.01)


async def test_a_report_outlasts_a_store_that_is_away_for_longer_than_a_request(
    direct: Penstock, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @direct.task(name=name, queue=name)
    async def work() -> int:
        return current().attempt

    report = direct.work.report_written
    refused: list[bytes] = []

    async def away_once(reports: Sequence[bytes], *, timeout: float | None = None) -> list[ReportEntry]:  # noqa: ASYNC109
        completes = [one for one in reports if b'"do":"complete"' in one]
        if completes and not refused:
            refused.extend(completes)
            raise errors.StoreUnavailable(Problem(type="", title="The store is away", status=503))
        return await report(reports, timeout=timeout)

    monkeypatch.setattr(direct.work, "report_written", away_once)
    async with working_as(direct, {name: 1}) as notes:
        assert await (await work.enqueue()).result(PATIENCE_S) == 1
    assert len(refused) == 1
    assert notes.of(notices.LeaseOver) == []
