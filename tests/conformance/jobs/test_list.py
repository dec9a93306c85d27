from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import Job, JobState
from penstock.domain.job_errors import JobQueueDoesNotExist
from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue, JobQueueSettings
from penstock.domain.operation import JobFilter
from penstock.store.job_port import JobStore
from penstock.store.jobs.store import ScriptedJobs
from penstock.testing import ManualClock
from tests.support.job_lives import add, add_many, complete, die, ids_of
from tests.support.job_steps import start

PAGES_MAX = 100


async def pages(jobs: JobStore, wanted: JobFilter, limit: int) -> list[list[Job]]:
    """Follow a list to its end."""
    found: list[list[Job]] = []
    before = None
    for _ in range(PAGES_MAX):
        page = await jobs.jobs(wanted, before=before, limit=limit)
        if not page:
            return found
        found.append(page)
        before = page[-1].position
    raise AssertionError(f"more than {PAGES_MAX} pages")


async def every(jobs: JobStore, limit: int = 100, **conditions: Any) -> list[str]:
    """The ids of all jobs that match, the newest first."""
    return [job.id for page in await pages(jobs, JobFilter(**conditions), limit) for job in page]


async def test_the_newest_come_first_in_pages(jobs: JobStore, queue: JobQueue) -> None:
    enqueued = await add_many(jobs, queue, 7)
    found = await pages(jobs, JobFilter(), 3)
    assert [ids_of(page) for page in found] == [enqueued[:3:-1], enqueued[3:0:-1], enqueued[:1]]
    assert [job.position for page in found for job in page] == sorted(
        (job.position for page in found for job in page), reverse=True
    )


async def test_an_empty_store_has_none(jobs: JobStore, queue: JobQueue) -> None:
    assert await jobs.jobs(JobFilter(), limit=10) == []
    assert await jobs.jobs(JobFilter(queue=queue.name, states=(JobState.DEAD,), task="x", tag="y"), limit=10) == []


async def test_a_listed_job_is_the_job_without_its_attempts(jobs: JobStore, queue: JobQueue) -> None:
    await add(jobs, queue, tags=("a",), payload=b"[1]", tenant="acme")
    job_id = await complete(jobs, queue, b"[2]")
    [listed] = await jobs.jobs(JobFilter(queue=queue.name), limit=1)
    job = await jobs.job(job_id)
    assert len(job.history) == 1
    assert listed.history == ()
    assert (listed.payload, listed.result, listed.tags, listed.tenant) == (b"[1]", b"[2]", ("a",), "acme")
    assert (listed.id, listed.position, listed.state) == (job.id, job.position, JobState.SUCCEEDED)


@pytest.mark.parametrize("rows_max", [1, 2, 7, 10_000])
async def test_every_filter_by_itself_and_all_together(
    jobs: JobStore, queue: JobQueue, clock: ManualClock, rows_max: int
) -> None:
    assert isinstance(jobs, ScriptedJobs)
    other, _ = await jobs.create_queue("other", JobQueueSettings())
    died = [await add(jobs, queue, tags=("red",), tenant="acme") for _ in range(2)]
    await die(jobs, queue, "Broken")
    await die(jobs, queue, "Odd")
    early_ms = clock.now_ms()
    await clock.advance(seconds=10)
    prints = await add_many(jobs, queue, 3, task="print", tags=("red", "blue"))
    await clock.advance(seconds=10)
    late_ms = clock.now_ms()
    others = await add_many(jobs, other, 3, task="print", tenant="acme", tags=("red",))
    running = await add(jobs, queue, priority=9)
    await start(jobs, queue)

    few = jobs.limited(JobLimits(list_rows_max=rows_max))
    everything = [*died, *prints, *others, running]
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({}, everything),
        ({"queue": queue.name}, [*died, *prints, running]),
        ({"queue": "other"}, others),
        ({"states": (JobState.DEAD,)}, died),
        ({"states": (JobState.DEAD, JobState.RUNNING)}, [*died, running]),
        ({"queue": queue.name, "states": (JobState.QUEUED, JobState.QUEUED)}, prints),
        ({"task": "print"}, [*prints, *others]),
        ({"tenant": "acme"}, [*died, *others]),
        ({"tag": "red"}, [*died, *prints, *others]),
        ({"tag": "blue"}, prints),
        ({"tag": "green"}, []),
        ({"tag": "red", "queue": queue.name}, [*died, *prints]),
        ({"tag": "red", "states": (JobState.DEAD,)}, died),
        ({"failure_kind": "Odd"}, died[1:]),
        ({"enqueued_from_ms": late_ms}, [*others, running]),
        ({"enqueued_before_ms": late_ms}, [*died, *prints]),
        ({"enqueued_from_ms": early_ms + 1, "enqueued_before_ms": late_ms}, prints),
        ({"queue": queue.name, "states": (JobState.DEAD,), "failure_kind": "Broken"}, died[:1]),
        (
            {
                "queue": "other",
                "states": (JobState.QUEUED,),
                "task": "print",
                "tenant": "acme",
                "tag": "red",
                "enqueued_from_ms": late_ms,
                "enqueued_before_ms": late_ms + 1,
            },
            others,
        ),
        ({"queue": "other", "task": "print", "tenant": "nobody"}, []),
    ]
    for conditions, ids in expected:
        assert await every(few, **conditions) == ids[::-1], conditions
        assert await every(few, limit=1, **conditions) == ids[::-1], conditions


