"""What a dead request gives back late: it never touches what a later request owns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.job import Failure, JobState, Offer
from penstock.domain.limits import Limits
from penstock.domain.retry import RetryPolicy
from penstock.engine.engine import Engine
from penstock.engine.jobs.jobs import Jobs
from penstock.store.job_port import Accept, Complete, Fail, Release
from penstock.testing import CountedIds, ManualClock
from tests.support.job_service import Pause, enqueue, make_queue, poll
from tests.support.job_streams import Reader
from tests.support.stores import Home, on_postgres

OFFER_MS = 10_000
BEGUN = "jobs.report.begun"
COMMITTED = "jobs.report.committed"


@pytest.fixture
async def jobs(engine: Engine) -> Jobs:
    await make_queue(engine.jobs, offer_ms=OFFER_MS, retry=RetryPolicy(backoff_ms=0))
    return engine.jobs


@dataclass(frozen=True)
class Scene:
    """A request that dies at one node, and a later one that may be at another."""

    dying: Jobs
    later: Jobs
    failpoints: Failpoints
    """Of the node at which the first request dies."""
    clock: ManualClock


# -- how a request dies: what it was offered is on its way back, and held up at `BEGUN` ------------


async def break_a_stream(scene: Scene) -> tuple[Offer | None, Pause]:
    stream = Reader(scene.dying.streams.open(["orders"], credit=3, worker="first"))
    [offer] = await stream.next()
    pause = Pause(scene.failpoints, BEGUN)
    await stream.close()
    return offer, pause


async def lose_an_answer(scene: Scene) -> tuple[Offer | None, Pause]:
    [offer] = await poll(scene.dying, worker="first")
    pause = Pause(scene.failpoints, BEGUN)
    scene.dying.offering.give_back([offer])
    return offer, pause


async def cancel_a_poll(scene: Scene) -> tuple[Offer | None, Pause]:
    at_work = Pause(scene.failpoints, "jobs.offer.committed")
    leaving = asyncio.create_task(poll(scene.dying, worker="first"))
    await at_work.reached.wait()
    leaving.cancel()
    pause = Pause(scene.failpoints, BEGUN)
    at_work.go_on.set()
    await asyncio.wait([leaving])
    return None, pause


# -- what happens meanwhile; returns the lease that counts, if there is one -----------------------


async def somebody_is_offered_it(scene: Scene, first: Offer | None) -> Offer | None:
    await scene.clock.advance(ms=OFFER_MS)
    [offer] = await poll(scene.later, worker="second", wait_ms=1_000)
    return offer


async def somebody_accepts_it(scene: Scene, first: Offer | None) -> Offer | None:
    offer = await somebody_is_offered_it(scene, first)
    assert offer is not None
    await scene.later.reports.report(Accept(offer.lease))
    return offer


async def somebody_declines_it_and_a_third_is_offered_it(scene: Scene, first: Offer | None) -> Offer | None:
    offer = await somebody_is_offered_it(scene, first)
    assert offer is not None
    await scene.later.reports.report(Release(offer.lease))
    [offer] = await poll(scene.later, worker="third", wait_ms=1_000)
    return offer


async def it_is_finished(scene: Scene, first: Offer | None) -> Offer | None:
    offer = await somebody_accepts_it(scene, first)
    assert offer is not None
    await scene.later.reports.report(Complete(offer.lease))
    return None


async def the_first_accepts_it(scene: Scene, first: Offer | None) -> Offer | None:
    """The answer had arrived after all."""
    if first is None:
        return await somebody_accepts_it(scene, first)
    await scene.later.reports.report(Accept(first.lease))
    return first


async def the_first_fails_and_somebody_is_offered_it(scene: Scene, first: Offer | None) -> Offer | None:
    offer = await the_first_accepts_it(scene, first)
    assert offer is not None
    await scene.later.reports.report(Fail(offer.lease, Failure(kind="Bug")))
    [offer] = await poll(scene.later, worker="second", wait_ms=1_000)
    return offer


async def the_first_gives_it_back_and_somebody_is_offered_it(scene: Scene, first: Offer | None) -> Offer | None:
    offer = await the_first_accepts_it(scene, first)
    assert offer is not None
    await scene.later.reports.report(Release(offer.lease))
    [offer] = await poll(scene.later, worker="second", wait_ms=1_000)
    return offer


Death = Callable[[Scene], Awaitable[tuple[Offer | None, Pause]]]
Meanwhile = Callable[[Scene, Offer | None], Awaitable[Offer | None]]
DEATHS: list[Death] = [break_a_stream, lose_an_answer, cancel_a_poll]
MEANWHILE: list[Meanwhile] = [
    somebody_is_offered_it,
    somebody_accepts_it,
    somebody_declines_it_and_a_third_is_offered_it,
    it_is_finished,
    the_first_accepts_it,
    the_first_fails_and_somebody_is_offered_it,
    the_first_gives_it_back_and_somebody_is_offered_it,
]


async def check(scene: Scene, die: Death, meanwhile: Meanwhile) -> None:
    stored = await enqueue(scene.dying)
    first, pause = await die(scene)
    await pause.reached.wait()
    holder = await meanwhile(scene, first)
    before = await scene.later.looking.job(stored.job_id)
    done = Pause(scene.failpoints, COMMITTED)
    pause.go_on.set()
    await done.reached.wait()
    done.go_on.set()
    assert await scene.later.looking.job(stored.job_id) == before
    assert await poll(scene.later, worker="another") == []
    if holder is not None:
        await scene.later.reports.report(Accept(holder.lease))
        assert (await scene.later.reports.report(Complete(holder.lease))).state is JobState.SUCCEEDED


@pytest.mark.parametrize("die", DEATHS)
@pytest.mark.parametrize("meanwhile", MEANWHILE)
async def test_a_late_return_leaves_a_later_holder_alone(
    jobs: Jobs, failpoints: Failpoints, clock: ManualClock, die: Death, meanwhile: Meanwhile
) -> None:
    await check(Scene(jobs, jobs, failpoints, clock), die, meanwhile)


@on_postgres
@pytest.mark.parametrize("die", DEATHS)
@pytest.mark.parametrize("meanwhile", MEANWHILE)
async def test_a_late_return_leaves_a_later_holder_at_another_node_alone(
    home: Home, jobs: Jobs, failpoints: Failpoints, clock: ManualClock, die: Death, meanwhile: Meanwhile
) -> None:
    store = await home.open(failpoints=Failpoints())
    other = Engine(store, clock=clock, ids=CountedIds(), limits=Limits()).jobs
    await check(Scene(jobs, other, failpoints, clock), die, meanwhile)


async def test_a_return_that_is_repeated_leaves_a_later_holder_alone(
    jobs: Jobs, failpoints: Failpoints, clock: ManualClock
) -> None:
    await enqueue(jobs)
    [first] = await poll(jobs, worker="first")
    lost = asyncio.Event()

    def lose_the_answer() -> None:
        lost.set()
        raise StoreUnavailable("the answer was lost")

    failpoints.arm(COMMITTED, lose_the_answer)
    jobs.offering.give_back([first])
    await lost.wait()
    [second] = await poll(jobs, worker="second", wait_ms=1_000)
    assert second.lease.job_id == first.lease.job_id
    repeated = Pause(failpoints, COMMITTED)
    while not repeated.reached.is_set():
        await clock.advance(ms=100)
        # A database takes real time, in which the offer must not lapse by this clock.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await repeated.reached.wait()
    repeated.go_on.set()
    await jobs.settle()
    await jobs.reports.report(Accept(second.lease))
    assert (await jobs.reports.report(Complete(second.lease))).state is JobState.SUCCEEDED


async def test_what_reaches_a_stream_after_it_broke_goes_back(jobs: Jobs, failpoints: Failpoints) -> None:
    stored = await enqueue(jobs)
    at_work = Pause(failpoints, "jobs.offer.committed")
    stream = Reader(jobs.streams.open(["orders"], credit=1, worker="first"))
    reading = stream.reading()
    await at_work.reached.wait()
    stream.stream.close()
    at_work.go_on.set()
    with pytest.raises(StopAsyncIteration):
        await reading
    await jobs.settle()
    [offer] = await poll(jobs, worker="second", wait_ms=1_000)
    assert offer.lease.job_id == stored.job_id
    assert not jobs.streams.holders
