"""The parts of a consumer by themselves: the queue sets the visibility timeout, and the caller sends heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from penstock import Message, RetryAfter
from penstock.client.sqs.backoff import Backoff
from penstock.client.sqs.denial import Denial
from penstock.client.sqs.events import Event, Events
from penstock.client.sqs.handlers import Calls
from penstock.client.sqs.receiving import Receiver
from penstock.client.sqs.session import Session
from penstock.client.sqs.work import Outcome, Work
from penstock.testing import ManualClock
from tests.support.sqs_services import PATIENCE_S, SqsService

CHANGE = "provide-client-params.sqs.ChangeMessageVisibilityBatch"


class Parts:
    """A session with what is received and handled in it."""

    def __init__(self, client: Any, url: str, **settings: Any) -> None:
        self.client = client
        self.events: list[Event] = []
        self.clock = ManualClock()
        self.changes: list[int] = []
        client.meta.events.register(
            CHANGE, lambda params, **_: self.changes.extend(entry["VisibilityTimeout"] for entry in params["Entries"])
        )
        asked: dict[str, Any] = {"visibility_s": None, "beat_ms": 10_000, "beats_itself": False, **settings}
        events = Events(on_event=self.events.append)
        self.session = Session(client, url, clock=self.clock, denial=Denial(), events=events, **asked)
        self.receiver = Receiver(self.session, fifo=False)

    async def handle(self, handler: Callable[[Message], object], *, backoff: Backoff | None = None) -> list[Outcome]:
        """Receive up to ten messages, and run the handler on one after another."""
        work = Work(self.session, Calls(handler, self.session.threads), backoff=backoff)
        held = work.hold(await self.receiver.receive(10, 0))
        return [await work.run_one(delivery) for delivery in held]

    async def beat(self) -> None:
        """Send heartbeats in a thread. One that never stops fails the test."""
        await asyncio.wait_for(self.session.threads.run(self.session.heartbeats.beat), PATIENCE_S)


@contextlib.asynccontextmanager
async def parts(sqs: SqsService, url: str, **settings: Any) -> AsyncIterator[Parts]:
    client = sqs.new_client()
    opened = Parts(client, url, **settings)
    try:
        yield opened
    finally:
        await opened.session.close()
        client.close()


@pytest.mark.parametrize(("visibility_s", "hidden_s"), [(None, 7), (20, 20)], ids=["of the queue", "of the consumer"])
async def test_a_visibility_of_the_consumer_overrides_that_of_the_queue(
    ours: SqsService, visibility_s: int | None, hidden_s: int
) -> None:
    url = ours.create("orders", VisibilityTimeout="7")
    ours.send(url, "a")
    async with parts(ours, url, visibility_s=visibility_s) as opened:
        assert len(await opened.receiver.receive(10, 0)) == 1
        ours.advance(hidden_s - 1)
        assert ours.counts(url) == (0, 1)
        ours.advance(1)
        assert ours.counts(url) == (1, 0)


async def test_without_a_backoff_a_failed_message_stays_hidden(ours: SqsService) -> None:
    url = ours.create("orders", VisibilityTimeout="7")
    ours.send(url, "a")

    def handle(message: Message) -> None:
        raise ValueError("no")

    async with parts(ours, url) as opened:
        assert [outcome.status for outcome in await opened.handle(handle)] == ["failed"]
        assert [event.delay_s for event in opened.events if event.kind == "failed"] == [None]
        assert opened.session.events.counters.in_flight == 0
        assert opened.changes == []
    ours.advance(7)
    assert ours.bodies(url) == ["a"]


async def test_without_a_backoff_retry_after_still_sets_the_visibility(ours: SqsService) -> None:
    url = ours.create("orders", VisibilityTimeout="700")
    ours.send(url, "a")

    def handle(message: Message) -> None:
        raise RetryAfter(5)

    async with parts(ours, url) as opened:
        await opened.handle(handle)
        assert [event.delay_s for event in opened.events if event.kind == "failed"] == [5]
    ours.advance(5)
    assert ours.bodies(url) == ["a"]


async def test_nothing_beats_unless_it_is_asked_to(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    threads: list[str] = []

    async def handle(message: Message) -> None:
        await opened.clock.advance(seconds=100)
        threads.extend(thread.name for thread in threading.enumerate())

    async with parts(ours, url, visibility_s=30) as opened:
        await opened.handle(handle)
        assert "penstock-sqs-heartbeats" not in threads
        assert opened.changes == []


async def test_a_beat_extends_all_that_is_held_by_their_visibility(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "a", "b")
    emitted_in: list[threading.Thread] = []

    async with parts(ours, url, visibility_s=50) as opened:
        opened.session.events.on_event = lambda event: emitted_in.append(threading.current_thread())
        Work(opened.session, Calls(print, opened.session.threads), backoff=None).hold(
            await opened.receiver.receive(10, 0)
        )
        emitted_in.clear()
        await opened.beat()
        assert opened.changes == [50, 50]
        assert opened.session.events.counters.extended == 2
        assert threading.main_thread() not in emitted_in, "they are emitted where the beat is sent"


@pytest.mark.parametrize(("beat_ms", "extended_s"), [(500, 30), (10_000, 30), (60_000, 180), (40_000_000, 43_195)])
async def test_a_beat_of_an_unknown_visibility_outlasts_the_next_beat(
    ours: SqsService, beat_ms: int, extended_s: int
) -> None:
    url = ours.create("orders", VisibilityTimeout="300")
    ours.send(url, "a")
    async with parts(ours, url, beat_ms=beat_ms) as opened:
        work = Work(opened.session, Calls(print, opened.session.threads), backoff=None)
        work.hold(await opened.receiver.receive(10, 0))
        await opened.beat()
        assert opened.changes == [extended_s]


async def test_a_beat_is_one_however_short_their_interval_is(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    async with parts(ours, url, beat_ms=0) as opened:
        work = Work(opened.session, Calls(print, opened.session.threads), backoff=None)
        work.hold(await opened.receiver.receive(10, 0))
        await opened.beat()
        assert opened.changes == [30]
