"""The child's side of an assignment: questions to the parent, and the parent's wish that it stops."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from penstock.client.worker.processes.errors import AskFailed
from penstock.client.worker.processes.frames import Answer, Ask, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.worker.processes.frames import Message


class Channel:
    """Connects one running assignment with the parent. Any thread may use it until the assignment ends."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._cancelled = threading.Event()
        self._replies: SimpleQueue[Answer | Refusal] = SimpleQueue()
        self._asking = threading.Lock()
        self._sending = threading.Lock()
        self._open = True

    @property
    def cancelled(self) -> bool:
        """True once the parent wants the assignment to stop."""
        return self._cancelled.is_set()

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Wait until the parent wants the assignment to stop, at most `timeout` seconds. Return `cancelled`."""
        return self._cancelled.wait(timeout)

    def ask(self, request: bytes) -> bytes:
        """Send a request to the parent, and block until it answers. Threads that ask at once take turns.

        Raises `AskFailed` if the parent cannot answer or the assignment has ended, and `FrameTooLarge`.
        """
        with self._asking:
            with self._sending:
                if not self._open:
                    raise AskFailed("ChannelClosed", "The assignment has ended.")
                self._send(Ask(request=request))
            reply = self._replies.get()
        if isinstance(reply, Refusal):
            raise AskFailed(reply.kind, reply.message)
        return reply.value

    # -- what the child's loop calls ------------------------------------------------------------------

    def cancel(self) -> None:
        self._cancelled.set()

    def reply(self, reply: Answer | Refusal) -> None:
        self._replies.put(reply)

    def close(self) -> None:
        """End the channel. A thread that still waits for an answer gets none."""
        with self._sending:
            self._open = False
        self._replies.put(Refusal(kind="ChannelClosed", message="The assignment has ended."))
