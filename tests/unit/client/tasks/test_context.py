"""What a task does with its context, without a worker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock import Context
from penstock.client.errors import StepInvalid


class SlowRecords:
    """Records of steps. Each look at them is answered when the test says so, with what was recorded when it began."""

    def __init__(self) -> None:
        self.steps: dict[str, msgspec.Raw] = {}
        self.looks: list[asyncio.Event] = []

    def add(self, kind: str, data: bytes) -> None: ...

    async def record(self, step: str, result: bytes) -> None:
        self.steps[step] = msgspec.Raw(result)

    async def recorded(self) -> dict[str, msgspec.Raw]:
        found, answered = dict(self.steps), asyncio.Event()
        self.looks.append(answered)
        await answered.wait()
        return found

    def record_sync(self, step: str, result: bytes) -> None:
        self.steps[step] = msgspec.Raw(result)

    def recorded_sync(self) -> dict[str, msgspec.Raw]:
        return dict(self.steps)


def context_of(records: SlowRecords, attempt: int) -> Context:
    info: Any = SimpleNamespace(id="job", attempt=attempt)
    return Context(info, "task", lambda: records, deadline=0.0)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_steps_that_begin_at_once_do_not_forget_each_other() -> None:
    records = SlowRecords()
    ctx = context_of(records, attempt=2)
    ran: list[str] = []

    async def effect(name: str) -> str:
        ran.append(name)
        return name

    steps = [asyncio.create_task(ctx.step(name, effect, name)) for name in ("a", "b")]
    await settled()
    for answered in records.looks:  # The second look ends after step a is recorded.
        answered.set()
        await settled()
    assert await asyncio.gather(*steps) == ["a", "b"]
    assert ran == ["a", "b"]


async def test_a_step_that_runs_already_is_refused() -> None:
    ctx = context_of(SlowRecords(), attempt=1)
    goes_on = asyncio.Event()
    ran: list[int] = []

    async def charge(order: int) -> int:
        ran.append(order)
        await goes_on.wait()
        return order

    first = asyncio.create_task(ctx.step("charge", charge, 1))
    await settled()
    with pytest.raises(StepInvalid, match="has a step 'charge' already"):
        await ctx.step("charge", charge, 2)
    goes_on.set()
    assert await first == 1
    assert ran == [1]


async def test_a_step_that_failed_can_be_tried_again_in_the_same_attempt() -> None:
    ctx = context_of(SlowRecords(), attempt=1)
    answers: list[Any] = [ConnectionError("away"), 5]

    async def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    with pytest.raises(ConnectionError):
        await ctx.step("ask", ask)
    assert await ctx.step("ask", ask) == 5


@pytest.mark.parametrize(
    ("done", "of", "said"),
    [(3, 10, "3 of 10"), (1_500_000, 12_345_678, "1500000 of 12345678"), (0.5, 1, "0.5 of 1"), (2.0, None, "2")],
)
def test_progress_is_said_as_it_was_counted(done: float, of: float | None, said: str) -> None:
    ctx = context_of(SlowRecords(), attempt=1)
    ctx.progress(done, of=of)
    assert ctx.progress_text == said


async def test_a_name_is_used_for_one_step_of_an_attempt() -> None:
    ctx = context_of(SlowRecords(), attempt=1)
    charged: list[int] = []

    async def charge(order: int) -> int:
        charged.append(order)
        return order

    await ctx.step("charge", charge, 1)
    with pytest.raises(StepInvalid, match="a name of its own"):
        await ctx.step("charge", charge, 2)
    with pytest.raises(StepInvalid, match="a name of its own"):
        ctx.step_sync("charge", charged.append, 3)
    assert charged == [1]
