"""The lines between the runner and its processes.

A process says how it waits; the runner answers with the instant at which the process goes on.

| line of a process | meaning | answer |
|---|---|---|
| `["hello"]` | started, wants its first turn | `[now_ms]` |
| `["sleep", until_ms]` | waits for the clock | `[now_ms]` |
| `["poll", until_ms]` | waits for the server, at most until then | none |
| `["turn"]` | the server has answered; wants its turn | `[now_ms]` |
| `["heard"]` | a signal has reached it, and it goes on | none |
| `["note", f, outcome]` | an event of its history, for the live line | none |
"""

from __future__ import annotations

import msgspec

Line = list[str | int]

LINE_BYTES_MAX = 64 * 1_024

_decoder = msgspec.json.Decoder(Line)


class ControlBroken(RuntimeError):
    """A process wrote what is no line of this protocol."""


def encode(line: Line) -> bytes:
    """Write one line."""
    return msgspec.json.encode(line) + b"\n"


def decode(line: bytes) -> Line:
    """Read one line; raises `ControlBroken`."""
    try:
        read = _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise ControlBroken(f"not a line of the control channel: {line[:80]!r}") from error
    if not read:
        raise ControlBroken("an empty line on the control channel")
    return read


class Lines:
    """Takes bytes apart into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that are complete now; raises `ControlBroken` for one that is too long."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            raise ControlBroken(f"a line of more than {LINE_BYTES_MAX} bytes on the control channel")
        return [decode(line) for line in whole]
