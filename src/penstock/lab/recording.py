"""How histories are written, by several processes at once, and read again without leniency."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Self

import msgspec

from penstock.lab.history import Event, Header, History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

LINE_BYTES_MAX = 64 * 1024
EVENTS_MAX = 1_000_000

_encoder = msgspec.json.Encoder()
_events = msgspec.json.Decoder(Event)
_headers = msgspec.json.Decoder(Header)


class HistoryBroken(ValueError):
    """A history cannot be written or read. What it says names the file and the line."""


class Recorder:
    """Writes the events of one process to a file of its own.

    Each event is one write to a file opened for appending, so that a process killed at any instant leaves only whole
    lines. Threads may share a recorder. `merge` puts the files of several processes in order; until then `i` counts
    within the process.
    """

    def __init__(
        self,
        path: Path,
        process: str,
        *,
        now_ms: Callable[[], int],
        mono_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._path = path
        self._process = process
        self._now_ms = now_ms
        self._mono_ns = mono_ns
        self._written = 0
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def record(self, event_type: str, f: str, /, **fields: object) -> Event:
        """Write one event, timed now, and return it.

        Raises `msgspec.ValidationError` for a field that no event has, and `HistoryBroken` when the line is too long or
        the file did not take all of it.
        """
        with self._lock:
            self._written += 1
            event = msgspec.convert(
                {
                    **{name: value for name, value in fields.items() if value is not None},
                    "i": self._written,
                    "t_ms": self._now_ms(),
                    "mono_ns": self._mono_ns(),
                    "process": self._process,
                    "type": event_type,
                    "f": f,
                },
                Event,
            )
            line = _encoder.encode(event) + b"\n"
            if len(line) > LINE_BYTES_MAX:
                raise HistoryBroken(f"{self._path}: an event of {len(line)} bytes; a line has at most {LINE_BYTES_MAX}")
            if os.write(self._file, line) != len(line):
                raise HistoryBroken(f"{self._path}: the event was not written whole. Is the disk full?")
            return event

    def close(self) -> None:
        """Close the file. Harmless when it is closed already."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def merge(header: Header, paths: Iterable[Path]) -> History:
    """Put what several processes recorded in the order in which it happened, and number it from 1."""
    events = [event for path in sorted(paths) for event in _read_events(path)]
    if len(events) > EVENTS_MAX:
        raise HistoryBroken(f"{len(events)} events; a history has at most {EVENTS_MAX}")
    # Ties are broken by process and its own order, so that the same files always give the same history.
    events.sort(key=lambda event: (event.mono_ns, event.process, event.i))
    numbered = (msgspec.structs.replace(event, i=place) for place, event in enumerate(events, 1))
    return History(header=header, events=tuple(numbered))


def write_history(history: History, path: Path) -> None:
    """Write a merged history: the header, then one event in each line."""
    lines = [_encoder.encode(history.header), *(_encoder.encode(event) for event in history.events)]
    path.write_bytes(b"\n".join(lines) + b"\n")


def read_history(path: Path) -> History:
    """Read a merged history, or raise `HistoryBroken` for anything that is not exactly one."""
    lines = _lines(path)
    if not lines:
        raise HistoryBroken(f"{path}: empty; the first line must be the header")
    try:
        header = _headers.decode(lines[0])
    except msgspec.MsgspecError as error:
        raise HistoryBroken(f"{path}, line 1: no header: {error}") from error
    events = _decoded(path, lines[1:], first_line=2)
    for place, event in enumerate(events, 1):
        if event.i != place:
            raise HistoryBroken(f"{path}, line {place + 1}: event {event.i} stands in place {place}")
        if place > 1 and event.mono_ns < events[place - 2].mono_ns:
            raise HistoryBroken(f"{path}, line {place + 1}: event {event.i} happened before the one above it")
    return History(header=header, events=tuple(events))


def _read_events(path: Path) -> list[Event]:
    return _decoded(path, _lines(path), first_line=1)


def _lines(path: Path) -> list[bytes]:
    written = path.read_bytes()
    if written and not written.endswith(b"\n"):
        raise HistoryBroken(f"{path}: the last line is cut off")
    return written.splitlines()


def _decoded(path: Path, lines: list[bytes], *, first_line: int) -> list[Event]:
    if len(lines) > EVENTS_MAX:
        raise HistoryBroken(f"{path}: {len(lines)} events; a history has at most {EVENTS_MAX}")
    events = []
    for number, line in enumerate(lines, first_line):
        try:
            events.append(_events.decode(line))
        except msgspec.MsgspecError as error:
            raise HistoryBroken(f"{path}, line {number}: {error}") from error
    return events
