"""The lab's processes as the runner sees them: started, heard, signalled, and always reaped."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

import msgspec

from penstock.lab.control import ControlBroken, Lines, encode
from penstock.lab.nursery import SOCKET_VARIABLE, Ended, Signal, Start, Started

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from penstock.lab.control import Line

START_S_MAX = 60.0
END_S_MAX = 15.0
_READ_BYTES = 65_536


class ProcessesFailed(RuntimeError):
    """The process that starts the others is gone or does not answer."""


class Process:
    """One process of a scenario, by the name that its events have."""

    def __init__(self, number: int, name: str, output: Path, control: socket.socket) -> None:
        self.number = number
        self.name = name
        self.output = output
        """The file that has what it wrote."""
        self.pid = 0
        self.code: int | None = None
        """Its exit code, or the number of the signal that ended it, negative; None while it runs."""
        self.control = control
        self.lines = Lines()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.code is None

    def __repr__(self) -> str:
        return f"Process({self.name!r}, code={self.code})"


class Processes:
    """Starts processes through a nursery. At the end of the block none of them is left."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._modules = list(modules)
        self._count = 0
        self._by_number: dict[int, Process] = {}
        self._answers = b""
        self._decoder: msgspec.json.Decoder[Started | Ended] = msgspec.json.Decoder(Started | Ended)
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair()
        self._nursery = ours
        with theirs:
            self._child = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "penstock.lab.nursery", *self._modules],
                stdin=subprocess.DEVNULL,
                env={**os.environ, SOCKET_VARIABLE: str(theirs.fileno())},
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        self._awaited = True
        self._selector.register(ours, selectors.EVENT_READ)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in list(self._by_number.values()):
            self._close(process)
        self._selector.close()
        # It ends all that it started as soon as it sees the end of this socket.
        self._nursery.close()
        try:
            self._child.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    @property
    def running(self) -> list[Process]:
        """Those that have not ended, in the order they were started."""
        return [process for process in self._by_number.values() if process.running]

    def start(
        self, name: str, entry: str, arguments: Sequence[str], environment: dict[str, str], output: Path
    ) -> Process:
        """Start a process; raises `ProcessesFailed`."""
        self._wait_until_loaded()
        self._count += 1
        ours, theirs = socket.socketpair()
        process = Process(self._count, name, output, ours)
        request = Start(
            number=process.number,
            entry=entry,
            arguments=list(arguments),
            environment=environment,
            output=str(output),
        )
        with theirs:
            try:
                socket.send_fds(self._nursery, [msgspec.json.encode(request) + b"\n"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise self._gone() from None
        self._by_number[process.number] = process
        self._selector.register(ours, selectors.EVENT_READ, process)
        end_s = time.monotonic() + START_S_MAX
        while not process.pid:
            if time.monotonic() > end_s:
                raise ProcessesFailed(f"{name} has not started within {START_S_MAX:g} seconds")
            self._read_nursery(wait_s=1.0)
        return process

    def signal(self, process: Process, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        if process.running:
            try:
                self._nursery.sendall(msgspec.json.encode(Signal(number=process.number, signal=number)) + b"\n")
            except OSError:
                raise self._gone() from None

    def answer(self, process: Process, line: Line) -> None:
        """Write a line to a process. That it is gone will be seen when it is read from."""
        with contextlib.suppress(OSError):
            process.control.sendall(encode(line))

    def hear(self, wait_s: float) -> list[tuple[Process, Line | None]]:
        """Return what processes say, waiting for at most so long; None stands for the end of one.

        What a process said before its end comes first. Raises `ProcessesFailed` and `ControlBroken`.
        """
        heard: list[tuple[Process, Line | None]] = []
        for key, _ in self._selector.select(wait_s):
            if isinstance(key.data, Process):
                heard += [(key.data, line) for line in self._read(key.data)]
            else:
                heard += [(process, None) for process in self._read_nursery(wait_s=0)]
        ended = [process for process, line in heard if line is None]
        for process in ended:
            rest = [(process, line) for line in self._read_all(process)]
            place = heard.index((process, None))
            heard[place:place] = rest
            self._close(process)
        return heard

    def end_all(self) -> None:
        """Kill what still runs, and return once it is reaped: a run that failed leaves nothing to the next one."""
        for process in self.running:
            self.signal(process, signal.SIGKILL)
        end_s = time.monotonic() + END_S_MAX
        while self.running:
            if time.monotonic() > end_s:
                raise ProcessesFailed(f"{self.running[0].name} has not ended within {END_S_MAX:g} seconds of SIGKILL")
            self.hear(0.1)

    def _read(self, process: Process) -> list[Line]:
        try:
            data = process.control.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(process.control)
            return []
        return process.lines.feed(data)

    def _read_all(self, process: Process) -> list[Line]:
        lines: list[Line] = []
        while process.control.fileno() >= 0 and (read := self._read(process)):
            lines += read
        return lines

    def _close(self, process: Process) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(process.control)
        process.control.close()
        self._by_number.pop(process.number, None)

    def _wait_until_loaded(self) -> None:
        if not self._awaited:
            return
        end_s = time.monotonic() + START_S_MAX
        while self._awaited:
            if time.monotonic() > end_s:
                raise ProcessesFailed(f"the lab's processes have not loaded within {START_S_MAX:g} seconds")
            self._read_nursery(wait_s=1.0)

    def _read_nursery(self, wait_s: float) -> list[Process]:
        """Read what the nursery says, and return who ended."""
        self._nursery.settimeout(wait_s or 0.000_001)
        try:
            data = self._nursery.recv(_READ_BYTES)
        except (TimeoutError, BlockingIOError):
            return []
        except OSError:
            data = b""
        finally:
            self._nursery.settimeout(None)
        if not data:
            raise self._gone()
        *lines, self._answers = (self._answers + data).split(b"\n")
        return [process for line in lines if (process := self._note(line)) is not None]

    def _note(self, line: bytes) -> Process | None:
        if self._awaited:
            self._awaited = False
            return None
        try:
            answer = self._decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise ControlBroken(f"not an answer of the nursery: {line[:80]!r}") from error
        process = self._by_number[answer.number]
        if isinstance(answer, Started):
            process.pid = answer.pid
            return None
        process.code = answer.code
        return process

    def _gone(self) -> ProcessesFailed:
        return ProcessesFailed("the process that starts the lab's processes is gone")
