"""Texts that no store can hold, or not every one."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.domain.job import JobState, Lease
from penstock.domain.job_errors import JobDoesNotExist, JobError, JobInvalid, JobQueueDoesNotExist
from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import Accept, JobStore
from tests.support.job_steps import counted, draft, enqueue

NUL, HALF = "a\0b", "a\ud800b"


@pytest.mark.parametrize("text", [NUL, HALF])
async def test_a_name_that_cannot_be_is_no_fault_of_the_store(jobs: JobStore, text: str) -> None:
    for look_up in (jobs.job, jobs.operation, jobs.schedule):
        with pytest.raises(JobError):
            await look_up(text)
    with pytest.raises((JobQueueDoesNotExist, JobInvalid)):
        await jobs.find_queue(text)


async def test_a_report_under_such_a_name_leaves_those_beside_it_alone(jobs: JobStore, queue: JobQueue) -> None:
    with pytest.raises(JobInvalid):
        await jobs.report([Accept(Lease(HALF, 1, 1))])
    [answer] = await jobs.report([Accept(Lease("other", 1, 1))])
    assert isinstance(answer, JobDoesNotExist)


@pytest.mark.parametrize("field", ["task", "tenant", "unique_key"])
async def test_a_draft_that_cannot_be_stored_stores_nothing(jobs: JobStore, queue: JobQueue, field: str) -> None:
    fields: dict[str, Any] = {field: HALF}
    with pytest.raises(JobInvalid):
        await jobs.enqueue(queue, [draft(), draft(**fields)])
    assert await counted(jobs, queue) == {}
    await enqueue(jobs, queue)
    assert await counted(jobs, queue) == {JobState.QUEUED: 1}


async def test_a_tag_that_cannot_be_stored_rolls_back_the_job(jobs: JobStore, queue: JobQueue) -> None:
    with pytest.raises(JobInvalid):
        await jobs.enqueue(queue, [draft(tags=(HALF,))])
    assert await counted(jobs, queue) == {}
