"""Workers that nodes have seen: kept for all of them to see, and forgotten when nobody sees them any more."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.domain.job_limits import JobLimits
from penstock.domain.worker import Worker, WorkerKind
from penstock.store.job_port import JobStore
from penstock.testing import ManualClock

STALE_MS = JobLimits().worker_stale_ms


def worker(name: str, clock: ManualClock, **fields: Any) -> Worker:
    known = {"id": f"id-of-{name}", "kind": WorkerKind.STREAM, "queues": ("mail",), "credit": 3, "running": 1}
    instants = {"since_at_ms": clock.now_ms() - 5_000, "seen_at_ms": clock.now_ms()}
    return Worker(name=name, **{**known, **instants, **fields})


async def names(jobs: JobStore, **wanted: Any) -> list[str]:
    return [one.name for one in await jobs.workers(limit=100, **wanted)]


async def test_a_worker_is_told_of_as_it_was_seen(jobs: JobStore, clock: ManualClock) -> None:
    stream = worker("a", clock)
    poll = worker("b", clock, kind=WorkerKind.POLL, queues=("mail", "post"), tasks=("x", "y"), running=None)
    await jobs.note_workers([poll, stream], [], now_ms=clock.now_ms())
    assert await jobs.workers(limit=10) == [stream, poll]


async def test_a_worker_that_is_seen_again_is_kept_once(jobs: JobStore, clock: ManualClock) -> None:
    first = worker("a", clock)
    await jobs.note_workers([first], [], now_ms=clock.now_ms())
    await clock.advance(ms=STALE_MS - 1)
    again = msgspec.structs.replace(first, credit=9, running=4, seen_at_ms=clock.now_ms())
    await jobs.note_workers([again], [], now_ms=clock.now_ms())
    await clock.advance(ms=STALE_MS - 1)
    assert await jobs.workers(limit=10) == [again]


async def test_instants_are_by_the_stores_clock_whatever_that_of_the_node_shows(
    jobs: JobStore, clock: ManualClock
) -> None:
    now_ms = clock.now_ms()
    seen = worker("a", clock, since_at_ms=70_000, seen_at_ms=99_000)
    await jobs.note_workers([seen], [], now_ms=100_000)
    [told] = await jobs.workers(limit=10)
    assert (told.since_at_ms, told.seen_at_ms) == (now_ms - 30_000, now_ms - 1_000)


async def test_workers_that_are_gone_or_stale_are_not_told_of(jobs: JobStore, clock: ManualClock) -> None:
    leaving, silent = worker("leaving", clock), worker("silent", clock)
    await jobs.note_workers([leaving, silent], [], now_ms=clock.now_ms())
    await jobs.note_workers([], [leaving], now_ms=clock.now_ms())
    assert await names(jobs) == ["silent"]
    await clock.advance(ms=STALE_MS - 1)
    assert await names(jobs) == ["silent"]
    await clock.advance(ms=1)
    assert await names(jobs) == []


async def test_workers_that_are_stale_are_removed_some_at_a_time(jobs: JobStore, clock: ManualClock) -> None:
    few = jobs.limited(JobLimits(sweep_rows_max=2))  # type: ignore[attr-defined] # Every store of ours has it.
    await jobs.note_workers([worker(f"w{number}", clock) for number in range(5)], [], now_ms=clock.now_ms())
    lasting = jobs.limited(JobLimits(worker_stale_ms=10 * STALE_MS))  # type: ignore[attr-defined] # As above.
    await clock.advance(ms=STALE_MS)
    left = []
    for _ in range(4):
        await few.note_workers([], [], now_ms=clock.now_ms())
        left.append(len(await names(lasting)))
    assert left == [3, 1, 0, 0]


async def test_workers_come_in_pages_by_name(jobs: JobStore, clock: ManualClock) -> None:
    twins = [worker("b", clock, id=str(number)) for number in range(3)]
    await jobs.note_workers([worker("c", clock), *twins, worker("a", clock)], [], now_ms=clock.now_ms())
    found: list[tuple[str, str]] = []
    after = ("", "")
    while page := await jobs.workers(after=after, limit=2):
        found += [(one.name, one.id) for one in page]
        after = found[-1]
    assert found == [("a", "id-of-a"), ("b", "0"), ("b", "1"), ("b", "2"), ("c", "id-of-c")]


async def test_workers_of_one_queue(jobs: JobStore, clock: ManualClock) -> None:
    both, one = worker("both", clock, queues=("mail", "post")), worker("one", clock, queues=("post.eu",))
    await jobs.note_workers([both, one], [], now_ms=clock.now_ms())
    assert await names(jobs, queue="post") == ["both"]
    assert await names(jobs, queue="post.eu") == ["one"]
    assert await names(jobs, queue="pos") == []
