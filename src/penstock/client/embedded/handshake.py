"""The first words on a connection to an owner: who it is, and whether it makes room for a newer version."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from penstock.wire.jobs.ownership import HandOver, HandOverView, OwnerView

if TYPE_CHECKING:
    import socket

    Answered = TypeVar("Answered")

_ANSWER_BYTES_MAX = 65_536
_END_OF_HEAD = b"\r\n\r\n"
_OK = 200
_FORBIDDEN = 403


def ask_owner(connected: socket.socket, deadline: float) -> OwnerView | None:
    """Return who answers; None if that is a server without a SQLite file, or one that needs a token first.

    Raises `TimeoutError` if no answer comes by `deadline` (as `time.monotonic()` counts), `PermissionError` if this
    user is refused, and another `OSError` if the connection is lost.
    """
    return _ask(connected, "GET", "/v1/owner", b"", OwnerView, deadline)


def ask_for_hand_over(connected: socket.socket, schema: int, deadline: float) -> bool:
    """Ask the owner to end for a client of a newer schema, and return whether it does. Raises as `ask_owner` does."""
    body = msgspec.json.encode(HandOver(schema=schema))
    answer = _ask(connected, "POST", "/v1/owner/hand-over", body, HandOverView, deadline)
    return answer is not None and answer.handing_over


def _ask(
    connected: socket.socket, method: str, path: str, body: bytes, kind: type[Answered], deadline: float
) -> Answered | None:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    connected.settimeout(_left(deadline))
    connected.sendall(head.encode() + body)
    status, answer = _read(connected, deadline)
    connected.settimeout(None)
    if status == _FORBIDDEN:
        raise PermissionError(answer.decode(errors="replace"))
    return msgspec.json.decode(answer, type=kind) if status == _OK else None


def _read(connected: socket.socket, deadline: float) -> tuple[int, bytes]:
    """Read one answer, which has a length."""
    received = b""
    needed = None
    while needed is None or len(received) < needed:
        connected.settimeout(_left(deadline))
        part = connected.recv(_ANSWER_BYTES_MAX)
        if not part:
            raise ConnectionResetError("The owner closed the connection.")
        received += part
        if needed is None and _END_OF_HEAD in received:
            head, _, _ = received.partition(_END_OF_HEAD)
            needed = len(head) + len(_END_OF_HEAD) + _content_length(head)
        if len(received) > _ANSWER_BYTES_MAX:
            raise ConnectionAbortedError("What answers at the socket is no owner.")
    return int(received.split(b" ", 2)[1]), received[received.index(_END_OF_HEAD) + len(_END_OF_HEAD) :]


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
