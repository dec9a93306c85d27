from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from penstock.engine.upkeep import Upkeep
from penstock.testing import ManualClock

IDLE_MS = 60_000


class Work:
    """A piece of background work that does nothing but count its steps, and says what it is told to say."""

    def __init__(self, clock: ManualClock, look_s: float | None = None) -> None:
        self.steps = 0
        self.next_in_ms: int | None = None
        self.hold: asyncio.Event | None = None
        self.upkeep = Upkeep("worker", clock, self._step, idle_ms=IDLE_MS, look_s=look_s)

    async def _step(self) -> int | None:
        self.steps += 1
        if self.hold is not None:
            await self.hold.wait()
        return self.next_in_ms


@contextlib.asynccontextmanager
async def running(work: Work, clock: ManualClock) -> AsyncIterator[None]:
    task = asyncio.create_task(work.upkeep.run())
    await clock.advance()
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_work_is_done_again_when_it_is_expected_to_be_due() -> None:
    clock = ManualClock()
    work = Work(clock)
    async with running(work, clock):
        work.upkeep.expect(5_000)
        work.upkeep.expect(9_000)  # Later than what is planned: it says nothing new.
        await clock.advance(ms=4_999)
        assert work.steps == 1
        await clock.advance(ms=1)
        assert work.steps == 2
        await clock.advance(ms=4_000)
        assert work.steps == 2
        await clock.advance(ms=IDLE_MS)
        assert work.steps == 3


async def test_what_is_expected_during_a_step_is_not_lost() -> None:
    clock = ManualClock()
    work = Work(clock)
    work.hold = asyncio.Event()
    async with running(work, clock):
        work.upkeep.expect(5_000)
        work.hold.set()
        await clock.advance(ms=5_000)
        assert work.steps == 2


async def test_what_a_step_says_counts_from_its_beginning() -> None:
    clock = ManualClock()
    work = Work(clock)
    work.hold = asyncio.Event()
    work.next_in_ms = 1_000
    async with running(work, clock):
        await clock.advance(ms=600)
        work.hold.set()
        await clock.advance(ms=399)
        assert work.steps == 1
        await clock.advance(ms=1)
        assert work.steps == 2


async def test_work_that_knows_of_nothing_for_an_hour_looks_for_what_others_left() -> None:
    clock = ManualClock()
    work = Work(clock, look_s=0.001)
    work.next_in_ms = 3_600_000
    async with running(work, clock), asyncio.timeout(10):
        while work.steps < 3:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.001)
