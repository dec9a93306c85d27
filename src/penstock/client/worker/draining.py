"""Runs what is due now, with a worker's own parts, until nothing is offered any more: how tests run tasks."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.errors import ResultInvalid, ResultTooLarge, RunsForever
from penstock.client.tasks.batch import BatchTask
from penstock.client.worker import reports
from penstock.client.worker.attempt import Attempt, Stop
from penstock.client.worker.batches import BatchLane
from penstock.client.worker.checking import SLOTS_MAX
from penstock.client.worker.children import Children
from penstock.client.worker.execution import Execution
from penstock.client.worker.heartbeats import Heartbeats
from penstock.client.worker.host import Host
from penstock.client.worker.logs import LoggingObserver
from penstock.client.worker.reports import Reports
from penstock.client.worker.threads import Threads
from penstock.client.worker.worker import TICK_S, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.client.app import Penstock
    from penstock.client.embedded.manual import ManualEngine
    from penstock.client.tasks.task import Task
    from penstock.client.worker.execution import Outcome
    from penstock.domain.clock import Clock
    from penstock.wire.jobs.answers import OfferView, ReportView

WORKER_NAME = "test"
LOOK_S = 0.01
QUEUES_MAX = 16
"""How many queues one request may name."""


class Failed(NamedTuple):
    """An attempt that failed."""

    task: str
    job: str
    attempt: int
    error: BaseException


class Tally:
    """What became of the attempts that were run, and how many of each task there were."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.tasks: Counter[str] = Counter()
        self.failed: list[Failed] = []

    @property
    def started(self) -> int:
        """How many attempts were begun."""
        return self.tasks.total()