async def test_a_search_goes_on_until_it_finds_something(jobs: JobStore, queue: JobQueue) -> None:
    assert isinstance(jobs, ScriptedJobs)
    wanted = await add(jobs, queue, task="rare")
    await add_many(jobs, queue, 50)
    few = jobs.limited(JobLimits(list_rows_max=5))
    assert ids_of(await few.jobs(JobFilter(task="rare"), limit=10)) == [wanted]
    assert ids_of(await few.jobs(JobFilter(queue=queue.name, task="rare"), limit=10)) == [wanted]
    assert await few.jobs(JobFilter(queue=queue.name, task="none"), limit=10) == []


@pytest.mark.parametrize(
    ("wanted", "rows_max", "stretches_min"),
    [
        (JobFilter(task="rare"), 5, 6),
        (JobFilter(task="rare", states=(JobState.QUEUED, JobState.SCHEDULED)), 10, 6),
        (JobFilter(queue="mail", task="rare"), 40, 6),
        (JobFilter(tag="red", task="rare"), 5, 6),
    ],
)
async def test_a_search_is_done_stretch_by_stretch(
    jobs: JobStore, queue: JobQueue, failpoints: Failpoints, wanted: JobFilter, rows_max: int, stretches_min: int
) -> None:
    """Each is a transaction that looks at so many rows, those of all states together, and lets others go between."""
    assert isinstance(jobs, ScriptedJobs)
    await add_many(jobs, queue, 20, tags=("red",))
    await add_many(jobs, queue, 20, tags=("red",), delay_ms=1_000)
    stretches: list[int] = []
    for number in range(100):
        failpoints.arm("jobs.jobs.begun", partial(stretches.append, number))
    assert await jobs.limited(JobLimits(list_rows_max=rows_max)).jobs(wanted, limit=10) == []
    assert stretches_min <= len(stretches) < 100


async def test_jobs_in_a_state_are_found_in_any_number_of_queues(jobs: JobStore) -> None:
    dead = []
    for number in range(70):
        queue, _ = await jobs.create_queue(f"queue-{number:02}", JobQueueSettings())
        if number % 30 == 0:
            dead.append(await add(jobs, queue))
            await die(jobs, queue)
    assert await every(jobs, states=(JobState.DEAD,)) == dead[::-1]


async def test_a_page_is_cut_off_where_it_gets_too_large(jobs: JobStore, queue: JobQueue) -> None:
    enqueued = [await add(jobs, queue, payload=b'"%s"' % (b"x" * 3_000_000)) for _ in range(5)]
    found = await pages(jobs, JobFilter(queue=queue.name), 10)
    assert [len(page) for page in found] == [3, 2]
    assert [job.id for page in found for job in page] == enqueued[::-1]


async def test_a_queue_that_is_missing(jobs: JobStore, queue: JobQueue) -> None:
    with pytest.raises(JobQueueDoesNotExist):
        await jobs.jobs(JobFilter(queue="missing"), limit=1)


async def test_jobs_enqueued_meanwhile_do_not_disturb_the_pages(jobs: JobStore, queue: JobQueue) -> None:
    enqueued = await add_many(jobs, queue, 4)
    first = await jobs.jobs(JobFilter(), limit=2)
    await add_many(jobs, queue, 3)
    second = await jobs.jobs(JobFilter(), before=first[-1].position, limit=10)
    assert ids_of(first + second) == enqueued[::-1]


@pytest.mark.parametrize("conditions", [{}, {"tag": "red"}, {"task": "mail"}, {"states": (JobState.QUEUED,)}])
@pytest.mark.parametrize("number", [2, 70])
async def test_a_filter_by_several_queues_shows_their_jobs_alone(
    jobs: JobStore, number: int, conditions: dict[str, Any]
) -> None:
    """With few queues their indexes are walked, and with many all positions."""
    mine, wanted = [f"mine-{place:02}" for place in range(number)], []
    for name in mine:
        for queue_name in (name, "theirs"):
            queue, _ = await jobs.create_queue(queue_name, JobQueueSettings())
            job_id = await add(jobs, queue, tags=("red",))
            wanted += [job_id] * (queue_name != "theirs")
    assert await every(jobs, queues=tuple(mine), limit=7, **conditions) == wanted[::-1]
    assert await every(jobs, queues=(), **conditions) == []
    assert await every(jobs, queues=("nowhere", mine[0]), **conditions) == wanted[:1]
    assert await every(jobs, queue="theirs", queues=tuple(mine), **conditions) == []


async def test_a_page_is_full_however_far_apart_its_jobs_are(jobs: JobStore, queue: JobQueue) -> None:
    assert isinstance(jobs, ScriptedJobs)
    wanted = []
    for _ in range(7):
        wanted.append(await add(jobs, queue, tenant="acme"))
        await add_many(jobs, queue, 10, tenant="bolt")
    few = jobs.limited(JobLimits(list_rows_max=5))
    found = await pages(few, JobFilter(tenant="acme"), 3)
    assert [ids_of(page) for page in found] == [wanted[6:3:-1], wanted[3:0:-1], wanted[:1]]


async def test_a_page_ends_with_the_job_that_fills_it(jobs: JobStore, queue: JobQueue) -> None:
    assert isinstance(jobs, ScriptedJobs)
    large = b'"' + b"x" * 3_000_000 + b'"'
    ids = [await add(jobs, queue, payload=large) for _ in range(5)]
    few = jobs.limited(JobLimits(list_rows_max=1))
    for store in (jobs, few):
        found = await pages(store, JobFilter(tenant=""), 10)
        assert [ids_of(page) for page in found] == [ids[:1:-1], ids[1::-1]]
