"""How a worker meets its server: what is wrong with either is found before a job is taken."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from penstock.client.calls import backoff
from penstock.client.errors import (
    AccessDenied,
    ConnectionFailed,
    DeadlineExceeded,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    ServerTooOld,
    StoreUnavailable,
)
from penstock.client.worker import notices

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.app import Penstock

_AWAY = (ConnectionFailed, DeadlineExceeded, Overloaded, StoreUnavailable)
"""What a server that is not there yet is known by. Anything else at the start is an error."""


class Greeting:
    """Waits for the server, checks that it is new enough and takes our token, and saves the schedules."""

    def __init__(self, app: Penstock, notice: Callable[[notices.Notice], None]) -> None:
        self._app = app
        self._notice = notice
        self.began_at = time.monotonic()
        self.next_try_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Return once the server has answered, or `stop` is set; raises what the server refuses."""
        greeting = asyncio.create_task(self._greet_when_there(), name="penstock-greeting")
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((greeting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            greeting.cancel()
            stopping.cancel()
        await asyncio.wait((greeting, stopping))
        if not greeting.cancelled():
            greeting.result()

    async def _greet_when_there(self) -> None:
        failures = 0
        while True:
            try:
                await self._greet()
                break
            except _AWAY as error:
                if not failures:
                    self._notice(
                        notices.ConnectionLost(
                            address=self._app.address, reason=str(error), running=0, lease_left_s=None
                        )
                    )
            failures += 1
            pause_s = backoff(failures)
            self.next_try_at = time.monotonic() + pause_s
            await asyncio.sleep(pause_s)
        if failures:
            self._notice(notices.ConnectionBack(after_s=time.monotonic() - self.began_at, running=0, kept=0))

    async def _greet(self) -> None:
        app = self._app
        try:
            await app.workers.list(limit=1)
        except AccessDenied:
            pass  # A token that can work need not be able to look.
        except (NotFound, MethodNotAllowed) as error:
            raise ServerTooOld(
                f"The server at {app.address} is older than this worker: {error} Upgrade the server first."
            ) from None
        for cron in app.crons:
            try:
                await cron.save(app.schedules)
            except AccessDenied as error:
                message = (
                    f"The schedule of {cron.task.name} cannot be saved: {error} It takes a token with the scope admin."
                )
                self._notice(notices.Warned(message=message))
