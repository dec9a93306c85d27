"""Reports of a worker, gathered: one request is under way, and what comes meanwhile goes with the next."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from penstock.client.errors import ConnectionFailed, DeadlineExceeded

if TYPE_CHECKING:
    from penstock.client.app import Penstock
    from penstock.wire.jobs.answers import ReportEntry

REPORTS_MAX = 500
BYTES_MAX = 4 * 1024 * 1024
TIMEOUT_S = 10.0
"""After this long without an answer each report is judged anew: its lease may be over."""

_SMOOTHING = 0.2


class Settle(Protocol):
    """What becomes of a report: it is called with the answer and the instant of sending, or with why there is none."""

    def __call__(self, answer: ReportEntry | Exception, sent_at: float) -> None:
        """Take in the answer."""


class Reports:
    """Sends reports in batches, in the order in which they were made."""

    def __init__(self, app: Penstock, worker: str = "") -> None:
        self._app = app
        self.worker = worker
        """The name of the worker."""
        self.loop = asyncio.get_running_loop()
        self._waiting: list[tuple[bytes, Settle]] = []
        self._wake: asyncio.Future[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.round_trip_s = 0.005
        """How long a request takes, smoothed."""
        self.answered_at = time.monotonic()

    def submit(self, report: bytes, settle: Settle) -> None:
        """Have a report sent; `settle` is called on this event loop with what became of it."""
        self._waiting.append((report, settle))
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def ask(self, report: bytes) -> ReportEntry:
        """Send a report and return what became of it; raises a `TransportError` if no answer came."""
        answered: asyncio.Future[ReportEntry] = asyncio.get_running_loop().create_future()

        def settle(answer: ReportEntry | Exception, sent_at: float) -> None:  # noqa: ARG001 - as `Settle` is
            if answered.done():
                return
            if isinstance(answer, Exception):
                answered.set_exception(answer)
            else:
                answered.set_result(answer)

        self.submit(report, settle)
        return await answered

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            if not self._waiting:
                self._idle.set()
                self._wake = asyncio.get_running_loop().create_future()
                try:
                    await self._wake
                finally:
                    self._wake = None
            self._idle.clear()
            await self._send(self._take())

    async def flush(self) -> None:
        """Return once everything that was submitted has been answered, or given up."""
        while self._waiting or not self._idle.is_set():
            if self._waiting and self._idle.is_set():
                await asyncio.sleep(0)  # `run` is about to take them.
            else:
                await self._idle.wait()

    def _take(self) -> list[tuple[bytes, Settle]]:
        waiting = self._waiting
        if len(waiting) <= REPORTS_MAX and sum([len(report) for report, _ in waiting]) <= BYTES_MAX:
            self._waiting = []
            return waiting
        count = size = 0
        for report, _ in waiting[:REPORTS_MAX]:
            size += len(report)
            if count and size > BYTES_MAX:
                break
            count += 1
        self._waiting = waiting[count:]
        return waiting[:count]

    async def _send(self, taken: list[tuple[bytes, Settle]]) -> None:
        sent_at = time.monotonic()
        try:
            answers = await self._app.work.report_written([report for report, _ in taken], timeout=TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - each report hears of it
            for _, settle in taken:
                settle(error, sent_at)
            if not isinstance(error, ConnectionFailed | DeadlineExceeded):
                # The whole batch was refused, by a token that is not valid any more, say. Do not ask again at once.
                await asyncio.sleep(1.0)
            return
        self.answered_at = time.monotonic()
        self.round_trip_s += (self.answered_at - sent_at - self.round_trip_s) * _SMOOTHING
        for (_, settle), answer in zip(taken, answers, strict=True):
            settle(answer, sent_at)


def accept(token: str) -> bytes:
    """Write the report that begins an attempt. Tokens need no escaping."""
    return b'{"do":"accept","token":"%b"}' % token.encode()


def complete(token: str, result: bytes) -> bytes:
    """Write the report of success."""
    return b'{"do":"complete","token":"%b","result":%b}' % (token.encode(), result)


def fail(token: str, failure: bytes) -> bytes:
    """Write the report of a failure."""
    return b'{"do":"fail","token":"%b","failure":%b}' % (token.encode(), failure)


def snooze(token: str, delay_ms: int) -> bytes:
    """Write the report that puts the job off."""
    return b'{"do":"snooze","token":"%b","delay_ms":%d}' % (token.encode(), delay_ms)


def release(token: str) -> bytes:
    """Write the report that gives the job back."""
    return b'{"do":"release","token":"%b"}' % token.encode()


def publish(token: str, events: list[bytes]) -> bytes:
    """Write the report with events of an attempt."""
    return b'{"do":"publish","token":"%b","events":[%b]}' % (token.encode(), b",".join(events))
