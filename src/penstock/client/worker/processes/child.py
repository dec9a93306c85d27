"""The program that a child runs: `python -m penstock.client.worker.processes.child FD`."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from functools import reduce
from importlib import import_module
from queue import SimpleQueue
from typing import TYPE_CHECKING, cast

from penstock.client.worker.processes.channel import Channel
from penstock.client.worker.processes.frames import (
    EXIT_S,
    HEAD_BYTES,
    Answer,
    Cancel,
    Failure,
    Ready,
    Refusal,
    Result,
    Run,
    Setup,
    body_bytes,
    decoder_in_child,
    frame_of,
    message_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.worker.processes.frames import Assignment, Message, ToChild

    Entry = Callable[[object, bytes, Channel], object]

_PR_SET_PDEATHSIG = 1


class Link:
    """The socket to the parent. One thread reads; any thread sends."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._file = self._socket.makefile("rb")
        self._sending = threading.Lock()
        # A process that the task forks must not keep the socket open, or the parent would not see this one die.
        os.register_at_fork(after_in_child=self._leave)

    def send(self, message: Message) -> None:
        self.send_frame(frame_of(message))

    def send_frame(self, frame: bytes) -> None:
        with self._sending:
            self._socket.sendall(frame)

    def receive(self) -> ToChild | None:
        """Block for the next message. None if the parent has closed the socket, or is dead."""
        try:
            head = self._file.read(HEAD_BYTES)
            if len(head) < HEAD_BYTES:
                return None
            length = body_bytes(head)
            body = self._file.read(length)
        except ConnectionError:
            return None
        # A parent that dies while it writes leaves a part of a frame.
        return decoder_in_child.decode(body) if len(body) == length else None

    def _leave(self) -> None:
        # Not `close`, which would wait for the thread that reads, and that thread was not forked.
        if (fd := self._socket.detach()) != -1:
            os.close(fd)


class Child:
    """Runs one assignment after the other on the main thread, while a thread reads what the parent sends."""

    def __init__(self, link: Link, entry: Entry) -> None:
        self._link = link
        self._entry = entry
        self._runs: SimpleQueue[tuple[Run, Channel] | None] = SimpleQueue()
        self._busy = False

    def serve(self) -> None:
        """Run assignments until the parent closes the socket."""
        threading.Thread(target=self._read, name="penstock-parent", daemon=True).start()
        while (work := self._runs.get()) is not None:
            run, channel = work
            frame = self._carry_out(run.assignment, channel)
            channel.close()
            _flush()
            self._busy = False
            with suppress(ConnectionError):  # The parent is dead. The other thread sees it, too, and ends this loop.
                self._link.send_frame(frame)
            del run, work, frame  # An idle child keeps no payload.

    def _carry_out(self, assignment: Assignment, channel: Channel) -> bytes:
        """Return the frame to send, with a result or a failure."""
        try:
            target = _attribute(assignment.module, assignment.qualname)
            value = self._entry(target, assignment.call, channel)
            return frame_of(Result(value=_bytes_of(value)))
        except BaseException as error:  # noqa: BLE001 - sys.exit() in a task is a failure of the task
            return frame_of(_failure(error))

    def _read(self) -> None:
        try:
            self._listen()
        except BaseException:  # noqa: BLE001 - a child that does not listen would never end
            traceback.print_exc()
            os._exit(1)
        if not self._busy:
            self._runs.put(None)
            # Threads of the user's may keep the interpreter from exiting.
            time.sleep(EXIT_S)
        os._exit(1)

    def _listen(self) -> None:
        """Take in what the parent sends, until it closes the socket."""
        channel = Channel(self._link.send)
        while (message := self._link.receive()) is not None:
            if isinstance(message, Run):
                self._busy = True
                channel = Channel(self._link.send)
                self._runs.put((message, channel))
            # What follows a `Run` belongs to it. If it comes after the assignment has ended, nobody looks at it.
            elif isinstance(message, Cancel):
                channel.cancel()
            elif isinstance(message, Answer | Refusal):
                channel.reply(message)


def _attribute(module: str, qualname: str) -> object:
    found = import_module(module)
    try:
        return reduce(getattr, qualname.split("."), cast("object", found))
    except AttributeError as error:
        raise ImportError(f"module {module!r} has no {qualname!r} ({error})", name=module) from error


def _bytes_of(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"The entry point returned {type(value).__name__}, not bytes.")
    return value


def _failure(error: BaseException) -> Failure:
    # The first frame is of this module.
    frames = error.__traceback__ and error.__traceback__.tb_next
    lines = traceback.format_exception(type(error), error, frames)
    return Failure(kind=type(error).__name__, message=message_of(error), traceback=text_of("".join(lines)))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # There is none, or the task has closed it.


def _take_no_signals() -> None:
    """Ignore what is sent to all processes of a terminal or a service: the parent decides when this one ends.

    Programs that a task starts ignore SIGINT as well, so that the task can finish. They do not ignore SIGTERM, because
    a handler is not inherited: a task can terminate them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.siginterrupt(signal.SIGTERM, False)
    # The parent has blocked them until now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))


def _die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends. A thread cannot do so while C code holds the GIL."""
    if sys.platform != "linux":
        return
    try:
        import ctypes  # noqa: PLC0415 - an interpreter may have been built without it

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return


def _set_up(setup: Setup) -> Entry:
    sys.path[:] = setup.path
    # Until now it held the parent's sys.path, so that this module was found. What a task starts gets the true one.
    os.environ.pop("PYTHONPATH", None)
    if setup.python_path is not None:
        os.environ["PYTHONPATH"] = setup.python_path
    module, _, name = setup.entry.partition(":")
    return cast("Entry", _attribute(module, name))


def main() -> None:
    _take_no_signals()
    _die_with_parent()
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # A killed process flushes nothing.
    link = Link(int(sys.argv[1]))
    setup = link.receive()
    if setup is None:
        return
    assert isinstance(setup, Setup)
    try:
        entry = _set_up(setup)
    except BaseException as error:  # noqa: BLE001 - importing a user's module may raise anything
        link.send(_failure(error))
        return
    link.send(Ready())
    Child(link, entry).serve()


if __name__ == "__main__":
    main()
