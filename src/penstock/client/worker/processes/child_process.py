"""The parent's side of one child process: its start, its socket and its end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.client.worker.processes.errors import ChildDied, ChildFailed, FrameTooLarge
from penstock.client.worker.processes.exits import ExitWatch
from penstock.client.worker.processes.frames import (
    EXIT_S,
    Answer,
    Ask,
    Cancel,
    Failure,
    FrameReader,
    Ready,
    Refusal,
    Result,
    Setup,
    decoder_in_parent,
    frame_of,
    message_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handle = Callable[[bytes], Awaitable[bytes]]

DRAIN_S = 1.0
"""How long the socket of a dead child is read to its end. Only a process that the child left behind keeps it open."""
_PROGRAM = "penstock.client.worker.processes.child"
_HELD_BACK = (signal.SIGINT, signal.SIGTERM)

Reply = Ready | Result | Failure | ChildDied


class ChildProcess(asyncio.Protocol):
    """One child. It has one thing to do at a time: to set itself up, and then one assignment after the other.

    Make one with `connect` and `spawn`. It leads a process group, which `kill` ends with it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[ChildDied] = self._loop.create_future()
        """Done once the process has ended and is reaped."""
        self.killed = False
        self.runs = 0
        """How many assignments it was given."""
        self._process: subprocess.Popen[bytes] | None = None
        self._frames = FrameReader()
        self._connected = False
        self._exit: ChildDied | None = None
        self._last_call: asyncio.TimerHandle | None = None
        self._reply: asyncio.Future[Reply] | None = None
        self._handle: Handle | None = None
        self._context: contextvars.Context | None = None
        self._answering: asyncio.Task[None] | None = None

    # -- its life -------------------------------------------------------------------------------------

    @classmethod
    async def connect(cls) -> tuple[ChildProcess, socket.socket]:
        """Return one without a process yet, and the end of its socket that is for the process."""
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            _, child = await asyncio.get_running_loop().create_unix_connection(cls, sock=ours)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return child, theirs

    def spawn(self, theirs: socket.socket) -> None:
        """Start the process.

        Call it on the event loop's thread: Linux kills the child when the thread that started it ends.
        """
        # Until the child has its own handlers, a Ctrl-C would end it; so it starts with these signals blocked.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
                    [sys.executable, "-P", "-m", _PROGRAM, str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # So that it finds this package.
                    process_group=0,
                )
        except OSError as error:
            raise ChildFailed(type(error).__name__, f"No process could be started: {error}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._watch = ExitWatch(self._process, self._ended)

    @property
    def usable(self) -> bool:
        """False as soon as there is a sign that the process has ended or will end."""
        return self._exit is None and not self.killed and not self._transport.is_closing()

    def leave(self) -> None:
        """Let an idle child exit by itself. It is killed if it does not do so in time."""
        self._transport.close()

    def kill(self) -> None:
        """Kill the process, and what it has started in its group."""
        if self._exit is None:
            self.killed = True
            self._kill_group()
            self._watch.expect()

    async def end(self) -> None:
        """Kill the process, and return once it is gone, also if the caller is cancelled meanwhile."""
        self.kill()
        await settled(self.gone)

    # -- what it does ---------------------------------------------------------------------------------

    def set_up(self, entry: str) -> asyncio.Future[Reply]:
        """Hand over what the child needs. The reply is `Ready`, `Failure` or `ChildDied`."""
        setup = Setup(entry=entry, path=list(sys.path), python_path=os.environ.get("PYTHONPATH"))
        return self._begin(frame_of(setup))

    def run(self, frame: bytes, handle: Handle) -> asyncio.Future[Reply]:
        """Begin an assignment. The reply is `Result`, `Failure` or `ChildDied`.

        What the child asks is answered by `handle`, which runs in the context of the caller.
        """
        self.runs += 1
        self._handle = handle
        self._context = contextvars.copy_context()
        return self._begin(frame)

    def cancel(self) -> None:
        """Set the assignment's channel to cancelled."""
        self._transport.write(frame_of(Cancel()))

    async def handled(self) -> None:
        """Return once `handle` does not run any more. It is cancelled when its assignment ends."""
        if self._answering is not None:
            await settled(self._answering)

    def _begin(self, frame: bytes) -> asyncio.Future[Reply]:
        assert self._reply is None, "A child does one thing at a time."
        reply: asyncio.Future[Reply] = self._loop.create_future()
        if self.gone.done():
            reply.set_result(self.gone.result())
            return reply
        self._reply = reply
        self._transport.write(frame)
        return reply

    def _finish(self, reply: Reply) -> None:
        if self._reply is not None:
            self._reply.set_result(reply)
            self._reply = self._handle = self._context = None
        if self._answering is not None:
            self._answering.cancel()

    def _receive(self, message: Ready | Ask | Result | Failure) -> None:
        if not isinstance(message, Ask):
            self._finish(message)
        elif self._handle is not None:
            self._answering = self._loop.create_task(self._answer(message.request, self._handle), context=self._context)

    async def _answer(self, request: bytes, handle: Handle) -> None:
        try:
            frame = frame_of(Answer(value=await handle(request)))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the child decides what a failure means
            frame = frame_of(Refusal(kind=type(error).__name__, message=message_of(error)))
        if self._answering is asyncio.current_task():
            self._answering = None
            if self._reply is not None:
                self._transport.write(frame)

    # -- what asyncio calls ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connected = True

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                self._receive(decoder_in_parent.decode(body))
        except (FrameTooLarge, msgspec.MsgspecError):
            # The task wrote to a file descriptor that is not its own.
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was lost
        self._connected = False
        if self._exit is None and self._process is not None:
            self._watch.expect()
            self._last_call = self._loop.call_later(EXIT_S, self.kill)
        self._end_if_gone()

    def _ended(self) -> None:
        assert self._process is not None
        if self._reply is not None:
            self._kill_group()  # Before it is reaped: then its number may be another's.
        code = self._process.wait()
        self._exit = ChildDied(signal=-code) if code < 0 else ChildDied(exit_code=code)
        if self._connected:
            # A result may still be unread, and comes before the end of the stream.
            self._last_call = self._loop.call_later(DRAIN_S, self._transport.abort)
        self._end_if_gone()

    def _end_if_gone(self) -> None:
        if self._connected or self._exit is None:
            return
        if self._last_call is not None:
            self._last_call.cancel()
        self.gone.set_result(self._exit)
        self._finish(self._exit)

    def _kill_group(self) -> None:
        assert self._process is not None
        # There may be nobody left in it; macOS says so by a lack of permission.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


async def settled(future: asyncio.Future[Any], on_cancel: Callable[[], None] | None = None) -> None:
    """Wait until `future` is done, also if the caller is cancelled; a cancellation goes on only then."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
            if on_cancel is not None:
                on_cancel()
    if cancelled is not None:
        raise cancelled
