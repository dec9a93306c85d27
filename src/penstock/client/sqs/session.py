"""`Session`: what a consumer works with while it runs, opened and closed together."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

from penstock.client.sqs.api import SqsApi
from penstock.client.sqs.delivery import Delivery
from penstock.client.sqs.events import log
from penstock.client.sqs.handlers import is_coroutine_function
from penstock.client.sqs.heartbeats import Heartbeats
from penstock.client.sqs.message import message_of
from penstock.client.sqs.settling import Settling
from penstock.client.worker.threads import Threads
from penstock.domain.clock import sleep_until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from penstock.client.sqs.denial import Denial
    from penstock.client.sqs.events import Events
    from penstock.domain.clock import Clock

DELETES_S_MAX = 10.0
"""How long a session that closes waits for deletes of finished work."""
EXTENDED_BEATS = 3
"""By how many of its intervals a heartbeat extends a visibility that only the queue knows."""
EXTENDED_S_MIN = 30
"""By how much at least."""
RELEASE_MS_MAX = 10_000
"""How long a consumer that ends waits for releases."""


class Session:
    """The client, heartbeats and settling of one run, on the running event loop.

    Without `visibility_s`, messages are hidden for as long as their queue says, and a heartbeat extends that by
    `EXTENDED_BEATS` intervals. Without `beats_itself`, visibility is extended only when `heartbeats.beat()` is called.
    """

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - boto3 has no types for its clients
        queue_url: str,
        *,
        clock: Clock,
        visibility_s: int | None,
        beat_ms: int,
        denial: Denial,
        events: Events,
        beats_itself: bool = True,
    ) -> None:
        self.queue_url = queue_url
        self.clock = clock
        self.visibility_s = visibility_s
        self.events = events
        self.threads = Threads()
        self.api = SqsApi(client, self.threads)
        self.heartbeats = Heartbeats(
            self.api,
            queue_url,
            clock=clock,
            visibility_s=visibility_s or max(EXTENDED_BEATS * beat_ms // 1_000, EXTENDED_S_MIN),
            beat_ms=beat_ms,
            denial=denial,
            emit=events.emit,
            beats_itself=beats_itself,
        )
        self.settling = Settling(self.api, queue_url, clock=clock, heartbeats=self.heartbeats, denial=denial)

    def parameters(self, count: int, wait_s: int) -> dict[str, Any]:
        """Return what ReceiveMessage is called with."""
        visibility = {} if self.visibility_s is None else {"VisibilityTimeout": self.visibility_s}
        return {
            "QueueUrl": self.queue_url,
            "MaxNumberOfMessages": count,
            "WaitTimeSeconds": wait_s,
            **visibility,
            "MessageAttributeNames": ["All"],
            "AttributeNames": ["All"],
        }

    def deliveries(self, answer: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Delivery]:
        """Read the messages of an answer of ReceiveMessage."""
        now_ms = self.clock.now_ms()
        return [
            Delivery(message_of(received, self.queue_url), now_ms=now_ms, visibility_s=self.visibility_s)
            for received in answer.get("Messages", ())
        ]

    async def call(self, function: Callable[..., object], *args: object) -> object:
        """Call a function of the user: sync ones in a thread."""
        if is_coroutine_function(function):
            return await function(*args)  # type: ignore[misc] # It is a coroutine function.
        result: object = await self.threads.run(function, *args)
        return await result if inspect.isawaitable(result) else result

    async def release_in_time(self, releasing: Coroutine[Any, Any, object]) -> None:
        """Wait for releases at the end, but not as long as a service that is away would have us wait."""
        task = asyncio.ensure_future(releasing)
        limit = asyncio.ensure_future(sleep_until(self.clock, self.clock.now_ms() + RELEASE_MS_MAX))
        waits: list[asyncio.Future[Any]] = [task, limit]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                return
            log(
                logging.WARNING,
                "not released in time",
                queue=self.queue_url,
                consequence="what is held stays hidden until its visibility ends",
            )
        finally:
            for one in waits:
                one.cancel()

    async def close(self) -> None:
        """Wait for deletes of finished work, and stop heartbeats and idle threads."""
        try:
            await asyncio.wait_for(self.settling.finish_deletes(), DELETES_S_MAX)
        except TimeoutError:
            pass  # Each of them is retried, counted and logged on its own.
        finally:
            await self.heartbeats.close()
            self.threads.close()
