"""What the children of these tests run."""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from penstock.client.worker.processes.channel import Channel
from penstock.client.worker.processes.errors import AskFailed

FILES_MAX = 4_096
"""Above every number of a file that the tests' process may hand on."""

runs = 0


def entry(target: Any, call: bytes, channel: Channel) -> bytes:
    function: Callable[[bytes, Channel], bytes] = getattr(target, "function", target)
    return function(call, channel)


def reverse(call: bytes, channel: Channel) -> bytes:
    return call[::-1]


class Wrapped:
    function = staticmethod(reverse)


def pid(call: bytes, channel: Channel) -> bytes:
    return str(os.getpid()).encode()


def count(call: bytes, channel: Channel) -> bytes:
    global runs  # noqa: PLW0603 - to see whether the module is imported again
    runs += 1
    return str(runs).encode()


def threads(call: bytes, channel: Channel) -> bytes:
    return str(threading.current_thread() is threading.main_thread()).encode()


def stdin(call: bytes, channel: Channel) -> bytes:
    return sys.stdin.buffer.read()


def python_path(call: bytes, channel: Channel) -> bytes:
    return os.environ.get("PYTHONPATH", "none").encode()


def modules(call: bytes, channel: Channel) -> bytes:
    return " ".join(sys.modules).encode()


def text(call: bytes, channel: Channel) -> Any:
    return "text"


def fail(call: bytes, channel: Channel) -> NoReturn:
    raise LookupError(call.decode(errors="surrogateescape"))


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def fail_mutely(call: bytes, channel: Channel) -> NoReturn:
    raise Mute


def leave(call: bytes, channel: Channel) -> NoReturn:
    sys.exit("enough")


def ask_thrice(call: bytes, channel: Channel) -> bytes:
    return b" ".join(channel.ask(call + str(number).encode()) for number in range(3))


def ask_too_much(call: bytes, channel: Channel) -> bytes:
    return channel.ask(bytes(17 * 1024 * 1024))


def refused(call: bytes, channel: Channel) -> bytes:
    try:
        return channel.ask(call)
    except AskFailed as error:
        return f"{error.kind} {error.message}".encode()


def ask_in_threads(call: bytes, channel: Channel) -> bytes:
    answers: list[bytes] = []
    asking = [
        threading.Thread(target=lambda number=number: answers.append(channel.ask(str(number).encode())))
        for number in range(8)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    return b" ".join(sorted(answers))


late: list[str] = []


def ask_and_leave(call: bytes, channel: Channel) -> bytes:
    """Return while a thread still waits for an answer."""

    def ask() -> None:
        try:
            channel.ask(b"late")
        except AskFailed as error:
            late.append(error.kind)

    threading.Thread(target=ask, name="asker").start()
    channel.wait_cancelled()
    return b"left"


def how_the_late_ended(call: bytes, channel: Channel) -> bytes:
    for thread in threading.enumerate():
        if thread.name == "asker":
            thread.join()
    return " ".join(late).encode()


def big(call: bytes, channel: Channel) -> bytes:
    return bytes(int(call))


# -- endings --------------------------------------------------------------------------------------


def hang_in_c(call: bytes, channel: Channel) -> bytes:
    """Wait for ever, and hold the GIL: no other thread of this process can do anything."""
    channel.ask(str(os.getpid()).encode())
    while True:
        ctypes.PyDLL(None).pause()


def hang_in_a_program(call: bytes, channel: Channel) -> bytes:
    program = subprocess.Popen(["sleep", "1000"])
    channel.ask(str(program.pid).encode())
    program.wait()
    return b""


def finish_when_cancelled(call: bytes, channel: Channel) -> bytes:
    channel.ask(str(os.getpid()).encode())
    channel.wait_cancelled()
    return channel.ask(b"cancelled" if channel.cancelled else b"not cancelled")


def finish_after_answer(call: bytes, channel: Channel) -> bytes:
    return channel.ask(str(os.getpid()).encode())


def kill(call: bytes, channel: Channel) -> bytes:
    os.kill(os.getpid(), int(call))
    return b"alive"


def end(call: bytes, channel: Channel) -> NoReturn:
    os._exit(int(call))


def write_at_exit(call: bytes, channel: Channel) -> bytes:
    atexit.register(Path(call.decode()).write_text, "exited")
    return b""


def exit_when_read(call: bytes, channel: Channel) -> bytes:
    """Exit only once somebody reads from a FIFO."""
    atexit.register(Path(call.decode()).write_text, "exiting")
    return str(os.getpid()).encode()


def terminate_a_program(call: bytes, channel: Channel) -> bytes:
    program = subprocess.Popen(["sleep", "1000"])
    program.terminate()
    return str(-program.wait()).encode()


def die_before_a_fork(call: bytes, channel: Channel) -> NoReturn:
    """Die, and leave a forked process behind, in a group of its own."""
    ready = multiprocessing.get_context("fork").Event()

    def stay() -> None:
        os.setsid()
        ready.set()
        while True:
            signal.pause()

    child = multiprocessing.get_context("fork").Process(target=stay)
    child.start()
    ready.wait()
    channel.ask(str(child.pid).encode())
    os._exit(3)


def leave_a_thread(call: bytes, channel: Channel) -> bytes:
    """Start a thread that keeps the interpreter from exiting."""
    threading.Thread(target=threading.Event().wait).start()
    return str(os.getpid()).encode()


def close_everything(call: bytes, channel: Channel) -> bytes:
    os.closerange(3, FILES_MAX)
    return b""


def write_nonsense(call: bytes, channel: Channel) -> NoReturn:
    for fd in range(3, FILES_MAX):
        with suppress(OSError):
            os.write(fd, b"\xff" * 64)
    while True:
        signal.pause()
