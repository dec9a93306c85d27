"""Calls that come while others are under way go together."""

from __future__ import annotations

import asyncio

import pytest

from penstock.store.jobs.gathering import ENTRIES_MAX, Gathering


class Work:
    """Doubles numbers, one lot at a time and only when it is let; 13 is refused."""

    def __init__(self) -> None:
        self.lots: list[list[int]] = []
        self.go_on = asyncio.Event()

    async def __call__(self, entries: list[int]) -> list[int]:
        self.lots.append(entries)
        await self.go_on.wait()
        if 13 in entries:
            raise ValueError(str(entries))
        return [2 * entry for entry in entries]


@pytest.fixture
def work() -> Work:
    return Work()


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_that_come_meanwhile_share_the_next_run_and_get_their_own_answers(work: Work) -> None:
    gathering = Gathering(work, width=1)
    calls = [asyncio.create_task(gathering.call([1]))]
    await turn()
    calls += [asyncio.create_task(gathering.call(entries)) for entries in ([2, 3], [], [4])]
    await turn()
    assert work.lots == [[1]]
    work.go_on.set()
    assert await asyncio.gather(*calls) == [[2], [4, 6], [], [8]]
    assert work.lots == [[1], [2, 3, 4]]
    await turn()
    assert gathering.idle


async def test_as_many_runs_as_it_is_wide_are_under_way_at_once(work: Work) -> None:
    gathering = Gathering(work, width=2)
    calls = []
    for number in range(4):
        calls.append(asyncio.create_task(gathering.call([number])))
        await turn()
    assert work.lots == [[0], [1]]
    work.go_on.set()
    assert await asyncio.gather(*calls) == [[0], [2], [4], [6]]
    assert work.lots[2:] == [[2, 3]]


async def test_what_one_call_is_refused_for_is_not_told_to_the_others(work: Work) -> None:
    gathering = Gathering(work, width=1)
    first = asyncio.create_task(gathering.call([1]))
    await turn()
    calls = [asyncio.create_task(gathering.call([number])) for number in (2, 13, 4)]
    await turn()
    work.go_on.set()
    two, thirteen, four = await asyncio.gather(*calls, return_exceptions=True)
    assert (await first, two, four) == ([2], [4], [8])
    assert isinstance(thirteen, ValueError)
    assert str(thirteen) == "[13]"


async def test_a_cancelled_call_leaves_the_others_their_answers(work: Work) -> None:
    gathering = Gathering(work, width=1)
    first = asyncio.create_task(gathering.call([1]))
    await turn()
    gone, stays = (asyncio.create_task(gathering.call([number])) for number in (2, 3))
    await turn()
    gone.cancel()
    work.go_on.set()
    assert (await first, await stays) == ([2], [6])
    assert gone.cancelled()


async def test_no_more_go_together_than_may(work: Work) -> None:
    gathering = Gathering(work, width=1)
    first = asyncio.create_task(gathering.call([1]))
    await turn()
    half = [0] * (ENTRIES_MAX // 2 + 1)
    calls = [asyncio.create_task(gathering.call(half)) for _ in range(2)]
    alone = asyncio.create_task(gathering.call([0] * (ENTRIES_MAX + 1)))
    await turn()
    work.go_on.set()
    await asyncio.gather(first, *calls, alone)
    assert [len(lot) for lot in work.lots] == [1, len(half), len(half), ENTRIES_MAX + 1]
