from __future__ import annotations

from penstock.domain.job_limits import JobLimits
from penstock.domain.job_queue import JobQueue, JobQueueSettings
from penstock.store.job_port import DeadGroup, JobStore
from penstock.store.jobs.store import ScriptedJobs
from penstock.testing import ManualClock
from tests.support.job_lives import add, die


async def die_of(jobs: JobStore, queue: JobQueue, task: str, kind: str) -> str:
    await add(jobs, queue, task=task)
    return await die(jobs, queue, kind)


async def test_dead_jobs_are_grouped_by_task_and_kind(jobs: JobStore, queue: JobQueue, clock: ManualClock) -> None:
    await die_of(jobs, queue, "mail", "Refused")
    print_id = await die_of(jobs, queue, "print", "Refused")
    print_at_ms = clock.now_ms()
    await clock.advance(seconds=1)
    odd_id = await die_of(jobs, queue, "mail", "Odd")
    odd_at_ms = clock.now_ms()
    await clock.advance(seconds=1)
    mail_id = await die_of(jobs, queue, "mail", "Refused")
    groups = [
        DeadGroup("mail", "Refused", 2, clock.now_ms(), mail_id),
        DeadGroup("mail", "Odd", 1, odd_at_ms, odd_id),
        DeadGroup("print", "Refused", 1, print_at_ms, print_id),
    ]
    assert await jobs.dead_groups(queue, limit=10) == groups
    assert await jobs.dead_groups(queue, limit=1) == groups[:1]


async def test_only_the_dead_of_the_queue_count(jobs: JobStore, queue: JobQueue) -> None:
    other, _ = await jobs.create_queue("other", JobQueueSettings())
    await die_of(jobs, other, "mail", "Refused")
    retried = await die_of(jobs, queue, "mail", "Refused")
    await jobs.retry(retried)
    assert await jobs.dead_groups(queue, limit=10) == []


async def test_groups_are_put_together_over_several_stretches(jobs: JobStore, queue: JobQueue) -> None:
    assert isinstance(jobs, ScriptedJobs)
    for _ in range(4):
        await die_of(jobs, queue, "mail", "Refused")
        await die_of(jobs, queue, "mail", "Odd")
    few = jobs.limited(JobLimits(list_rows_max=3))
    assert [(group.kind, group.count) for group in await few.dead_groups(queue, limit=10)] == [
        ("Odd", 4),
        ("Refused", 4),
    ]
    assert await few.dead_groups(queue, limit=10) == await jobs.dead_groups(queue, limit=10)


async def test_of_very_many_the_newest_are_grouped(jobs: JobStore, queue: JobQueue) -> None:
    assert isinstance(jobs, ScriptedJobs)
    await die_of(jobs, queue, "mail", "Old")
    for _ in range(4):
        await die_of(jobs, queue, "mail", "New")
    few = jobs.limited(JobLimits(list_rows_max=2, groups_rows_max=4))
    assert [(group.kind, group.count) for group in await few.dead_groups(queue, limit=10)] == [("New", 4)]
