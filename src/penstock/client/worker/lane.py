"""One queue of a worker: a stream of offers, and as many slots as jobs may run at once."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.client.calls import backoff
from penstock.client.errors import ClientError, ConnectionFailed
from penstock.client.reading import new_id
from penstock.client.worker import reports
from penstock.client.worker.attempt import Attempt, Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.client.tasks.task import Task
    from penstock.client.verbs.work import OfferStream
    from penstock.client.worker.host import Host
    from penstock.wire.jobs.answers import OfferView, ReportEntry

CREDIT_MAX = 500
ROUND_TRIPS = 4
"""An accept waits for the request before it, and a finished job's place for the report: some two round trips in all.

Twice as many let the rate grow to what the server can do; fewer would hold it where it is.
"""
AHEAD_MAX = 200
"""How many jobs are accepted and have not begun, at most. A worker that is killed loses an attempt of each."""
OPEN_S = 10.0
"""How long the server may take to open a stream."""
CLOSE_S = 0.5
"""How long slots get to end when the worker does."""
_SMOOTHING = 0.5
_OWN_VARIABLES = 1
"""A slot begins in an empty context, and `current()` needs one variable."""


class Lane:
    """Takes offers of one queue, accepts what a slot can start, and runs it.

    Credit is the slots and what passes in two round trips at the present rate, so that jobs which take no time are
    there when a slot is free, and long ones wait on the server. What is held here and not accepted costs no attempt.
    """

    def __init__(self, host: Host, queue: str, slots: int, tasks: dict[str, Task[..., Any, Any]]) -> None:
        self.queue = queue
        self.slots = slots
        self.running = 0
        self._host = host
        self._tasks = tasks
        self._request_id = new_id()
        self._stream: OfferStream | None = None
        self._reading: asyncio.Timeout | None = None
        """Ends the reading of the stream."""
        self._held: deque[tuple[OfferView, float]] = deque()
        self._accepting = 0
        self._accepted: deque[Attempt] = deque()
        self._idle: deque[asyncio.Future[Attempt]] = deque()
        self._slot_tasks: set[asyncio.Task[None]] = set()
        self._feed_task: asyncio.Task[None] | None = None
        self._crediting: asyncio.Task[None] | None = None
        self._fault: BaseException | None = None
        self._stopping = False
        self._ahead = 0
        """How many more jobs are accepted than there are slots."""
        self.credit = slots
        self._rate = 0.0
        self._ended = 0
        self._looked_at = time.monotonic()

    def start(self) -> None:
        """Open the stream and the slots."""
        for _ in range(self.slots):
            self._add_slot()
        self._feed_task = asyncio.create_task(self._feed(), name=f"penstock-feed-{self.queue}")

    @property
    def task_names(self) -> Sequence[str]:
        """The tasks that it takes."""
        return sorted(self._tasks)

    # -- offers ---------------------------------------------------------------------------------------

    async def _feed(self) -> None:
        failures = 0
        while not self._stopping:
            opened = False
            try:
                async with asyncio.timeout(None) as self._reading, self._open_stream() as stream:
                    self._held.clear()  # The server offers anew what it still means by these.
                    self._stream = stream
                    async for line in stream:
                        if line.offer is not None:
                            self._take(line.offer)
                        elif line.stream is not None:
                            opened = True
                            self._host.connected(self)
                        elif line.held_back and stream.name is not None:
                            await stream.add_credit(0)
                # It ended as it should: the server stops, or an hour has passed.
                failures = 0 if opened else failures + 1
            except (ClientError, TimeoutError) as error:
                failures = 1 if opened else failures + 1
                self._host.disconnected(self, error)
            finally:
                self._stream = self._reading = None
            if not self._stopping:
                pause_s = backoff(failures)
                self._host.pausing(pause_s)
                await asyncio.sleep(pause_s)

    def _open_stream(self) -> OfferStream:
        return self._host.app.work.stream(
            [self.queue],
            credit=self.credit,
            worker=self._host.name,
            tasks=self.task_names,
            request_id=self._request_id,
            reopen=False,
            timeout=OPEN_S,
        )

    def reopen(self) -> None:
        """Give the stream up if it is open, and open it anew: the server is silent."""
        if self._stream is not None and self._stream.name is not None and self._reading is not None:
            self._host.disconnected(self, ConnectionFailed("No heartbeat was answered for the length of a lease."))
            self._reading.reschedule(asyncio.get_running_loop().time())

    def _take(self, offer: OfferView) -> None:
        self._held.append((offer, time.monotonic() + offer.accept_in_ms / 1_000))
        self._pump()

    def _pump(self) -> None:
        """Accept what can start now, or within one round trip."""
        while self._held and not self._stopping:
            if self._accepting + len(self._accepted) + self.running >= self.slots + self._ahead:
                return
            offer, lapses_at = self._held.popleft()
            if time.monotonic() >= lapses_at:
                continue
            self._accept(offer)

    def _accept(self, offer: OfferView) -> None:
        attempt = Attempt(offer, self._tasks[offer.task], self._host.app, self._host.reports)
        self._accepting += 1
        self._host.reports.submit(reports.accept(offer.token), functools.partial(self._begin, attempt))

    def _begin(self, attempt: Attempt, answer: ReportEntry | Exception, sent_at: float) -> None:
        self._accepting -= 1
        # Without an answer it lapses, if it has not yet.
        accepted = not isinstance(answer, Exception) and answer.report is not None
        if not accepted or not self._host.begin(attempt, sent_at):
            self._pump()
            return
        if answer.report.cancel:  # type: ignore[union-attr] # It is accepted.
            attempt.interrupt(Stop.CANCELLED)
        if self._stopping:
            self._host.release(attempt)
            return
        while self._idle:
            slot = self._idle.popleft()
            if not slot.done():
                self.running += 1
                slot.set_result(attempt)
                return
        self._accepted.append(attempt)

    # -- slots ----------------------------------------------------------------------------------------

    def _add_slot(self) -> None:
        slot = asyncio.create_task(self._slot(), name=f"penstock-slot-{self.queue}", context=contextvars.Context())
        self._slot_tasks.add(slot)
        slot.add_done_callback(self._slot_ended)

    def _slot_ended(self, slot: asyncio.Task[None]) -> None:
        self._slot_tasks.discard(slot)
        if not slot.cancelled() and slot.exception() is not None:
            self._fault = slot.exception()

    def check(self) -> None:
        """Raise what ended a slot or the stream for good: a mistake in the worker itself."""
        if self._fault is not None:
            raise self._fault
        if self._feed_task is not None and self._feed_task.done() and not self._stopping:
            self._feed_task.result()

    async def _slot(self) -> None:
        """Run one job after another. A slot is one long-lived task: a task for each job would cost twice as much."""
        loop = asyncio.get_running_loop()
        runner = asyncio.current_task()
        assert runner is not None
        while not self._stopping:
            if self._accepted:
                attempt = self._accepted.popleft()
                self.running += 1
            else:
                waiting: asyncio.Future[Attempt] = loop.create_future()
                self._idle.append(waiting)
                attempt = await waiting
            try:
                await self._host.attempt(attempt, runner)
            finally:
                self.running -= 1
                self._ended += 1
            self._pump()
            if len(contextvars.copy_context()) > _OWN_VARIABLES and not self._stopping:
                # The task set a context variable, which must not be there for the next job.
                self._add_slot()
                return

    # -- rates ----------------------------------------------------------------------------------------

    def adjust(self) -> None:
        """Begin to give the server as much credit as the present rate needs, unless a change is under way."""
        now = time.monotonic()
        elapsed_s = now - self._looked_at
        self._rate += (self._ended / elapsed_s - self._rate) * _SMOOTHING
        self._looked_at, self._ended = now, 0
        passing = int(self._rate * self._host.reports.round_trip_s * ROUND_TRIPS)
        self._ahead = min(passing, AHEAD_MAX)
        wanted = min(self.slots + 2 * passing, CREDIT_MAX)
        stream = self._stream
        if stream is None or stream.name is None or abs(wanted - self.credit) * 5 < self.credit:
            return
        if self._crediting is not None and not self._crediting.done():
            return
        change, self.credit = wanted - self.credit, wanted
        # Nobody waits for it: leases are looked after meanwhile, also if the server does not answer.
        self._crediting = asyncio.create_task(self._add_credit(stream, change))

    async def _add_credit(self, stream: OfferStream, change: int) -> None:
        try:
            await stream.add_credit(change)
        except (ClientError, RuntimeError):
            # The stream is gone; the next one is opened with the credit of now.
            return

    # -- stopping -------------------------------------------------------------------------------------

    async def stop_taking(self) -> int:
        """Take no more: give back what is held and what has not begun. Return how many offers that are."""
        self._stopping = True
        returned = len(self._held) + len(self._accepted)
        if self._feed_task is not None:
            self._feed_task.cancel()
            await asyncio.wait((self._feed_task,))
        self._held.clear()
        while self._accepted:
            self._host.release(self._accepted.popleft())
        for slot in self._idle:
            slot.cancel()
        self._idle.clear()
        return returned

    async def close(self) -> None:
        """End the slots. What runs has ended, or was interrupted."""
        ending = {*self._slot_tasks, *(task for task in (self._crediting, self._feed_task) if task is not None)}
        for task in ending:
            task.cancel()
        if ending:
            # Code that will not stop has been given back, and is left alone.
            await asyncio.wait(ending, timeout=CLOSE_S)
