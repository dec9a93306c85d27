"""Threads for functions that are no coroutines. They are daemons, so one that hangs cannot keep the process alive."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_MAX = 64
"""How many threads without work are kept."""


class Threads:
    """Runs functions in threads, each in a copy of the caller's context. There are as many as are needed at once."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        """Threads that wait for work, less the work that waits for them."""
        self._closed = False

    def run(self, function: Callable[..., Any], *args: object, **kwargs: object) -> asyncio.Future[Any]:
        """Call a function in a thread and return its result as a future of this event loop.

        If the future is cancelled the function goes on, and what it returns or raises is dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            value, error = None, None
            try:
                value = context.run(function, *args, **kwargs)
            except BaseException as raised:  # noqa: BLE001 - it is raised where the call is awaited.
                error = raised
            try:
                loop.call_soon_threadsafe(_settle, future, value, error)
            except RuntimeError:  # The loop has ended: nobody waits.
                return

        self._start(work)
        return future

    def close(self) -> None:
        """Let the threads that have no work end."""
        with self._lock:
            self._closed = True
            for _ in range(max(self._free, 0)):
                self._work.put(None)

    def _start(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._free -= 1
            if self._free < 0:
                threading.Thread(target=self._loop, name="penstock-task", daemon=True).start()
                self._free += 1
        self._work.put(work)

    def _loop(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                if self._closed or self._free >= IDLE_MAX:
                    return
                self._free += 1


def _settle(future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):
        # A future cannot hold it.
        error = RuntimeError("the function raised StopIteration")
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
