# Made of penstock/client/verbs by scripts/make_sync.py. Change that, and run the script.
"""Carries out calls: sends, waits, repeats, and opens streams anew."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.client.calls import Reopening, Tries, problem_in
from penstock.client.errors import TransportError
from penstock.client.transport.http1 import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager

    from penstock.client.calls import Call, Recipient
    from penstock.client.transport.http1 import Outgoing

SILENCE_S = 37.5
"""A stream without a line for this long is opened anew: 2.5 times the 15 s between the server's signs of life."""
REFUSAL_BYTES_MAX = 64 * 1024

T = TypeVar("T")


class SyncSender(Protocol):
    """What requests are sent with: over a connection, or to an engine in this process."""

    @property
    def peer(self) -> Recipient:
        """What they are sent to."""

    def exchange(self, request: Outgoing, deadline: float) -> Answer:
        """Return the whole answer to a request; raises a `TransportError` if none comes by the deadline."""

    def stream(
        self, request: Outgoing, deadline: float, silence_s: float
    ) -> AbstractContextManager[tuple[int, Iterator[bytes]]]:
        """Open an answer that goes on: its status, and its parts as they come. Silence for too long is an error."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class Caller:
    """Carries out calls with the sender that `open_sender` returns, within `timeout_s` unless a call says otherwise."""

    def __init__(self, open_sender: Callable[[], SyncSender], timeout_s: float) -> None:
        self.open_sender = open_sender
        self.timeout_s = timeout_s

    def perform(self, call: Call[T], timeout: float | None) -> T:
        """Carry out a call and return its value; raises what the server answered, or a `TransportError`."""
        sender = self.open_sender()
        tries = Tries(call, sender.peer, self.timeout_s if timeout is None else timeout)
        while True:
            try:
                answer = sender.exchange(tries.request(), tries.deadline)
            except TransportError as error:
                pause_s = tries.lost(error)
            else:
                outcome = tries.answered(answer)
                if outcome is None:
                    return tries.value
                pause_s = outcome
            sender.sleep(pause_s)

    def follow_once(
        self, request: Callable[[], Outgoing], timeout: float | None
    ) -> Generator[bytes | None, None, None]:
        """Yield None when a stream opens, and its parts, until the server ends it; raises what breaks it."""
        sender = self.open_sender()
        deadline = time.monotonic() + (self.timeout_s if timeout is None else timeout)
        with sender.stream(request(), deadline, SILENCE_S) as (status, parts):
            if status == 200:
                yield None
                for part in parts:
                    yield part
            elif status != 204:
                raise problem_in(Answer(status, _whole(parts)))

    def follow(self, request: Callable[[], Outgoing], timeout: float | None) -> Generator[bytes | None, None, None]:
        """Yield the parts of a stream, which is opened anew when it breaks or ends; None each time that it opens.

        It ends when the server says that there is no more (204), and raises when nothing was heard for `timeout`.
        """
        sender = self.open_sender()
        reopening = Reopening(sender.peer, self.timeout_s if timeout is None else timeout)
        while True:
            try:
                with sender.stream(request(), reopening.deadline, SILENCE_S) as (status, parts):
                    if status == 204:
                        return
                    if status == 200:
                        yield None
                        for part in parts:
                            reopening.heard()
                            yield part
                        pause_s = reopening.ended()
                    else:
                        pause_s = reopening.refused(Answer(status, _whole(parts)))
            except TransportError as error:
                pause_s = reopening.lost(error)
            sender.sleep(pause_s)


def _whole(parts: Iterator[bytes]) -> bytes:
    """Read an answer that is no stream after all."""
    body = b""
    for part in parts:
        body += part
        if len(body) > REFUSAL_BYTES_MAX:
            break
    return body
