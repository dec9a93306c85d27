"""Refusals now and then are told at once, and those of a flood one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from penstock.server.jobs.turning_away import (
    AT_ONCE,
    HELD_BYTES_MAX,
    HELD_MAX,
    HELD_S,
    TOLD_PER_S,
    TURN_S,
    WINDOW_S,
    Line,
    TurningAway,
)


def nothing() -> None:
    pass


def flooded(count: int, now_s: float = 0.0, tell: Callable[[], None] = nothing) -> Line:
    """Make a line in which so many stand."""
    line = Line()
    for _ in range(AT_ONCE):
        assert not line.join(now_s, tell)
    for _ in range(count):
        assert line.join(now_s, tell)
    return line


def test_a_few_refusals_are_told_at_once() -> None:
    line = Line()
    for window in range(3):
        assert not any(line.join(window * WINDOW_S, nothing) for _ in range(AT_ONCE))


def test_nobody_is_told_before_those_in_line() -> None:
    line = flooded(1)
    assert line.join(2 * WINDOW_S, nothing)
    assert len(line) == 2


def test_those_of_a_flood_wait_and_are_told_a_few_at_a_time_in_their_order() -> None:
    line, told = flooded(0), list[int]()
    for number in range(20):
        assert line.join(0.0, partial(told.append, number))
    assert line.take(HELD_S[0] - 0.001) == []
    turns = 0
    while line:
        taken = line.take(HELD_S[0])
        assert 1 <= len(taken) <= TOLD_PER_S * TURN_S
        for tell in taken:
            tell()
        turns += 1
    assert turns == 20 / (TOLD_PER_S * TURN_S)
    assert told == list(range(20))


@pytest.mark.parametrize("turn_s", [TURN_S, 0.02, 0.05])
def test_nobody_waits_for_much_longer_than_told_however_busy_the_loop_is(turn_s: float) -> None:
    line = flooded(HELD_MAX)
    now_s = 0.0
    while line:
        now_s += turn_s
        line.take(now_s)
    assert now_s <= HELD_S[1] + 2 * turn_s


def test_only_so_many_wait() -> None:
    line = flooded(HELD_MAX)
    assert not line.join(0.0, nothing)
    line.take(HELD_S[0])
    assert line.join(HELD_S[0], nothing)


def test_only_so_much_of_requests_is_kept() -> None:
    line = flooded(0)
    assert line.join(0.0, nothing, HELD_BYTES_MAX - 1)
    assert not line.join(0.0, nothing, 2)
    assert line.join(0.0, nothing, 1)
    line.take(HELD_S[0])
    assert line.join(0.0, nothing, HELD_BYTES_MAX)


async def test_all_of_a_flood_are_told_and_whoever_left_is_passed_over() -> None:
    turning_away = TurningAway()
    waiting = [asyncio.create_task(turning_away.pause()) for _ in range(3 * AT_ONCE)]
    await asyncio.sleep(0)
    waiting[-1].cancel()
    told = await asyncio.gather(*waiting, return_exceptions=True)
    assert told[:-1] == [None] * (3 * AT_ONCE - 1)
    assert isinstance(told[-1], asyncio.CancelledError)


async def test_one_that_cannot_be_told_does_not_keep_the_others_waiting(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError

    turning_away = TurningAway()
    for _ in range(AT_ONCE):
        turning_away.hold(nothing)
    turning_away.hold(fail)
    await turning_away.pause()
    assert "A refusal could not be told" in caplog.text
