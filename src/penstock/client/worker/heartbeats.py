"""Heartbeats from a thread with a connection of its own: a task that blocks the event loop keeps its lease."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from penstock.client.errors import ClientError
from penstock.client.worker.attempt import Stop
from penstock.client.worker.notices import Stalled
from penstock.client.worker.troubles import stack_of

if TYPE_CHECKING:
    import asyncio

    from penstock.client.app import Penstock
    from penstock.client.requests import Report
    from penstock.client.worker.attempt import Attempt
    from penstock.client.worker.notices import Observer
    from penstock.wire.jobs.answers import ReportEntry

_log = logging.getLogger("penstock.worker")

LOOK_S = 0.25
RETRY_S = 1.0
"""After a heartbeat that failed, the next is sent this much later, or after a tenth of the lease if that is sooner."""
SEND_S = 5.0
"""How long one request of heartbeats may take, or a third of the shortest lease if that is less."""
BATCH_MAX = 500
LEASE_LOST = "urn:penstock:problem:lease-lost"


class Heartbeats:
    """Extends the leases in `leases` until it is closed, and says when the event loop does not run."""

    def __init__(
        self,
        app: Penstock,
        leases: dict[str, Attempt],
        loop: asyncio.AbstractEventLoop,
        observer: Observer,
        *,
        stall_s: float,
    ) -> None:
        self._app = app
        self._leases = leases
        self._loop = loop
        self._observer = observer
        self._stall_s = stall_s
        self._loop_thread = threading.get_ident()
        self._ticked = time.monotonic()
        self._stall_told = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-heartbeats", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, without waiting for a request that is under way."""
        self._closing.set()

    def join(self) -> None:
        """Wait until a request that is under way has ended. To be called after `close`."""
        self._thread.join()

    def tick(self) -> None:
        """Note that the event loop runs."""
        self._ticked = time.monotonic()
        self._stall_told = False

    def _run(self) -> None:
        looked_at = time.monotonic()
        while not self._closing.wait(LOOK_S):
            now = time.monotonic()
            if now - looked_at >= self._stall_s:
                # This thread did not run either: the process was stopped, or the machine slept.
                self._ticked = now
            looked_at = now
            try:
                self._look(now)
            except Exception:  # noqa: BLE001 - the outermost edge of this thread, without which all leases end
                _log.exception("heartbeats failed")

    def _look(self, now: float) -> None:
        self._look_for_stall(now)
        due = [attempt for attempt in list(self._leases.values()) if attempt.beat_at <= now]
        for first in range(0, len(due), BATCH_MAX):
            self._beat(due[first : first + BATCH_MAX])

    def _beat(self, due: list[Attempt]) -> None:
        sent_at = time.monotonic()
        reports: list[Report] = [{"do": "heartbeat", "token": attempt.token} for attempt in due]
        timeout_s = min(SEND_S, min(attempt.lease_s for attempt in due) / 3)
        try:
            answers = self._app.sync.work.report(reports, timeout=timeout_s)
        except ClientError as error:
            _log.debug("heartbeats failed: %s", error)
            for attempt in due:
                self._beat_again(attempt)
            return
        for attempt, answer in zip(due, answers, strict=True):
            self._take(attempt, answer, sent_at)

    def _take(self, attempt: Attempt, answer: ReportEntry, sent_at: float) -> None:
        if answer.report is not None:
            attempt.extend(sent_at, answer.report.lease_ms)
            if answer.report.cancel:
                self._call(attempt, Stop.CANCELLED)
        elif answer.problem is not None and answer.problem.type == LEASE_LOST:
            # Also if the attempt has just ended by a report of ours: then there is nothing left to stop.
            attempt.beat_at = sent_at + attempt.lease_s
            self._call(attempt, Stop.LEASE_OVER)
        else:
            self._beat_again(attempt)

    def _beat_again(self, attempt: Attempt) -> None:
        attempt.beat_at = time.monotonic() + min(RETRY_S, attempt.lease_s / 10)

    def _call(self, attempt: Attempt, why: Stop) -> None:
        try:
            self._loop.call_soon_threadsafe(self._interrupt, attempt, why)
        except RuntimeError:  # The loop has ended.
            self._closing.set()

    def _interrupt(self, attempt: Attempt, why: Stop) -> None:
        if self._leases.get(attempt.token) is attempt:
            attempt.interrupt(why)

    def _look_for_stall(self, now: float) -> None:
        stalled_s = now - self._ticked
        if stalled_s < self._stall_s or self._stall_told:
            return
        self._stall_told = True
        self._observer.notice(Stalled(for_s=stalled_s, stack=stack_of(self._loop_thread)))
