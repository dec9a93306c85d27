"""Sweeping finished jobs, and what is left after it."""

from __future__ import annotations

from penstock.domain.operation import JobFilter
from penstock.store.job_port import JobStore
from tests.support.job_lives import ids_of

SWEEPS_MAX = 200


async def sweep(jobs: JobStore) -> int:
    """Sweep until there is nothing left to do, and say in how many passes."""
    for number in range(1, SWEEPS_MAX):
        if not await jobs.sweep():
            return number
    raise AssertionError(f"still sweeping after {SWEEPS_MAX} passes")


async def left(jobs: JobStore) -> list[str]:
    """The ids of all jobs, the oldest first."""
    return ids_of(await jobs.jobs(JobFilter(), limit=1_000))[::-1]
