"""Jobs that expire, and results that are kept as long as their task says."""

from __future__ import annotations

import pytest

from penstock import Penstock, errors
from tests.tasks.working import PATIENCE_S, working


async def test_a_job_that_nobody_began_in_time_is_cancelled(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name, expires=0.05, retention="1h")
    async def work() -> None: ...

    job = await work.enqueue()
    with pytest.raises(errors.JobCancelled, match="xpired"):
        await job.result(PATIENCE_S)


async def test_a_job_that_began_in_time_does_not_expire(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name, expires="1h", retention="1h")
    async def work() -> int:
        return 1

    async with working(app):
        assert await (await work.enqueue()).result(PATIENCE_S) == 1
