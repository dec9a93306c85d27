"""The steps of jobs' lives, as tests take them one by one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from penstock.domain.job import Failure, JobDraft, JobState, Lane, Lease, Offer
from penstock.domain.job_errors import JobError
from penstock.domain.job_queue import JobQueue, JobQueueSettings
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import Accept, Complete, Enqueued, Fail, JobStore, Report, Reported

WORKER = "worker-1"

PLAIN_RETRY = RetryPolicy(jitter=False)
"""Waits 1 s, 2 s, 4 s and so on."""

ADVANCES_MAX = 100

_numbers = itertools.count(1)


def draft(task: str = "mail", payload: bytes = b'{"to":"a"}', **options: Any) -> JobDraft:
    """Make a draft, with an id of its own unless it is given one."""
    options.setdefault("id", f"job-{next(_numbers):06}")
    return JobDraft(task=task, payload=payload, **options)


def group(key: str) -> Lane:
    """A line in which one goes after the other."""
    return Lane(key=key, ordered=True)


def key_of(text: str) -> bytes:
    """Make an idempotency key."""
    return text.encode().ljust(32, b".")


async def make_queue(jobs: JobStore, name: str = "mail", **settings: Any) -> JobQueue:
    """Make a queue whose retries come at instants that a test can tell."""
    settings.setdefault("retry", PLAIN_RETRY)
    queue, _ = await jobs.create_queue(name, JobQueueSettings(**settings))
    return queue


async def enqueue(jobs: JobStore, queue: JobQueue, *drafts: JobDraft) -> list[str]:
    """Enqueue jobs that are all new, and return their ids."""
    answers = await jobs.enqueue(queue, drafts or [draft()])
    assert all(isinstance(answer, Enqueued) and answer.new for answer in answers), answers
    return [answer.job_id for answer in answers if isinstance(answer, Enqueued)]


async def enqueue_one(jobs: JobStore, queue: JobQueue, one: JobDraft | None = None) -> Enqueued | JobError:
    """Enqueue one draft and return what became of it."""
    [answer] = await jobs.enqueue(queue, [one or draft()])
    return answer


async def offer(jobs: JobStore, queue: JobQueue, count: int = 10, worker: str = WORKER) -> list[Offer]:
    """Have jobs offered."""
    return (await jobs.offer(queue, count=count, worker=worker)).offers


async def offered_ids(jobs: JobStore, queue: JobQueue, count: int = 10) -> list[str]:
    """Have jobs offered and return their ids."""
    return [one.lease.job_id for one in await offer(jobs, queue, count)]


async def report(jobs: JobStore, one: Report) -> Reported:
    """Make a report that is taken in."""
    [answer] = await jobs.report([one])
    assert isinstance(answer, Reported), answer
    return answer


async def refused(jobs: JobStore, one: Report) -> JobError:
    """Make a report that is not taken in."""
    [answer] = await jobs.report([one])
    assert isinstance(answer, JobError), answer
    return answer


async def start(jobs: JobStore, queue: JobQueue, worker: str = WORKER) -> Lease:
    """Have one job offered and accept it."""
    [one] = await offer(jobs, queue, 1, worker)
    await report(jobs, Accept(one.lease))
    return one.lease


async def finish(jobs: JobStore, lease: Lease, result: bytes = b"null") -> None:
    """Complete a job that runs."""
    assert (await report(jobs, Complete(lease, result))).state is JobState.SUCCEEDED


async def fail(jobs: JobStore, lease: Lease, kind: str = "Timeout", **failure: Any) -> Reported:
    """Fail a job that runs."""
    return await report(jobs, Fail(lease, Failure(kind=kind, **failure)))


async def state_of(jobs: JobStore, job_id: str) -> JobState:
    """Look up the state of a job."""
    return (await jobs.job(job_id)).state


async def states(jobs: JobStore, job_ids: Sequence[str]) -> list[JobState]:
    """Look up the states of jobs."""
    return [await state_of(jobs, job_id) for job_id in job_ids]


async def event_kinds(jobs: JobStore, job_id: str) -> list[str]:
    """Look up the kinds of a job's events."""
    return [event.kind for event in (await jobs.events(job_id, limit=100)).events]


async def counted(jobs: JobStore, queue: JobQueue) -> dict[JobState, int]:
    """Count the jobs of a queue, in those states that there are any in."""
    return {state: number for state, number in (await jobs.counts(queue)).by_state.items() if number}


async def advance(jobs: JobStore) -> None:
    """Give effect to all that has come due."""
    for _ in range(ADVANCES_MAX):
        if await jobs.advance() != 0:
            return
    raise AssertionError("what is due does not end")
