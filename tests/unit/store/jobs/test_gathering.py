"""Calls that come while others are under way go together."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.store.jobs.gathering import BYTES_MAX, ENTRIES_MAX, WAITING_MAX, Gathering


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


async def test_who_asks_again_as_soon_as_it_is_answered_is_answered_again() -> None:
    async def echo(entries: list[int]) -> list[int]:
        return entries

    gathering = Gathering(echo, width=1)
    async with asyncio.timeout(10):
        assert [await gathering.call([number]) for number in range(3)] == [[0], [1], [2]]


async def test_a_store_that_is_gone_is_told_to_all_at_once() -> None:
    lots: list[list[int]] = []
    go_on = asyncio.Event()

    async def break_down(entries: list[int]) -> list[int]:
        lots.append(entries)
        await go_on.wait()
        raise StoreUnavailable("gone")

    gathering = Gathering(break_down, width=1)
    calls = [asyncio.create_task(gathering.call([1]))]
    await turn()
    calls += [asyncio.create_task(gathering.call([number])) for number in (2, 3)]
    await turn()
    go_on.set()
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in errors] == [StoreUnavailable] * 3
    # Each raises one of its own.
    assert len({id(error) for error in errors}) == 3
    assert lots == [[1], [2, 3]]


async def test_who_is_cancelled_before_its_turn_is_passed_over(work: Work) -> None:
    gathering = Gathering(work, width=1)
    first = asyncio.create_task(gathering.call([1]))
    await turn()
    gone, stays = (asyncio.create_task(gathering.call([number])) for number in (2, 3))
    await turn()
    gone.cancel()
    await turn()
    work.go_on.set()
    assert (await first, await stays) == ([2], [6])
    assert work.lots == [[1], [3]]


async def test_no_more_bytes_go_together_than_may(work: Work) -> None:
    gathering = Gathering(work, width=1, size_of=lambda entry: entry)
    first = asyncio.create_task(gathering.call([1]))
    await turn()
    calls = [asyncio.create_task(gathering.call([size])) for size in (BYTES_MAX - 1, 1, 1, BYTES_MAX + 1)]
    await turn()
    work.go_on.set()
    await asyncio.gather(first, *calls)
    assert work.lots == [[1], [BYTES_MAX - 1, 1], [1], [BYTES_MAX + 1]]


async def test_no_more_wait_than_may(work: Work) -> None:
    gathering = Gathering(work, width=1)
    calls = [asyncio.create_task(gathering.call([0]))]
    await turn()
    calls += [asyncio.create_task(gathering.call([0])) for _ in range(WAITING_MAX)]
    await turn()
    with pytest.raises(StoreUnavailable):
        await gathering.call([0])
    work.go_on.set()
    await asyncio.gather(*calls)


async def test_closing_waits_for_what_was_asked_for_and_refuses_what_comes_after(work: Work) -> None:
    gathering = Gathering(work, width=1)
    calls = [asyncio.create_task(gathering.call([1]))]
    await turn()
    calls += [asyncio.create_task(gathering.call([2]))]
    await turn()
    closing = asyncio.create_task(gathering.close())
    await turn()
    with pytest.raises(StoreUnavailable):
        await gathering.call([3])
    assert not closing.done()
    work.go_on.set()
    await closing
    assert await asyncio.gather(*calls) == [[2], [4]]
    await gathering.close()
