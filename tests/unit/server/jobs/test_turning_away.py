"""Refusals now and then are told at once, and those of a flood after a pause."""

from __future__ import annotations

import asyncio

from penstock.server.jobs.turning_away import AT_ONCE, PAUSE_S, PAUSED_MAX, WINDOW_S, TurningAway


def test_a_few_refusals_are_told_at_once() -> None:
    turning_away = TurningAway()
    for window in range(3):
        assert {turning_away.pause_s(window * WINDOW_S) for _ in range(AT_ONCE)} == {0.0}


def test_those_of_a_flood_wait_and_not_all_for_as_long() -> None:
    turning_away = TurningAway()
    for _ in range(AT_ONCE):
        turning_away.pause_s(0.0)
    pauses = {turning_away.pause_s(WINDOW_S / 2) for _ in range(100)}
    assert len(pauses) > 1
    assert PAUSE_S[0] <= min(pauses) <= max(pauses) <= PAUSE_S[1]


async def test_only_so_many_wait() -> None:
    turning_away = TurningAway()
    # Some of them begin another window, however slow the machine is, and are told at once: hence far more than wait.
    waiting = [asyncio.create_task(turning_away.pause()) for _ in range(PAUSED_MAX + 100 * AT_ONCE)]
    await asyncio.sleep(0)
    assert turning_away.pause_s(asyncio.get_running_loop().time()) == 0.0
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for _ in range(AT_ONCE):
        turning_away.pause_s(0.0)
    assert turning_away.pause_s(0.0) > 0