class Drain:
    """Runs jobs of all tasks of an app, `concurrency` at once, and at most `max_jobs` of them."""

    def __init__(self, app: Penstock, tally: Tally, engine: ManualEngine, *, concurrency: int, max_jobs: int) -> None:
        if type(concurrency) is not int or not 1 <= concurrency <= SLOTS_MAX:
            raise ValueError(f"concurrency is a whole number from 1 to {SLOTS_MAX}, not {concurrency!r}.")
        if type(max_jobs) is not int or max_jobs < 1:
            raise ValueError(f"max_jobs is a whole number from 1 on, not {max_jobs!r}.")
        Worker(app).plan()
        self._app = app
        self._tally = tally
        self._engine = engine
        self._concurrency = concurrency
        self._max_jobs = max_jobs
        self._plain: dict[str, Task[..., Any, Any]] = {}
        self._batches: dict[BatchTask[Any, Any], list[str]] = {}
        for name, task in app.tasks.items():
            if isinstance(task, BatchTask):
                self._batches.setdefault(task, []).append(name)
            else:
                self._plain[name] = task
        self._queues: list[str] = []
        self._host: _Host

    async def run(self) -> None:
        """Run what is offered, and what that enqueues, until nothing is. Raises `RunsForever` at `max_jobs`."""
        observer, sender, threads = LoggingObserver(), Reports(self._app), Threads()
        # A child has an app of its own, whose calls belong to the test, too.
        children = Children(size=self._concurrency, sender=self._engine.open_async())
        execution = Execution(self._app, threads, children)
        host = self._host = _Host(self._app, WORKER_NAME, observer, sender, execution)
        host.count(self._tally, self._engine.clock)
        # A test may stop in a debugger for as long as it likes: a loop that stands still is nothing to report.
        heartbeats = Heartbeats(self._app, host.leases, asyncio.get_running_loop(), observer, stall_s=math.inf)
        behind = [asyncio.create_task(sender.run()), asyncio.create_task(_look_after(host))]
        heartbeats.start()
        try:
            while await self._run_plain() or await self._run_batches():
                pass
        finally:
            heartbeats.close()
            # The engine is in this process, so this takes no time. Later on, a heartbeat might go to the app's own URL.
            heartbeats.join()
            for task in behind:
                task.cancel()
            await asyncio.wait(behind)
            await children.close()
            threads.close()

    # -- plain tasks ------------------------------------------------------------------------------------

    async def _run_plain(self) -> bool:
        """Run plain tasks until none is offered; return whether there was any."""
        if not self._plain:
            return False
        names, ran = sorted(self._plain), False
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                if room := self._concurrency - len(running):
                    offers = await self._offers_anywhere(names, room)
                    ran = ran or bool(offers)
                    running |= {
                        asyncio.create_task(self._run(offer), context=contextvars.Context()) for offer in offers
                    }
                if not running:
                    return ran
                # What runs may enqueue something, and wait for it: then a free slot has to look again.
                look_s = LOOK_S if len(running) < self._concurrency else None
                ended, running = await asyncio.wait(running, timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    task.result()
        finally:
            await _cancel(running)

    async def _run(self, offer: OfferView) -> None:
        """Run one attempt, as a lane's slot does."""
        host, runner = self._host, asyncio.current_task()
        assert runner is not None
        attempt, sent_at = Attempt(offer, self._plain[offer.task], self._app, host.reports), time.monotonic()
        answer = await host.reports.ask(reports.accept(offer.token))
        if answer.report is None:
            return
        attempt.begin(sent_at)
        _keep_lease(attempt)
        host.leases[attempt.token] = attempt
        if answer.report.cancel:
            attempt.interrupt(Stop.CANCELLED)
        await host.attempt(attempt, runner)
        await host.reports.flush()

    # -- batch tasks ------------------------------------------------------------------------------------

    async def _run_batches(self) -> bool:
        """Run one batch of each batch task, of what there is; return whether there was any."""
        ran = False
        for task, names in self._batches.items():
            if offers := await self._offers([task.task.queue], names, task.size):
                ran = True
                lane = _Batch(self._host, task.task.queue, task, names)
                await asyncio.create_task(lane.run(offers), context=contextvars.Context())
                await self._host.reports.flush()
        return ran

    # -- offers -----------------------------------------------------------------------------------------

    async def _offers_anywhere(self, tasks: Sequence[str], count: int) -> list[OfferView]:
        """Ask for jobs of all queues that there are: a call may name another one than its task does."""
        if offers := await self._offers(self._queues, tasks, count):
            return offers
        known, self._queues = self._queues, await self._list_queues()
        return await self._offers([name for name in self._queues if name not in known], tasks, count)

    async def _list_queues(self) -> list[str]:
        found: list[str] = []
        after: str | None = None
        while True:
            page = await self._app.queues.list(after=after)
            found += [queue.name for queue in page.queues]
            if page.after is None:
                return found
            after = page.after

    async def _offers(self, queues: Sequence[str], tasks: Sequence[str], count: int) -> list[OfferView]:
        for first in range(0, len(queues), QUEUES_MAX):
            some = queues[first : first + QUEUES_MAX]
            answer = await self._app.work.dequeue(some, count=count, worker=WORKER_NAME, tasks=tasks)
            if answer.offers:
                self._tally.tasks.update(offer.task for offer in answer.offers)
                if self._tally.started > self._max_jobs:
                    (name, number), *_ = self._tally.tasks.most_common(1)
                    raise RunsForever(
                        f"More than {self._max_jobs:,} jobs were run, and there are more, {number:,} of them of "
                        f"{name}: a task seems to enqueue itself for ever. Raise max_jobs if that is as it should be."
                    )
                return answer.offers
        return []


class _Host(Host):
    """Counts what becomes of the attempts, and keeps what they raised."""

    tally: Tally

    def count(self, tally: Tally, clock: Clock) -> None:
        """Set where to count, and by which clock the server goes."""
        self.tally = tally
        self._clock = clock

    def _ended(self, attempt: Attempt, outcome: Outcome, report: ReportView) -> None:
        kind = outcome.kind
        if kind == "failed":
            kind = "dead" if report.state == "dead" else "retrying"
            error = _error_of(attempt, outcome)
            self.tally.failed.append(Failed(attempt.task.name, attempt.offer.id, attempt.offer.attempt, error))
        self.tally.outcomes[kind] += 1
        super()._ended(attempt, outcome, report)

    def _over(self, attempt: Attempt, reason: str) -> None:
        if attempt.token in self.leases:
            self.tally.outcomes["lost"] += 1
        super()._over(attempt, reason)


class _Batch(BatchLane):
    """A batch lane that is fed by hand, and does not wait for more."""

    async def run(self, offers: Sequence[OfferView]) -> None:
        """Run offers, up to a batch, by one call."""
        for offer in offers:
            self._take(offer)
        if attempts := await self._accept_all():
            for attempt in attempts:
                _keep_lease(attempt)
            await self._run(attempts)


def _keep_lease(attempt: Attempt) -> None:
    """Leave it to the server when the lease ends: its clock stands still, and ours does not."""
    attempt.lease_until = math.inf


async def _look_after(host: Host) -> None:
    while True:
        host.look_after_leases()
        for attempt in host.leases.values():
            # By heartbeats a worker hears that a job was cancelled: in a test without delay.
            attempt.beat_at = 0.0
        await asyncio.sleep(TICK_S)


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


def _error_of(attempt: Attempt, outcome: Outcome) -> BaseException:
    """Return what an attempt failed with, also where its code raised nothing."""
    if outcome.error is not None:
        return outcome.error
    assert outcome.trouble is not None, "a failure says what it is"
    message = outcome.trouble.message
    if attempt.stop is Stop.TIMEOUT:
        return TimeoutError(message)
    # The server did not take the result.
    return ResultTooLarge(message) if outcome.trouble.kind == "ResultTooLarge" else ResultInvalid(message)


def shown(failed: Sequence[Failed], lines_max: int) -> Iterator[str]:
    """Describe attempts that failed, a line each."""
    for one in failed[:lines_max]:
        yield f"{one.task} (job {one.job}, attempt {one.attempt}): {type(one.error).__name__}: {one.error}"
    if len(failed) > lines_max:
        yield f"and {len(failed) - lines_max:,} more"
