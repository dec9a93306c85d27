"""One worker in this process, from the import of its app to the end of the process, or to its replacement."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.cli.failures import INTERRUPTED, Terminated, failure_of
from penstock.cli.worker.children import program
from penstock.cli.worker.observing import Announcing, terminal_for
from penstock.cli.worker.parent import Parent
from penstock.cli.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from penstock.cli.terminal.worker import WorkerTerminal
    from penstock.client.worker.worker import Worker

LOOK_S = 0.5
BLOCKED_S = 8.0
"""How much longer than it has a worker may take to stop: longer than all that it does then."""
REPLACED = "PENSTOCK_WORKER_REPLACED"
"""Set for a process that takes the place of another."""
CLOSE_S = 2.0
EXIT_S = 5.0
FORCED_EXIT_S = 1.0
"""How long code that runs at the end of a process may take. Threads that do not end cannot keep it."""


def work(settings: WorkerSettings) -> int:
    """Run one worker, and return the exit code; raises `Failure`. A worker that is to be recycled does not return."""
    from penstock.client.worker.worker import Worker
    from penstock.domain.errors import PenstockError

    parent = Parent.from_environment()
    if parent is not None:
        parent.watch(settings.grace_s)
    signal.signal(signal.SIGTERM, _end)  # While nothing runs yet, there is nothing to wait for.
    app = settings.find_app()
    try:
        worker = Worker(
            app,
            settings.queues,
            name=settings.name,
            grace=settings.grace_s,
            max_jobs=settings.max_jobs,
            max_rss=settings.max_rss,
            health=settings.health,
        )
        worker.plan()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(worker, settings, parent))
    except PenstockError as error:
        raise failure_of(error, app.address) from None
    return INTERRUPTED if worker.forced else 0


async def _run(worker: Worker, settings: WorkerSettings, parent: Parent | None) -> None:
    """Run the worker. After that the process ends in time, whatever its threads do."""
    # Of several processes one speaks for all, and one that took the place of another has nothing new to say.
    banner = (parent is None or parent.number == 1) and REPLACED not in os.environ
    os.environ.pop(REPLACED, None)
    terminal = await terminal_for(worker, settings, banner=banner)
    worker.observer = Announcing(terminal, worker.status, _nothing if parent is None else parent.say_ready)
    ended = threading.Event()
    _end_if_blocked(worker, terminal, ended)
    try:
        await worker.run()
    finally:
        ended.set()
        terminal.close()
    code = INTERRUPTED if worker.forced else 0
    if worker.recycle is None:
        _in_time(FORCED_EXIT_S if worker.forced else EXIT_S, lambda: _exit(code))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await worker.app.aclose()
    if worker.recycle is not None:
        _in_time(EXIT_S, lambda: _replace(settings, parent))
        # As at the end of any process; the loop's own threads may be stuck, so they are not waited for.
        atexit._run_exitfuncs()  # noqa: SLF001 - there is no public way, and multiprocessing calls it too
        _replace(settings, parent)


def _replace(settings: WorkerSettings, parent: Parent | None) -> NoReturn:
    """Have a new process take the place of this one, with its id: what is stuck in threads ends, too."""
    if parent is not None:
        parent.pass_on()
    os.environ[REPLACED] = "1"
    _flush()
    arguments = [*program(), *settings.arguments()]
    os.execv(arguments[0], arguments)  # noqa: S606 - our own program


def _end_if_blocked(worker: Worker, terminal: WorkerTerminal, ended: threading.Event) -> None:
    """End the process if the worker has not ended some time after a signal, as a task blocks its event loop."""
    from penstock.client.worker.notices import Warned

    def watch() -> None:
        while not ended.wait(LOOK_S):
            now, signalled = time.monotonic(), worker.signalled_at
            forced = len(signalled) > 1 and now >= signalled[1] + BLOCKED_S
            if forced or (signalled and now >= signalled[0] + worker.grace_s + BLOCKED_S):
                terminal.close()
                terminal.notice(Warned(message="A task blocks the event loop and was given up, with all that ran."))
                _exit(INTERRUPTED if forced else 1)

    threading.Thread(target=watch, name="penstock-end-if-blocked", daemon=True).start()


def _in_time(seconds: float, do: Callable[[], NoReturn]) -> None:
    """Do it after this time, unless the process has ended by then."""

    def wait() -> None:
        time.sleep(seconds)
        do()

    threading.Thread(target=wait, name="penstock-end", daemon=True).start()


def _exit(code: int) -> NoReturn:
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _nothing() -> None:
    """Nobody waits for it."""


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Any = uvloop.new_event_loop
    return factory  # type: ignore[no-any-return] # uvloop's own type is a subclass
