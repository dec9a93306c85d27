"""`async with app.testing()`: an app of every kind of URL, whose own store is left alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import Penstock, Retry, errors


async def test_fourteen_days_of_backoff_leave_the_apps_own_store_alone(opened: Penstock, name: str) -> None:
    @opened.task(name=name, queue=name, retry=Retry(40, backoff="1h", max_backoff="1d", jitter=False))
    async def call() -> str:
        if t.clock.now() - began < timedelta(days=14):
            raise ConnectionError("still away")
        return "back"

    async with opened:
        own = await call.enqueue()
        async with opened.testing() as t:
            began, tested = t.clock.now(), await call.enqueue()
            assert (await t.run_until_idle()).total == 19
            assert await tested.result(0) == "back"
            with pytest.raises(errors.JobNotFound):
                await own.view()
        found = await own.view()
        assert (found.state, found.attempts) == ("queued", 0)
        with pytest.raises(errors.JobNotFound):
            await tested.view()
