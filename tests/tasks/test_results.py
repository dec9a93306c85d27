"""Results that the server does not take, and waiting for results."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Penstock, errors
from tests.tasks.working import PATIENCE_S, working_as


@pytest.mark.parametrize("size", [2 * 2**20, 9 * 2**20], ids=["more than a result", "more than a request"])
async def test_a_result_that_is_too_large_is_the_end_of_its_job_alone(app: Penstock, name: str, size: int) -> None:
    together = asyncio.Barrier(3)

    @app.task(name=name, queue=name)
    async def write(length: int) -> str:
        async with asyncio.timeout(PATIENCE_S):
            await together.wait()
        return "x" * length

    async with working_as(app, {name: 3}):
        small, large, other = [await write.enqueue(length) for length in (1, size, 1)]
        with pytest.raises(errors.JobDead, match="ResultTooLarge") as dead:
            await large.result(PATIENCE_S)
        assert await small.result(PATIENCE_S) == await other.result(PATIENCE_S) == "x"
    assert dead.value.failure is not None
    assert (await large.view()).failures == 1


async def test_a_wait_for_a_result_is_written_like_any_duration(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work() -> int:
        return 1

    job = await work.enqueue()
    with pytest.raises(errors.JobUnfinished, match=r"within 0.01 seconds"):
        await job.result(timeout="10ms")
    with pytest.raises(ValueError, match="timeout is written like"):
        await job.result(timeout="soon")
