"""A bounded number of child processes, and the assignments that wait for one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.client.worker.processes.child_process import ChildProcess, settled
from penstock.client.worker.processes.errors import ChildDied, ChildFailed, PoolClosed
from penstock.client.worker.processes.frames import Failure, Result, Run, frame_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.client.worker.processes.child_process import Reply
    from penstock.client.worker.processes.frames import Assignment


class Pool:
    """Runs assignments in child processes, at most `size` at once.

    Children are started when they are needed. A child serves one assignment after the other, and imports a module once.

    `entry` names a function as `package.module:function`. The child calls `entry(target, call, channel)` on its main
    thread: `target` is what the assignment's module and qualname name, `call` the assignment's bytes, and `channel` a
    `Channel`. It returns the result as bytes.

    A child is replaced after `recycle_after` assignments, and is given up if it is not ready after `start_s` seconds.
    """

    def __init__(self, *, entry: str, size: int, recycle_after: int | None = None, start_s: float = 30.0) -> None:
        if size < 1:
            raise ValueError("A pool needs a size of at least 1.")
        if recycle_after is not None and recycle_after < 1:
            raise ValueError("A child can be replaced after one assignment at the earliest.")
        self._entry = entry
        self._recycle_after = recycle_after
        self._start_s = start_s
        self._slots = asyncio.Semaphore(size)
        self._children: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []
        self._closed = False

    async def run(
        self, assignment: Assignment, *, handle: Callable[[bytes], Awaitable[bytes]], kill_after_s: float = 0.0
    ) -> bytes:
        """Run an assignment in an idle child, or wait for one, and return the result of the entry point.

        What the child asks by its channel is answered by `handle`.

        If the caller is cancelled, the child is killed, together with what it has started in its process group.
        With `kill_after_s` its channel becomes cancelled first, and it has that many seconds to finish; a second
        cancellation kills it at once. Either way the child is idle or dead, and `handle` has ended, when CancelledError
        goes on.

        Raises `ChildFailed` if the entry point raises, or if the child cannot start or import its target; `ChildDied`
        if the child ends; `PoolClosed`; and `FrameTooLarge` before anything runs.
        """
        frame = frame_of(Run(assignment=assignment))
        await self._slots.acquire()
        child = None
        try:
            child = self._take_idle() or await self._start()
            return await self._attend(child, frame, handle, kill_after_s)
        finally:
            self._put_back(child)

    async def close(self) -> None:
        """End all children: idle ones exit, busy ones are killed. Returns once all of them are gone."""
        self._closed = True
        for child in self._children:
            if child in self._idle:
                child.leave()
            elif child.usable:
                child.kill()
        self._idle.clear()
        while self._children:
            await asyncio.wait({child.gone for child in self._children})

    # -- the life of a child --------------------------------------------------------------------------

    def _take_idle(self) -> ChildProcess | None:
        while self._idle:
            child = self._idle.pop()
            if child.usable:
                return child
        return None

    async def _start(self) -> ChildProcess:
        self._refuse_if_closed()
        child, theirs = await ChildProcess.connect()
        with theirs:
            try:
                self._refuse_if_closed()
                child.spawn(theirs)
            except BaseException:
                child.leave()
                raise
        self._children.add(child)
        child.gone.add_done_callback(lambda _: self._children.discard(child))
        try:
            await self._set_up(child)
        except BaseException:
            await child.end()
            raise
        return child

    async def _set_up(self, child: ChildProcess) -> None:
        reply = child.set_up(self._entry)
        try:
            async with asyncio.timeout(self._start_s):
                await asyncio.wait((reply,))
        except TimeoutError:
            raise ChildFailed("TimeoutError", f"The process was not ready after {self._start_s:g} seconds.") from None
        self._raise_if_bad(reply.result())

    async def _attend(
        self, child: ChildProcess, frame: bytes, handle: Callable[[bytes], Awaitable[bytes]], kill_after_s: float
    ) -> bytes:
        reply = child.run(frame, handle)
        try:
            await asyncio.wait((reply,))
        except asyncio.CancelledError:
            if not reply.done():
                await _stop(child, reply, kill_after_s)
            raise
        finally:
            await child.handled()
        outcome = reply.result()
        self._raise_if_bad(outcome)
        assert isinstance(outcome, Result)
        return outcome.value

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise PoolClosed

    def _raise_if_bad(self, reply: Reply) -> None:
        if isinstance(reply, Failure):
            raise ChildFailed(reply.kind, reply.message, reply.traceback)
        if isinstance(reply, ChildDied):
            if self._closed:
                raise PoolClosed from reply
            raise reply

    def _put_back(self, child: ChildProcess | None) -> None:
        if child is not None and child.usable:
            if self._recycle_after is None or child.runs < self._recycle_after:
                self._idle.append(child)
            else:
                child.leave()
        if child is None or child.usable or child.gone.done():
            self._slots.release()
        else:
            # It is a process still, so its place is taken.
            child.gone.add_done_callback(lambda _: self._slots.release())


async def _stop(child: ChildProcess, reply: asyncio.Future[Reply], kill_after_s: float) -> None:
    """Return once the child has replied by itself within the time, or else is gone."""
    timer = None
    if kill_after_s > 0:
        child.cancel()
        timer = asyncio.get_running_loop().call_later(kill_after_s, child.kill)
    else:
        child.kill()
    try:
        await settled(reply, on_cancel=child.kill)
    finally:
        if timer is not None:
            timer.cancel()
        if child.killed:
            await settled(child.gone)
