"""One attempt of a job in a worker, from its offer to its last report."""

from __future__ import annotations

import math
import time
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.client.tasks.context import Context
from penstock.client.worker.events import AttemptEvents

if TYPE_CHECKING:
    import asyncio

    from penstock.client.app import Penstock
    from penstock.client.tasks.task import Task
    from penstock.client.worker.reports import Reports
    from penstock.wire.jobs.answers import OfferView

MARGIN_S_MAX = 1.0
TIMEOUT_MARGIN_S = 0.05
"""How much sooner than the server a worker ends an attempt whose time is up, so that its own report comes first."""


class Stop(Enum):
    """Why an attempt is stopped from outside."""

    CANCELLED = "the job was cancelled"
    TIMEOUT = "the attempt ran for longer than its timeout"
    LEASE_OVER = "the lease ended"
    RELEASED = "the worker stops"


class Attempt:
    """An attempt. Its lease ends here a little earlier than on the server, by this machine's monotonic clock."""

    __slots__ = (
        "_app",
        "_context",
        "_reports",
        "beat_at",
        "deadline",
        "events",
        "in_thread",
        "lease_s",
        "lease_until",
        "offer",
        "runner",
        "shared",
        "started",
        "stop",
        "task",
        "times_out",
        "times_out_at",
        "token",
    )

    def __init__(self, offer: OfferView, task: Task[..., Any, Any], app: Penstock, reports: Reports) -> None:
        self._app = app
        self._reports = reports
        self.offer = offer
        self.task = task
        self.token = offer.token
        self.lease_s = offer.lease_ms / 1_000
        self.lease_until = 0.0
        self.beat_at = 0.0
        """When the next heartbeat is due."""
        self.started = 0.0
        self.deadline = 0.0
        self.times_out_at = math.inf
        """When the server ends it, at the earliest; it is stopped here at `deadline`, a little sooner."""
        self.times_out = False
        """Whether the timeout, and not silence, may be what ends its lease."""
        self.stop: Stop | None = None
        """Why it is to stop, once it is."""
        self.runner: asyncio.Task[Any] | None = None
        """What to cancel, while the task's code runs."""
        self._context: Context | None = None
        self.events: AttemptEvents | None = None
        self.in_thread = False
        """Whether a thread runs its code, which goes on whatever becomes of the attempt."""
        self.shared = False
        """Whether one call runs for this and for others, which go on if this one is cancelled."""

    def extend(self, sent_at: float, lease_ms: int | None = None) -> None:
        """Note that the server extended the lease, at the earliest when the request was sent."""
        lease_s = self.lease_s if lease_ms is None else lease_ms / 1_000
        # The server's lease ends no sooner than this.
        until = min(sent_at + lease_s, self.times_out_at)
        # The server extended it by now at the latest: only then may the timeout have cut it short.
        self.times_out = time.monotonic() + lease_s >= self.times_out_at
        # It needs no margin where it outlasts the deadline. With one, each timeout would look like a lost lease.
        self.lease_until = until if until >= self.deadline else until - min(lease_s / 10, MARGIN_S_MAX)
        self.beat_at = sent_at + lease_s / 3

    def begin(self, sent_at: float) -> None:
        """Note that the attempt was accepted by a request that was sent then."""
        timeout_s = self.offer.timeout_ms / 1_000
        self.times_out_at = sent_at + timeout_s
        self.deadline = sent_at + (timeout_s - TIMEOUT_MARGIN_S if timeout_s > 1 else timeout_s * 0.9)
        self.extend(sent_at)

    @property
    def context(self) -> Context:
        """What the task knows of it."""
        if self._context is None:
            self._context = Context(self.offer, self.task.name, self.open_events, self.deadline, self._reports.worker)
            self._context.cancelled = self.stop is not None
        return self._context

    @property
    def progress(self) -> str:
        """What the task last said of its progress."""
        return "" if self._context is None else self._context.progress_text

    def open_events(self) -> AttemptEvents:
        """Return what keeps the events of this attempt."""
        self.events = AttemptEvents(self._app, self._reports, self.offer.id, self.token)
        return self.events

    @property
    def leased(self) -> bool:
        """Whether the lease still lasts, as far as can be known here."""
        return time.monotonic() < self.lease_until

    def interrupt(self, why: Stop) -> None:
        """Stop the task's code as far as it can be stopped. A graver reason replaces one that was given before."""
        if self.stop is not None and _GRAVITY[why] <= _GRAVITY[self.stop]:
            return
        was_cancelled = self.stop is not None and not self._cooperates(self.stop)
        self.stop = why
        if self._context is not None:
            self._context.cancelled = True
        if self.runner is not None and not was_cancelled and not self._cooperates(why):
            self.runner.cancel(why.value)

    def _cooperates(self, why: Stop) -> bool:
        """Return whether the code goes on, with its lease: in a thread it stops by itself, in a batch it has others."""
        return (self.in_thread or self.shared) and why is Stop.CANCELLED


_GRAVITY = {Stop.CANCELLED: 0, Stop.RELEASED: 1, Stop.TIMEOUT: 1, Stop.LEASE_OVER: 2}
