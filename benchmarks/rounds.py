"""Contestants that take turns, so that what else the machine does meets all of them alike."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import msgspec

from benchmarks.timing import Rate, median_rate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    Contestant = Callable[[], Awaitable[Rate]]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One contestant over all rounds."""

    name: str
    messages_per_s: float
    """The median of the rounds."""
    rounds: list[Rate]


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """One contestant's rate as a multiple of another's, and the least that the project asks of it, if anything."""

    name: str
    value: float
    wanted: float | None = None

    @property
    def reached(self) -> bool:
        """Whether it is what the project asks for."""
        return self.wanted is None or self.value >= self.wanted


async def take_turns(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, Trial]:
    """Let each contestant run once in every round; who begins changes from round to round."""
    rates: dict[str, list[Rate]] = {name: [] for name in contestants}
    names = list(contestants)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            rates[name].append(await contestants[name]())
    return {name: Trial(name=name, messages_per_s=median_rate(each), rounds=each) for name, each in rates.items()}


def ratio(name: str, one: Trial, other: Trial, *, wanted: float | None = None) -> Ratio:
    """Compare two contestants round by round, and take the median: what slows a whole round down changes nothing."""
    each = [mine.messages_per_s / theirs.messages_per_s for mine, theirs in zip(one.rounds, other.rounds, strict=True)]
    return Ratio(name=name, value=round(statistics.median(each), 3), wanted=wanted)
