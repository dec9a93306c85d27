"""Consumers that tests start and stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from penstock import SqsConsumer
from penstock.client.sqs.events import Event
from tests.support.sqs_services import SqsService, quick_clock


class Consuming:
    """A consumer that runs, with what it tells."""

    def __init__(self, consumer: SqsConsumer, events: list[Event]) -> None:
        self.consumer = consumer
        self.events = events
        self.stop = asyncio.Event()
        self.running: asyncio.Task[None] = asyncio.create_task(consumer.run(self.stop))

    def kinds(self, *chosen: str) -> list[tuple[str, str]]:
        """Return the events of these kinds, each with the body of its message."""
        return [(event.kind, event.message.body) for event in self.events if event.kind in chosen]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    async def end(self) -> None:
        self.stop.set()
        await self.running


@contextlib.asynccontextmanager
async def consuming(
    sqs: SqsService, url: str, handler: Callable[..., Any], **settings: Any
) -> AsyncIterator[Consuming]:
    """Run a consumer with short polls and a quick clock, unless told otherwise, and stop it in the end."""
    events: list[Event] = []
    settings = {"wait": 0, "clock": quick_clock(), "on_event": events.append, **settings}
    client = settings.pop("client", sqs.client)
    started = Consuming(SqsConsumer(client, url, handler, **settings), events)
    try:
        yield started
    except BaseException:
        # Its clock may stand still, and then it would not end by itself.
        started.running.cancel()
        await asyncio.wait([started.running])
        raise
    await started.end()
