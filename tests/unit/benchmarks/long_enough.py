"""Measurements that are as short as the machine allows."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from benchmarks.errors import WorkFailed

SECONDS = (0.1, 1.0, 10.0)
"""A busy machine may have done nothing at all in a tenth of a second, of which there is nothing to tell."""

Found = TypeVar("Found")


async def long_enough(measure: Callable[[float], Awaitable[Found]]) -> Found:
    """Measure for longer and longer until something was done in that time; why the longest failed is raised."""
    *shorter, longest = SECONDS
    for seconds in shorter:
        with contextlib.suppress(WorkFailed):
            return await measure(seconds)
    return await measure(longest)


def run_long_enough(command: Callable[[float], object]) -> None:
    """Run a command of so many seconds for longer and longer until it succeeds, as `long_enough` does."""
    assert any(command(seconds) == 0 for seconds in SECONDS)
