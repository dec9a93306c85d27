"""The process that starts the others: it has loaded all that they need, so that one more costs a fork.

It does what the runner says on a socket, reports who ended and how, and ends all of them when the runner is gone.
A scenario that crashes thirty consumers would otherwise load boto3 thirty times.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import selectors
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SOCKET_VARIABLE = "PENSTOCK_LAB_NURSERY"
CONTROL_VARIABLE = "LAB_CONTROL"
_REQUEST_BYTES = 65_536


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """Start a process. The descriptor of its control channel comes along."""

    number: int
    entry: str
    """`package.module:function`, which takes arguments and returns an exit code."""
    arguments: list[str]
    environment: dict[str, str]
    output: str
    """The file that its output is appended to."""


class Signal(msgspec.Struct, frozen=True, kw_only=True, tag="signal"):
    """Send a signal to a process that was started, if it has not ended."""

    number: int
    signal: int


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """A process runs."""

    number: int
    pid: int


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """A process has ended: `code` is its exit code, or a signal's number, negative."""

    number: int
    code: int


class Nursery:
    """Starts, signals and reaps processes for whoever holds the other end of the socket."""

    def __init__(self, runner: socket.socket) -> None:
        self._runner = runner
        self._requests = b""
        self._descriptors: list[int] = []
        self._pids: dict[int, int] = {}
        """Process ids by number, of those that have not been reaped: so no id can mean another process."""
        self._decoder: msgspec.json.Decoder[Start | Signal] = msgspec.json.Decoder(Start | Signal)

    def run(self) -> None:
        """Serve until the runner is gone, and leave no process behind."""
        wake_r, wake_w = socket.socketpair()
        wake_r.setblocking(False)
        wake_w.setblocking(False)
        signal.set_wakeup_fd(wake_w.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _nothing)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        selector = selectors.DefaultSelector()
        selector.register(self._runner, selectors.EVENT_READ)
        selector.register(wake_r, selectors.EVENT_READ)
        self._own = (self._runner, wake_r, wake_w, selector)
        try:
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if wake_r in ready:
                    with contextlib.suppress(BlockingIOError):
                        wake_r.recv(_REQUEST_BYTES)
                self._reap()
                if self._runner in ready and not self._serve():
                    return
        finally:
            self._end_all()

    def _serve(self) -> bool:
        """Do what the runner asks for; False if it is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._runner, _REQUEST_BYTES, 16)
        except ConnectionResetError:  # The runner has ended without reading what it was told.
            return False
        self._descriptors += descriptors
        if not data:
            return False
        *lines, self._requests = (self._requests + data).split(b"\n")
        for line in lines:
            request = self._decoder.decode(line)
            if isinstance(request, Start):
                self._start(request)
            elif (pid := self._pids.get(request.number)) is not None:
                os.kill(pid, request.signal)
        return True

    def _start(self, request: Start) -> None:
        control = self._descriptors.pop(0)
        pid = os.fork()
        if pid == 0:
            self._become(request, control)
        os.close(control)
        self._pids[request.number] = pid
        self._tell(Started(number=request.number, pid=pid))

    def _become(self, request: Start, control: int) -> None:
        """Be the process that was asked for, to the end."""
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            for one in self._own:
                one.close()
            output = os.open(request.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            os.environ.clear()
            os.environ.update({**request.environment, CONTROL_VARIABLE: str(control)})
            code = _function(request.entry)(request.arguments)
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 1
        except BaseException:  # noqa: BLE001 - the outermost edge of this process: it ends here, and says why
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            # Nothing of the parent's is to be cleaned up by this process.
            os._exit(code)

    def _reap(self) -> None:
        for number, pid in list(self._pids.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._pids[number]
                self._tell(Ended(number=number, code=os.waitstatus_to_exitcode(status)))

    def _end_all(self) -> None:
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            os.waitpid(pid, 0)
        self._pids.clear()

    def _tell(self, answer: Started | Ended) -> None:
        # If the runner is gone, the next read says so.
        with contextlib.suppress(OSError):
            self._runner.sendall(msgspec.json.encode(answer) + b"\n")


def _nothing(_signal: int, _frame: FrameType | None) -> None:
    """Let the signal interrupt the wait."""


def _function(entry: str) -> Callable[[list[str]], int]:
    module, _, name = entry.partition(":")
    function: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
    return function


def main(modules: list[str]) -> None:
    """Load what processes will need, say so, and serve."""
    with socket.socket(fileno=int(os.environ.pop(SOCKET_VARIABLE))) as runner:
        for name in ["penstock.lab.consumer", "penstock.lab.producer", *modules]:
            importlib.import_module(name)
        from penstock.lab.endpoints import warm_up  # noqa: PLC0415 - it needs boto3, which is loaded here

        warm_up()
        with contextlib.suppress(BrokenPipeError):  # The runner has ended meanwhile.
            runner.sendall(b"{}\n")
        Nursery(runner).run()


if __name__ == "__main__":
    main(sys.argv[1:])
