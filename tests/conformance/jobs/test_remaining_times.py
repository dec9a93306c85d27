"""Offers and reports say how much time is left, so that no worker has to know what time it is."""

from __future__ import annotations

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import Failure
from penstock.store.job_port import Accept, Complete, Fail, Heartbeat, JobStore, Release, Snooze
from penstock.testing import ManualClock
from tests.support.job_steps import draft, enqueue, make_queue, offer, report
from tests.support.stores import on_postgres


async def test_an_offer_says_how_long_it_lasts_and_how_long_its_lease_will(jobs: JobStore) -> None:
    queue = await make_queue(jobs, offer_ms=7_000, lease_ms=20_000)
    await enqueue(jobs, queue)
    [one] = await offer(jobs, queue)
    assert (one.accept_in_ms, one.lease_ms) == (7_000, 20_000)


async def test_a_lease_lasts_no_longer_than_the_attempt_may_run(jobs: JobStore) -> None:
    queue = await make_queue(jobs, lease_ms=20_000)
    await enqueue(jobs, queue, draft(timeout_ms=5_000))
    [one] = await offer(jobs, queue)
    assert one.lease_ms == 5_000
    assert (await report(jobs, Accept(one.lease))).lease_ms == 5_000


async def test_a_report_says_what_is_left_of_the_lease_also_when_it_is_repeated(
    jobs: JobStore, clock: ManualClock
) -> None:
    queue = await make_queue(jobs, lease_ms=20_000, timeout_ms=30_000)
    await enqueue(jobs, queue)
    [one] = await offer(jobs, queue)
    assert (await report(jobs, Accept(one.lease))).lease_ms == 20_000
    await clock.advance(ms=1_500)
    assert (await report(jobs, Accept(one.lease))).lease_ms == 18_500
    assert (await report(jobs, Heartbeat(one.lease))).lease_ms == 20_000
    await clock.advance(ms=15_000)
    assert (await report(jobs, Heartbeat(one.lease))).lease_ms == 13_500


async def test_what_ends_an_attempt_leaves_no_lease_at_first_or_repeated(jobs: JobStore) -> None:
    queue = await make_queue(jobs)
    await enqueue(jobs, queue, *(draft() for _ in range(4)))
    [first, second, third, fourth] = [one.lease for one in await offer(jobs, queue)]
    for lease in (first, second, third, fourth):
        await report(jobs, Accept(lease))
    for ending in (Complete(first), Fail(second, Failure(kind="Bug")), Release(third), Snooze(fourth, 1_000)):
        for _ in range(2):
            assert (await report(jobs, ending)).lease_ms is None
    [declined] = [one.lease for one in await offer(jobs, queue)]
    assert (await report(jobs, Release(declined))).lease_ms is None


@on_postgres
async def test_an_offer_whose_commit_was_unknown_says_what_is_left_now(
    jobs: JobStore, clock: ManualClock, failpoints: Failpoints
) -> None:
    queue = await make_queue(jobs, offer_ms=7_000)
    await enqueue(jobs, queue)
    tried = 0

    async def lose_the_answer() -> None:
        nonlocal tried
        tried += 1
        await clock.advance(ms=1_000)
        raise ConnectionResetError

    failpoints.arm("jobs.offer.committed", lose_the_answer)
    [one] = await offer(jobs, queue)
    assert (tried, one.accept_in_ms) == (1, 6_000)
