"""`Worker`: runs an app's tasks until you stop it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import time
from typing import TYPE_CHECKING, Any

from penstock.client.durations import Duration, seconds
from penstock.client.errors import WorkerInvalid
from penstock.client.loops import refuse_on_loop
from penstock.client.tasks.batch import BatchTask
from penstock.client.worker import notices
from penstock.client.worker.attempt import Stop
from penstock.client.worker.batches import BatchLane
from penstock.client.worker.checking import check_limits, checked_queues
from penstock.client.worker.children import Children
from penstock.client.worker.execution import Execution
from penstock.client.worker.greeting import Greeting
from penstock.client.worker.health import Health
from penstock.client.worker.heartbeats import Heartbeats
from penstock.client.worker.host import Host
from penstock.client.worker.lane import Lane
from penstock.client.worker.logs import CarefulObserver, LoggingObserver
from penstock.client.worker.memory import resident_bytes
from penstock.client.worker.reports import Reports
from penstock.client.worker.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from penstock.client.app import Penstock
    from penstock.client.tasks.task import Task
    from penstock.client.worker.notices import Observer

SLOTS_DEFAULT = 10
TASKS_MAX = 500
"""How many names of tasks the server takes."""
TICK_S = 0.1
OPENING_LOOK_S = 0.01
MEMORY_LOOK_S = 5.0
STALL_S = 2.0
RELEASE_SHARE = 0.2
RELEASE_S_MAX = 2.0
"""This much of the grace is left to give back what has not ended."""


class Worker:
    """Runs tasks of an app: `await Worker(app, queues={"mail": 2}).run()`.

    `queues` says how many jobs of each queue run at once; left out, all queues of the app's tasks, ten each. `grace` is
    how long running jobs get when the worker stops; what has not ended by then is given back. After `max_jobs` jobs, or
    above `max_rss` bytes of memory, the worker stops by itself, and `recycle` says why. `health` is an address such as
    `127.0.0.1:8081` to answer GET /healthz at. A server that is away when the worker starts is waited for.
    """

    def __init__(
        self,
        app: Penstock,
        queues: Mapping[str, int] | None = None,
        *,
        name: str | None = None,
        grace: Duration = 25,
        max_jobs: int | None = None,
        max_rss: int | None = None,
        health: str | None = None,
        observer: Observer | None = None,
    ) -> None:
        check_limits(app, name, max_jobs=max_jobs, max_rss=max_rss)
        self.app = app
        self.name = name or f"{_package(app)}-{secrets.token_hex(2)}"
        self.grace_s = seconds(grace, "grace")
        self.recycle: str | None = None
        """Why the process is to be replaced, if it is. A worker that was also asked to stop is not to be replaced."""
        self._queues = None if queues is None else checked_queues(queues)
        self._max_jobs = max_jobs
        self._max_rss = max_rss
        self._observer: Observer
        self._health = None if health is None else Health(self, health)
        self.observer = observer or LoggingObserver()
        self._signals = 0
        self.signalled_at: list[float] = []
        """When signals asked it to stop, noted also while a task blocks the event loop, which then cannot stop."""
        self._stop_reason: str | None = None
        self._wake: asyncio.Event | None = None
        self._host: Host | None = None
        self._lanes: list[Lane] = []
        self._stopping_at: float | None = None
        self._started = 0.0
        self._greeting: Greeting | None = None
        """While the worker is not ready."""

    def plan(self) -> dict[str, tuple[int, list[str]]]:
        """Return the slots of each queue and the tasks that are enqueued there; raises `WorkerInvalid`."""
        self.app.import_tasks()
        if not self.app.tasks:
            raise WorkerInvalid(
                "The app has no tasks. Import the modules that declare them: app.include(…) or --import."
            )
        if len(self.app.tasks) > TASKS_MAX:
            raise WorkerInvalid(f"The app has more than {TASKS_MAX} tasks. Split it, or import fewer modules.")
        by_queue: dict[str, list[str]] = {}
        for task in dict.fromkeys(self.app.tasks.values()):
            plain = task.task if isinstance(task, BatchTask) else task
            plain.signature  # noqa: B018 - types that cannot be read are found now, not at the first job
            plain.result  # noqa: B018 - as above
            by_queue.setdefault(plain.queue, []).append(plain.name)
        queues = dict.fromkeys(sorted(by_queue), SLOTS_DEFAULT) if self._queues is None else self._queues
        return {queue: (slots, sorted(by_queue.get(queue, ()))) for queue, slots in queues.items()}

    async def run(self, *, signals: bool = True) -> None:
        """Work until SIGTERM, SIGINT, `stop`, or a limit. Raises at once if the server refuses what it needs.

        It waits for a server that is away. At the second signal running jobs are given back at once. With
        `signals=False` only `stop` ends it.
        """
        plan = self.plan()
        loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._started = time.monotonic()
        threads, children = Threads(), Children(size=sum(slots for slots, _ in plan.values()))
        reports = Reports(self.app, self.name)
        self._host = host = Host(self.app, self.name, self.observer, reports, Execution(self.app, threads, children))
        heartbeats = Heartbeats(self.app, host.leases, loop, self.observer, stall_s=STALL_S)
        sending = asyncio.create_task(reports.run(), name="penstock-reports")
        async with contextlib.AsyncExitStack() as stack:
            if self._health is not None:
                await stack.enter_async_context(self._health)
            if signals:
                stack.enter_context(self._heed_signals(loop))
            try:
                self.app.look_after_store()
                self._greeting = Greeting(self.app, self.notice)
                await self._greeting.run(self._wake)
                for queue in (queue for queue, (_, tasks) in plan.items() if not tasks):
                    message = f"No task is declared in queue {queue}. Only calls with opts(queue={queue!r}) go there."
                    self.notice(notices.Warned(message=message))
                if not self._wake.is_set():
                    heartbeats.start()
                    self._open_lanes(plan, host)
                    await self._get_ready(host, heartbeats)
                    await self._work(host, heartbeats, sending)
                await self._stop(host, heartbeats)
            finally:
                heartbeats.close()
                for lane in self._lanes:
                    await lane.close()
                sending.cancel()
                await asyncio.wait((sending,))
                await children.close()
                threads.close()
        counters = host.counters
        self.notice(
            notices.Stopped(
                done=counters.done,
                retrying=counters.retrying,
                dead=counters.dead,
                released=counters.released,
                ran_s=time.monotonic() - self._started,
            )
        )

    def run_sync(self) -> None:
        """Run on an event loop of its own, on uvloop where that is installed."""
        refuse_on_loop("run_sync", "run")
        try:
            import uvloop  # noqa: PLC0415 - optional
        except ImportError:
            factory: Any = None
        else:
            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self.run())

    def stop(self, reason: str = "stop was called") -> None:
        """Take no more, and give running jobs the grace; called again, give them back now. To be called on its loop."""
        self._signals += 1
        self._stop_reason = self._stop_reason or reason
        self.recycle = None
        if self._wake is not None:
            self._wake.set()

    @property
    def forced(self) -> bool:
        """Whether `stop` was called twice."""
        return self._signals > 1

    @property
    def observer(self) -> Observer:
        """What takes in the worker's notices."""
        return self._observer

    @observer.setter
    def observer(self, observer: Observer) -> None:
        self._observer = CarefulObserver(observer)

    def notice(self, notice: notices.Notice) -> None:
        """Pass a notice on to the observer."""
        self.observer.notice(notice)

    def status(self) -> notices.Status:
        """Return the numbers of now."""
        now = time.monotonic()
        host, greeting = self._host, self._greeting
        if host is None:
            return notices.Status(slots=0, running=0, done=0, retrying=0, dead=0, last_job_s=None, disconnected_s=0.0)
        running = [attempt for attempt in host.leases.values() if attempt.started and attempt.runner is not None]
        oldest = min(running, key=lambda attempt: attempt.started, default=None)
        counters = host.counters
        return notices.Status(
            slots=sum(lane.slots for lane in self._lanes),
            running=len(running),
            done=counters.done,
            retrying=counters.retrying,
            dead=counters.dead,
            last_job_s=None if counters.last_at is None else now - counters.last_at,
            disconnected_s=host.disconnected_s if greeting is None else now - greeting.began_at,
            next_try_s=max((host if greeting is None else greeting).next_try_at - now, 0.0),
            stopping_s=None if self._stopping_at is None else max(self._stopping_at + self.grace_s - now, 0.0),
            oldest=None
            if oldest is None
            else notices.Running(
                queue=oldest.offer.queue, task=oldest.task.name, job=oldest.offer.id, for_s=now - oldest.started
            ),
        )

    # -- inside -----------------------------------------------------------------------------------------

    def _open_lanes(self, plan: dict[str, tuple[int, list[str]]], host: Host) -> None:
        plain: dict[str, Task[..., Any, Any]] = {}
        batches: dict[BatchTask[Any, Any], list[str]] = {}
        for name, task in self.app.tasks.items():
            if isinstance(task, BatchTask):
                batches.setdefault(task, []).append(name)
            else:
                plain[name] = task
        for queue, (slots, _) in plan.items():
            if plain:
                self._lanes.append(Lane(host, queue, slots, plain))
            self._lanes.extend(
                BatchLane(host, queue, task, names) for task, names in batches.items() if task.task.queue == queue
            )
        for lane in self._lanes:
            lane.start()

    async def _get_ready(self, host: Host, heartbeats: Heartbeats) -> None:
        """Wait until the stream of each lane is open; raises if the server refuses one."""
        assert self._wake is not None
        while len(host.opened) < len(self._lanes):
            await self._tick(host, heartbeats, OPENING_LOOK_S)
            if host.refusal is not None:
                raise host.refusal
            if self._wake.is_set():
                return
        self._greeting = None
        self.notice(notices.Ready(slots=sum(lane.slots for lane in self._lanes), tasks=len(self.app.tasks)))

    async def _work(self, host: Host, heartbeats: Heartbeats, sending: asyncio.Task[None]) -> None:
        """Look after everything until it is time to stop."""
        assert self._wake is not None
        looked_at = time.monotonic()
        while not self._wake.is_set():
            await self._tick(host, heartbeats)
            for lane in self._lanes:
                lane.check()
                lane.adjust()
            if sending.done():
                sending.result()
            if self._max_jobs is not None and host.counters.ended >= self._max_jobs:
                ended = host.counters.ended
                self._recycle(f"{ended:,} {'job' if ended == 1 else 'jobs'} done")
            elif self._max_rss is not None and time.monotonic() - looked_at >= MEMORY_LOOK_S:
                looked_at = time.monotonic()
                if (used := resident_bytes()) > self._max_rss:
                    self._recycle(f"{used / 2**20:,.0f} MiB of memory used")
            elif (stuck := host.stuck()) is not None:
                offer = stuck.offer
                took_s = time.monotonic() - stuck.started
                self.notice(
                    notices.Stuck(
                        queue=offer.queue, task=stuck.task.name, job=offer.id, attempt=offer.attempt, took_s=took_s
                    )
                )
                self._recycle("a thread is stuck")

    async def _tick(self, host: Host, heartbeats: Heartbeats, wait_s: float = TICK_S) -> None:
        assert self._wake is not None
        heartbeats.tick()
        if host.is_silent():
            for lane in self._lanes:
                lane.reopen()
        host.look_after_leases()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()

    def _recycle(self, reason: str) -> None:
        if self._signals:
            return
        self.recycle = reason
        self._stop_reason = self._stop_reason or reason
        assert self._wake is not None
        self._wake.set()

    async def _stop(self, host: Host, heartbeats: Heartbeats) -> None:
        """Take no more, wait for what runs, and give back what has not ended when the grace is nearly over."""
        assert self._wake is not None
        self._stopping_at = time.monotonic()
        returned = 0
        for lane in self._lanes:
            returned += await lane.stop_taking()
        self.notice(
            notices.Stopping(
                reason=self._stop_reason or "",
                running=sum(lane.running for lane in self._lanes),
                returned=returned,
                grace_s=self.grace_s,
            )
        )
        kept_s = min(self.grace_s * RELEASE_SHARE, RELEASE_S_MAX)
        release_at = self._stopping_at + self.grace_s - kept_s
        while any(lane.running for lane in self._lanes) and time.monotonic() < release_at and not self.forced:
            self._wake.clear()
            await self._tick(host, heartbeats)
        for attempt in list(host.leases.values()):
            attempt.interrupt(Stop.RELEASED)
        end_at = min(release_at, time.monotonic()) + kept_s
        while any(lane.running for lane in self._lanes) and time.monotonic() < end_at:
            heartbeats.tick()
            await asyncio.sleep(0.01)
        for attempt in list(host.leases.values()):
            if attempt.runner is not None:  # Its code does not heed the cancellation.
                host.end(attempt, host.stopped(attempt))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(end_at - time.monotonic(), 0.5)):
                await host.reports.flush()

    def _noting(self, handler: Any) -> Callable[[int, FrameType | None], None]:  # noqa: ANN401 - as `signal` has it
        """Return a handler that notes when a signal came, and then does what the event loop's own does."""

        def note(number: int, frame: FrameType | None) -> None:
            self.signalled_at.append(time.monotonic())
            if callable(handler):
                handler(number, frame)

        return note

    @contextlib.contextmanager
    def _heed_signals(self, loop: asyncio.AbstractEventLoop) -> Any:  # noqa: ANN401 - a generator
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.getsignal(number) for number in numbers}
        for number in numbers:
            loop.add_signal_handler(number, self.stop, number.name)
            signal.signal(number, self._noting(signal.getsignal(number)))
            signal.siginterrupt(number, False)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number])


def _package(app: Penstock) -> str:
    """Return the top-level package of an app's tasks, which says more than any other name."""
    return next(iter(app.tasks), "worker").partition(".")[0]
