"""A strict queue answers from the store, never from what a node remembers."""

from __future__ import annotations

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.job_errors import JobRefused
from penstock.domain.job_queue import Rate
from penstock.engine.jobs.jobs import Jobs
from tests.support.job_service import enqueue, finish, make_queue


def go_down() -> None:
    raise StoreUnavailable("The store is away.")


async def test_a_result_is_read_from_the_store_each_time(jobs: Jobs, failpoints: Failpoints) -> None:
    await make_queue(jobs, strict=True)
    await enqueue(jobs, idempotency_key="once")
    await finish(jobs, b"7")
    for _ in range(2):
        assert (await enqueue(jobs, idempotency_key="once")).result == b"7"
    failpoints.arm("jobs.enqueue.begun", go_down)
    with pytest.raises(StoreUnavailable):
        await enqueue(jobs, idempotency_key="once")


async def test_a_refusal_is_the_stores_each_time(jobs: Jobs, failpoints: Failpoints) -> None:
    await make_queue(jobs, strict=True, rate=Rate(per_second=0.001, burst=1))
    await enqueue(jobs, idempotency_key="a")
    for key in "bc":
        with pytest.raises(JobRefused):
            await enqueue(jobs, idempotency_key=key)
    failpoints.arm("jobs.enqueue.begun", go_down)
    with pytest.raises(StoreUnavailable):
        await enqueue(jobs, idempotency_key="d")
