"""An engine in memory whose time stands still until it is moved: what an app's tests run on."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from penstock.client.embedded.in_process import AsyncSender, InProcess, SyncSender
from penstock.client.errors import WrongProcess
from penstock.domain.clock import ManualClock, SystemClock

if TYPE_CHECKING:
    from concurrent.futures import Future

    from penstock.client.transport.http1 import Answer, Outgoing
    from penstock.engine.jobs.jobs import NextDue

START_S = 30.0
"""How long the engine may take to start."""
_WAIT = "?wait="


class ManualEngine:
    """Senders to an engine of their own. Its clock starts at the present, and only `advance` moves it.

    `close` and `aclose` do nothing, so that the app can be closed and used again within one test; `end` ends it.
    """

    def __init__(self) -> None:
        self.clock = ManualClock(SystemClock().now_ms())
        """To be read; `advance` moves it."""
        self._in_process = InProcess("memory:", START_S, clock=self.clock)
        self._async = _AsyncSender(self._in_process)
        self._sync = _SyncSender(self._in_process)
        self._pid = os.getpid()
        self.ended = False
        """Whether it has ended."""

    # -- as senders -----------------------------------------------------------------------------------

    def open_async(self) -> AsyncSender:
        """Return the one for async code."""
        self._refuse_in_child()
        return self._async

    def open_sync(self) -> SyncSender:
        """Return the one for sync code."""
        self._refuse_in_child()
        return self._sync

    def look_after_store(self) -> None:
        """Do nothing: what comes due does so when the clock is moved."""

    def close(self) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Do nothing."""

    def _refuse_in_child(self) -> None:
        if self._pid != os.getpid():
            raise WrongProcess(
                "The engine of app.testing() stays in the process of the test, and this is a forked child."
            )

    # -- as a test's engine -----------------------------------------------------------------------------

    def start(self) -> None:
        """Return once requests can be answered; raises why they cannot."""
        self._in_process.running().ready.result(START_S)

    def end(self) -> None:
        """Stop the engine and wait until it has. All that it holds is gone."""
        self.ended = True
        self._in_process.close()

    def now_ms(self) -> int:
        """Return the present instant."""
        return self.clock.now_ms()

    def catch_up(self) -> Future[NextDue]:
        """Give effect to what is due now, and say when there is more."""
        running = self._in_process.running()
        return running.submit(running.engine.jobs.catch_up)

    def advance(self, ms: int) -> Future[NextDue]:
        """Move time forward, and give effect to all that comes due on the way, each at its own instant."""
        running = self._in_process.running()
        jobs = running.engine.jobs

        async def advance() -> NextDue:
            until_ms = self.clock.now_ms() + ms
            while True:
                due = await jobs.catch_up()
                left_ms = until_ms - self.clock.now_ms()
                if left_ms <= 0:
                    return due
                step_ms = min([left_ms, *(in_ms for in_ms in due if in_ms is not None)])
                await self.clock.advance(ms=step_ms)

        return running.submit(advance)


class _AsyncSender(AsyncSender):
    async def exchange(self, request: Outgoing, deadline: float) -> Answer:
        return await super().exchange(request, _deadline(request, deadline))


class _SyncSender(SyncSender):
    def exchange(self, request: Outgoing, deadline: float) -> Answer:
        return super().exchange(request, _deadline(request, deadline))


def _deadline(request: Outgoing, deadline: float) -> float:
    """Return until when an answer is waited for.

    A request for a result waits on the server by its clock, which stands still. Its caller means the clock on the wall:
    when that time is up the call is repeated, without a wait.
    """
    _, waits, wait_s = request.target.partition(_WAIT)
    return min(deadline, time.monotonic() + float(wait_s)) if waits else deadline
