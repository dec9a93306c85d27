"""Gathers as tests open, fill and end them."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

from penstock.domain.gather import (
    CONTINUATION,
    ErrorPolicy,
    Gather,
    GatherState,
    NewGather,
    NewLink,
    NewMember,
    id_after,
    id_at,
)
from penstock.domain.job import Failure, Job, Membership
from penstock.domain.job_queue import JobQueue
from penstock.domain.limits import DAY_MS
from penstock.domain.operation import JobFilter
from penstock.store.job_port import Accept, Complete, Enqueued, Fail, Filled, JobStore
from tests.support.job_steps import draft, offer

_numbers = itertools.count(1)


def new_gather(queue: JobQueue, **fields: Any) -> NewGather:
    """Make a gather whose continuation has the task `then`; `then` are further fields of its draft.

    `chain` are those of the links that follow.
    """
    gather_id = fields.pop("id", None) or str(UUID(int=0xA0000000 << 96 | next(_numbers)))
    then = fields.pop("then", {})
    fields.setdefault("on_error", ErrorPolicy.FAIL)
    fields.setdefault("expires_in_ms", DAY_MS)
    fields.setdefault("fingerprint", b"f")
    links = _links(gather_id, queue, [then, *fields.pop("chain", [])])
    return NewGather(id=gather_id, queue=queue, draft=links[0].draft, chain=links[1:], **fields)


def _links(gather_id: str, queue: JobQueue, jobs: list[dict[str, Any]]) -> tuple[NewLink, ...]:
    """Make what continues a gather, one after the other; each may have fields of its draft, and its own `queue`."""
    links = []
    for place, job in enumerate(jobs):
        follows = id_after(gather_id)
        own = {"id": id_at(gather_id, CONTINUATION), "gathered": gather_id, **job}
        if place + 1 < len(jobs):
            own["member"] = Membership(follows, 0)
        links.append(NewLink(gather_id, own.pop("queue", queue), draft("then", **own)))
        gather_id = follows
    return tuple(links)


def members(gather_id: str, queue: JobQueue, count: int, first: int = 0, **fields: Any) -> list[NewMember]:
    """Make members."""
    made = []
    for index in range(first, first + count):
        own: dict[str, Any] = {"id": id_at(gather_id, index), "member": Membership(gather_id, index), **fields}
        made.append(NewMember(queue=queue, draft=draft("member", **own)))
    return made


async def open_gather(
    jobs: JobStore, queue: JobQueue, count: int, *, seal: bool = True, **fields: Any
) -> tuple[str, list[str]]:
    """Open a gather, and return its id and those of its members."""
    new = new_gather(queue, **fields)
    own = members(new.id, queue, count, tenant=new.draft.tenant)
    assert_stored(await jobs.open_gather(new, own, seal=seal))
    return new.id, [one.draft.id for one in own]


def assert_stored(filled: Filled) -> None:
    assert all(isinstance(answer, Enqueued) and answer.new for answer in filled.members), filled.members


async def run_members(jobs: JobStore, queue: JobQueue, count: int, *, fails: int = 0) -> None:
    """Carry out so many of the jobs that are due; the last `fails` of them fail for good."""
    leases = [one.lease for one in await offer(jobs, queue, count)]
    assert len(leases) == count
    await jobs.report([Accept(lease) for lease in leases])
    failure = Failure(kind="x", permanent=True)
    await jobs.report(
        [Complete(lease, b"1") if place < count - fails else Fail(lease, failure) for place, lease in enumerate(leases)]
    )


async def continuations(jobs: JobStore, gather_id: str) -> list[Job]:
    """All jobs that continue a gather: there is to be one at most."""
    found = await jobs.jobs(JobFilter(task="then"), limit=500)
    return [job for job in found if job.gathered == gather_id]


async def assert_continued(jobs: JobStore, gather_id: str) -> Gather:
    """Check that the continuation was enqueued once."""
    gather = await jobs.gather(gather_id)
    assert gather.state is GatherState.DONE
    [job] = await continuations(jobs, gather_id)
    assert job.id == gather.continuation_id
    return gather


async def assert_waiting(jobs: JobStore, gather_id: str, *, succeeded: int = 0, failed: int = 0) -> None:
    """Check that a gather still waits, and what for."""
    gather = await jobs.gather(gather_id)
    assert (gather.state, gather.succeeded, gather.failed) == (GatherState.WAITING, succeeded, failed)
    assert await continuations(jobs, gather_id) == []
