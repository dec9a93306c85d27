"""Who takes in what a worker has to say: the terminal, or a log."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.cli.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from penstock.cli.terminal.worker import QueueFacts, WorkerTerminal
    from penstock.client.app import Penstock
    from penstock.client.worker.notices import Notice, Status
    from penstock.client.worker.worker import Worker

LOOK_S = 1.0
"""How long the server may take to say how long leases last."""


class Announcing:
    """Passes notices on to a terminal. The live line begins with the first of them, so a quick start does not flicker.

    `ready` is called when the worker takes jobs.
    """

    def __init__(self, terminal: WorkerTerminal, status: Callable[[], Status], ready: Callable[[], None]) -> None:
        self._terminal = terminal
        self._status = status
        self._ready = ready
        self._watched = False

    @property
    def verbose(self) -> bool:
        """Whether jobs that succeed are worth a notice."""
        return self._terminal.verbose

    def notice(self, notice: Notice) -> None:
        """Take in what happened."""
        from penstock.client.worker.notices import Ready

        self._terminal.notice(notice)
        if not self._watched:
            self._watched = True
            self._terminal.watch(self._status)
        if isinstance(notice, Ready):
            self._ready()


async def terminal_for(worker: Worker, settings: WorkerSettings, *, banner: bool) -> WorkerTerminal:
    """Return what shows the notices of a worker, and have records of other code shown in the same way."""
    from penstock.cli.terminal.worker import QueueFacts

    queues = [QueueFacts(name=name, slots=slots, tasks=tasks) for name, (slots, tasks) in worker.plan().items()]
    people = settings.log_format == "console" and sys.stderr.isatty()
    lease_s = await _lease_s(worker.app, [queue.name for queue in queues]) if banner and people else None
    terminal = _terminal(settings, worker.app.address, queues, lease_s)
    _show_records(terminal.log_handler(), settings.verbose)
    if banner:
        terminal.banner()
    return terminal


class Sayer:
    """Says what happens to the processes of a worker. Nothing is loaded for it before there is something to say."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._opened: WorkerTerminal | None = None

    def warn(self, message: str) -> None:
        """Say what somebody should look at."""
        from penstock.client.worker.notices import Warned

        self._terminal().notice(Warned(message=message))

    def restart(self, reason: str) -> None:
        """Say why the worker starts again."""
        from penstock.client.worker.notices import Restarting

        self._terminal().notice(Restarting(reason=reason))

    def _terminal(self) -> WorkerTerminal:
        if self._opened is None:
            self._opened = _terminal(self._settings)
        return self._opened


def _terminal(
    settings: WorkerSettings, address: str = "", queues: Sequence[QueueFacts] = (), lease_s: float | None = None
) -> WorkerTerminal:
    from penstock.cli.terminal.worker import WorkerFacts, WorkerTerminal

    about = WorkerFacts(
        version=__version__,
        address=address,
        name=settings.name,
        queues=queues,
        grace_s=settings.grace_s,
        lease_s=lease_s,
    )
    return WorkerTerminal(
        about,
        sys.stderr,
        color=settings.color,
        log_format=settings.log_format,
        verbose=settings.verbose > 0,
        show_status=settings.status,
    )


async def _lease_s(app: Penstock, queues: Sequence[str]) -> float | None:
    """Return the shortest lease of these queues; None if the server does not say."""
    from penstock.client.errors import ClientError

    try:
        async with asyncio.timeout(LOOK_S):
            views = [await app.queues.get(queue) for queue in queues]
    except (ClientError, TimeoutError):
        return None
    return min(view.settings.lease_ms for view in views) / 1_000


def _show_records(handler: logging.Handler, verbose: int) -> None:
    """Show what the app and its libraries log, unless the app has set up its own logging when it was imported."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(handler)
        root.setLevel(logging.INFO)
    logging.getLogger("penstock").setLevel(logging.DEBUG if verbose > 1 else logging.WARNING)
