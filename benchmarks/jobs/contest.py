"""Systems that run jobs, and how fast each of them is: all jobs are enqueued, and then all of them are worked off."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Protocol

import msgspec

from benchmarks.errors import WorkFailed
from benchmarks.process import cpu_seconds_of
from benchmarks.rounds import Ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JOBS_MIN = 20
JOBS_MAX = 50_000
_TRY_JOBS = 40
_TRIES = 2


class System(Protocol):
    """Something that jobs can be put into, and that runs them."""

    async def enqueue(self, jobs: int) -> float:
        """Enqueue so many jobs, while none is worked off; return the seconds."""

    async def work(self, jobs: int) -> float:
        """Have so many jobs that wait run to their ends; return the seconds."""

    def pids(self) -> Sequence[int]:
        """The processes that take part, on all sides; their children count with them."""


class JobsRate(msgspec.Struct, frozen=True, kw_only=True):
    """What one round gave. The processor time is that of all processes: producer, server and workers."""

    jobs: int
    enqueued_per_s: float
    worked_per_s: float
    """Offered, accepted, run and completed."""
    jobs_per_s: float
    """Through the whole life, one half after the other."""
    cpu_us_per_job: float


class JobsTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One system over all rounds; the rates are medians."""

    name: str
    enqueued_per_s: float
    worked_per_s: float
    jobs_per_s: float
    cpu_us_per_job: float
    rounds: list[JobsRate]

    @classmethod
    def of(cls, name: str, rounds: list[JobsRate]) -> JobsTrial:
        """Sum up."""
        medians = {
            field: statistics.median(getattr(rate, field) for rate in rounds)
            for field in ("enqueued_per_s", "worked_per_s", "jobs_per_s", "cpu_us_per_job")
        }
        return cls(name=name, rounds=rounds, **medians)


async def measure(system: System, jobs: int) -> JobsRate:
    """Run so many jobs through a system."""
    cpu_s = sum(cpu_seconds_of(pid) for pid in system.pids())
    enqueue_s = await system.enqueue(jobs)
    work_s = await system.work(jobs)
    cpu_s = sum(cpu_seconds_of(pid) for pid in system.pids()) - cpu_s
    if enqueue_s <= 0 or work_s <= 0:
        raise WorkFailed("a system says that it took no time at all")
    return JobsRate(
        jobs=jobs,
        enqueued_per_s=round(jobs / enqueue_s, 1),
        worked_per_s=round(jobs / work_s, 1),
        jobs_per_s=round(jobs / (enqueue_s + work_s), 1),
        cpu_us_per_job=round(cpu_s * 1e6 / jobs, 1),
    )


async def compete(systems: Mapping[str, System], *, rounds: int, seconds: float) -> list[JobsTrial]:
    """Let the systems take turns, each with as many jobs as it does in about so many seconds."""
    jobs = {name: await _fitting(system, seconds) for name, system in systems.items()}
    rates: dict[str, list[JobsRate]] = {name: [] for name in systems}
    names = list(systems)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            rates[name].append(await measure(systems[name], jobs[name]))
    return [JobsTrial.of(name, each) for name, each in rates.items()]


def ratio(one: JobsTrial, other: JobsTrial, *, wanted: float | None = None) -> Ratio:
    """Compare two systems round by round, and take the median: what slows a whole round down changes nothing."""
    each = [mine.jobs_per_s / theirs.jobs_per_s for mine, theirs in zip(one.rounds, other.rounds, strict=True)]
    return Ratio(name=f"{one.name} to {other.name}", value=round(statistics.median(each), 2), wanted=wanted)


async def _fitting(system: System, seconds: float) -> int:
    """Warm a system up, and find out how many jobs it does in about so many seconds."""
    jobs = _TRY_JOBS
    for _ in range(_TRIES):
        rate = await measure(system, jobs)
        jobs = min(JOBS_MAX, max(JOBS_MIN, int(rate.jobs_per_s * seconds)))
    return jobs
