"""Calls of an app from a child process by way of its parent: in a test, the engine is in the parent."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NoReturn

import msgspec

from penstock.client.errors import ConnectionFailed, WrongProcess
from penstock.client.transport.http1 import Answer, Outgoing
from penstock.client.worker.processes.errors import AskFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.verbs.caller import AsyncSender


class Asked(msgspec.Struct, frozen=True, tag=True):
    """A request of the app, and how long its answer is waited for."""

    request: Outgoing
    left_s: float


_decode_answer = msgspec.msgpack.Decoder(Answer).decode
_encode = msgspec.msgpack.Encoder().encode


async def answered(asked: Asked, sender: AsyncSender) -> bytes:
    """Answer a request of a child, in the parent."""
    return _encode(await sender.exchange(asked.request, time.monotonic() + asked.left_s))


class ParentSenders:
    """Senders of a child. `ask` hands what is asked to the parent, and blocks until it answers."""

    def __init__(self, ask: Callable[[Asked], bytes]) -> None:
        self._sync = _SyncSender(ask)
        self._async = _AsyncSender(self._sync)

    def open_async(self) -> _AsyncSender:
        """Return the one for async code."""
        return self._async

    def open_sync(self) -> _SyncSender:
        """Return the one for sync code."""
        return self._sync

    def look_after_store(self) -> None:
        """Do nothing: the parent does that."""

    def close(self) -> None:
        """Do nothing: there is only the connection to the parent."""

    async def aclose(self) -> None:
        """Do nothing, as `close`."""


class _Parent:
    """The only one that can be asked."""

    several = False

    def reach_by(self, since: float) -> float:  # noqa: ARG002 - as `Recipient` has it
        return math.inf

    def refused(self) -> None:
        return

    def changed_token(self) -> bool:
        return False


class _SyncSender:
    peer = _Parent()

    def __init__(self, ask: Callable[[Asked], bytes]) -> None:
        self._ask = ask

    def exchange(self, request: Outgoing, deadline: float) -> Answer:
        try:
            return _decode_answer(self._ask(Asked(request, max(deadline - time.monotonic(), 0.0))))
        except AskFailed as error:
            raise ConnectionFailed(f"The test's engine did not answer: {error}") from None

    def stream(self, request: Outgoing, deadline: float, silence_s: float) -> NoReturn:
        raise _no_stream(request, deadline, silence_s)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class _AsyncSender:
    """For code that runs an event loop of its own in the child. It blocks that loop while it waits."""

    peer = _Parent()

    def __init__(self, sender: _SyncSender) -> None:
        self._sender = sender

    async def exchange(self, request: Outgoing, deadline: float) -> Answer:
        return self._sender.exchange(request, deadline)

    def stream(self, request: Outgoing, deadline: float, silence_s: float) -> NoReturn:
        raise _no_stream(request, deadline, silence_s)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - as above


def _no_stream(*_: object) -> WrongProcess:
    return WrongProcess("In a test, a task in a process can enqueue and look, but cannot follow events or take offers.")
