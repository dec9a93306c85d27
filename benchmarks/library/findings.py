"""What the comparison of libraries found, and the ratios that follow from it."""

from __future__ import annotations

import statistics

import msgspec

from benchmarks.findings import Figure
from benchmarks.library.catalogue import LIBRARIES, Class, Library
from benchmarks.library.measures import BARS, CEILINGS, MEASURES, Measure
from benchmarks.rounds import Ratio


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    rounds: int = 5
    everyone: bool = False
    """Whether all libraries take part in every round."""
    seconds: float = 1.0
    """How long each drain takes, about."""
    enqueue_seconds: float = 0.7
    """How long each way of enqueueing takes."""
    pace_seconds: float = 2.0
    """How long jobs are enqueued at a steady rate."""
    kill_jobs: int = 2_000
    kill_wait_seconds: float = 45.0
    """After so long, what a killed worker left behind and nobody has run counts as missing."""
    warm_up_jobs: int = 200

    @classmethod
    def quick(cls) -> Extent:
        """Measure so little that it only shows that everything works."""
        return cls(
            rounds=1,
            seconds=0.2,
            enqueue_seconds=0.1,
            pace_seconds=0.3,
            kill_jobs=200,
            kill_wait_seconds=2.0,
            warm_up_jobs=60,
        )


class Killed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of jobs of which a killed worker held some."""

    jobs: int
    missing: int
    """Those that had not run when the waiting was over. Some libraries would run them later."""
    doubled: int


class Result(msgspec.Struct, kw_only=True):
    """One library in one class, over all rounds in which it took part."""

    library: str
    kind: Class
    rounds: list[dict[str, float]] = []
    jobs: int = 0
    lost: int = 0
    doubled: int = 0
    killed: Killed | None = None

    def median(self, key: str) -> float | None:
        """Return the median of the rounds, if it was measured."""
        values = [figures[key] for figures in self.rounds if key in figures]
        return statistics.median(values) if values else None

    def figure(self, measure: Measure) -> float | None:
        """Return the best median among the keys of a measure."""
        values = [value for key in measure.keys if (value := self.median(key)) is not None]
        if not values:
            return None
        return max(values) if measure.more_is_better else min(values)


class LibraryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    started_at: str
    machine: str
    kinds: list[Class]
    extent: Extent
    versions: list[str]
    results: list[Result]
    notes: list[str]
    """Who was left out, and why."""

    def of_class(self, kind: Class) -> list[Result]:
        """Return the results of a class, with those of libraries that are the same in both; none if it was left out."""
        return [
            result
            for result in self.results
            if kind in self.kinds and (result.kind == kind or LIBRARIES[result.library].classes == ("durable",))
        ]

    def best_peer(self, kind: Class, measure: Measure) -> tuple[Library, float] | None:
        """Return the Python peer that is best at something, and how good it is."""
        found = [
            (LIBRARIES[result.library], value)
            for result in self.of_class(kind)
            if not LIBRARIES[result.library].ours
            and LIBRARIES[result.library].python
            and (value := result.figure(measure)) is not None
        ]
        if not found:
            return None
        choose = max if measure.more_is_better else min
        return choose(found, key=lambda each: each[1])

    def ratios(self) -> list[Ratio]:
        """Return what the project asks for as multiples, in the durable class."""
        results = {result.library: result for result in self.of_class("durable")}
        found = []
        for bar in BARS:
            measure = MEASURES[bar.measure]
            ours = results[bar.ours].figure(measure) if bar.ours in results else None
            if bar.beside is None:
                best = self.best_peer("durable", measure)
                name, theirs = ("", None) if best is None else (best[0].title, best[1])
            else:
                name = LIBRARIES[bar.beside].title
                theirs = results[bar.beside].figure(measure) if bar.beside in results else None
            if ours is not None and theirs is not None:
                value = round(multiple(measure, ours, theirs), 2)
                title = f"{LIBRARIES[bar.ours].title}, {measure.title}, to {name}"
                found.append(Ratio(name=title, value=value, wanted=bar.wanted))
        return found

    def ceilings(self) -> list[Figure]:
        """Return the figures of ours that the project limits."""
        results = {result.library: result for result in self.of_class("durable")}
        return [
            Figure(
                name=f"{LIBRARIES[each.ours].title}, {each.title}",
                value=round(value, 2),
                unit=each.unit,
                wanted_max=each.wanted_max,
            )
            for each in CEILINGS
            if each.ours in results and (value := results[each.ours].median(each.key)) is not None
        ]


def multiple(measure: Measure, ours: float, theirs: float) -> float:
    """Return how many times as good ours is."""
    return ours / theirs if measure.more_is_better else theirs / ours
