"""`SqsConsumer`: runs a handler on the messages of an SQS queue until you stop it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from typing import TYPE_CHECKING, Any

from penstock.client.errors import ConsumerInvalid
from penstock.client.loops import refuse_on_loop
from penstock.client.sqs.api import is_async
from penstock.client.sqs.denial import Denial
from penstock.client.sqs.events import Counters, Events, log
from penstock.client.sqs.handlers import Calls, check_hooks, default_key
from penstock.client.sqs.polling import Polling
from penstock.client.sqs.session import Session
from penstock.client.sqs.settings import ConsumerSettings
from penstock.client.sqs.work import Work
from penstock.domain.clock import SystemClock, sleep_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.client.durations import Duration
    from penstock.client.sqs.events import Event
    from penstock.client.sqs.handlers import Handler, IdempotencyHook, KeyOf, SqsMiddleware
    from penstock.client.sqs.message import Message
    from penstock.domain.clock import Clock

CANCEL_S = 1.0
"""How long what was cancelled is waited for."""
CUT_S = 1.0


class SqsConsumer:
    """Runs a handler on each message of a queue: `await SqsConsumer(client, queue_url, handler).run()`.

    `client` is boto3's or aiobotocore's, of AWS or any other server. The handler takes a `Message`, or with
    `batch=True` a list of up to `batch_size`; it may be sync, and then runs in a thread. A message whose handler
    returns is deleted. One whose handler raises is kept, and visible again after `backoff`, doubled with each receive
    up to `max_backoff`; `RetryAfter`, `Snooze` and `Discard` say otherwise. At most `concurrency` messages (batches)
    are in hand; heartbeats extend their `visibility` every `heartbeat`, a third of it if left out. On a FIFO queue the
    messages of a group run in order, one at a time, and stop at the first that is not done.

    `on_poison` is called with a message whose body cannot be decoded, or that failed at its receive number
    `poison_after` or later, and the error; if it returns True the message is deleted. `idempotency` wraps the handler,
    with `key` of the message. `middleware` runs around the handler, and `on_event` is called with each `Event`.
    """

    def __init__(  # noqa: PLR0913 - each is a setting with a default
        self,
        client: Any,  # noqa: ANN401 - boto3 has no types for its clients
        queue_url: str,
        handler: Handler,
        *,
        concurrency: int = 10,
        batch: bool = False,
        batch_size: int = 10,
        wait: Duration = 20,
        visibility: Duration = 30,
        heartbeat: Duration | None = None,
        backoff: Duration = 1,
        max_backoff: Duration = 300,
        grace: Duration = 25,
        idempotency: IdempotencyHook | None = None,
        key: KeyOf | None = None,
        poison_after: int | None = None,
        on_poison: Callable[[Message, Exception], object] | None = None,
        middleware: Sequence[SqsMiddleware] = (),
        on_event: Callable[[Event], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = ConsumerSettings.check(
            client,
            queue_url,
            handler,
            concurrency=concurrency,
            batch_size=batch_size,
            wait=wait,
            visibility=visibility,
            heartbeat=heartbeat,
            backoff=backoff,
            max_backoff=max_backoff,
            grace=grace,
            poison_after=poison_after,
        )
        if key is not None and idempotency is None:
            raise ConsumerInvalid("A key is for idempotency, and none is given.")
        if batch and idempotency is not None:
            raise ConsumerInvalid(
                "Idempotency is for handlers of one message. Wrap what a batch handler calls instead."
            )
        check_hooks(on_poison, middleware, on_event)
        self.queue_url = queue_url
        self._client = client
        self._handler = handler if idempotency is None else idempotency(key=key or default_key)(handler)
        self._batch = batch
        self._on_poison = on_poison
        self._middleware = tuple(middleware)
        self._clock = clock or SystemClock()
        self._denial = Denial()
        self._events = Events(Counters(), on_event)
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_asked = False
        self._lock = threading.Lock()

    @property
    def counters(self) -> Counters:
        """How many messages had which fate."""
        return self._events.counters

    def share(self, counters: Counters, denial: Denial) -> None:
        """Count into another's counters, and warn only once with it that visibility cannot be changed."""
        self._events.counters = counters
        self._denial = denial

    def stop(self) -> None:
        """Ask a running consumer to stop, from any thread. One that does not run yet stops when it begins."""
        with self._lock:
            self._stop_asked = True
            if self._loop is not None and self._stop is not None:
                with contextlib.suppress(RuntimeError):  # The loop has ended, and the consumer with it.
                    self._loop.call_soon_threadsafe(self._stop.set)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Work until `stop` is set or `stop()` is called. Raises `QueueUnusable` at once if the queue cannot be used.

        At the end messages that have not begun are released at once; running ones have `grace` to end, and are released
        too if they do not. If this is cancelled everything is released at once.
        """
        with self._lock:
            if self._loop is not None:
                raise ConsumerInvalid("The consumer runs already.")
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            if self._stop_asked:
                self._stop.set()
        settings = self._settings
        session = Session(
            self._client,
            self.queue_url,
            clock=self._clock,
            visibility_s=settings.visibility_s,
            beat_ms=settings.beat_ms,
            denial=self._denial,
            events=self._events,
        )
        work = Work(
            session,
            Calls(self._handler, session.threads, self._middleware),
            backoff=settings.backoff,
            batch=self._batch,
            fifo=settings.fifo,
            poison=self._on_poison,
            poison_after=settings.poison_after,
        )
        polling = Polling(
            session,
            work,
            concurrency=settings.concurrency,
            batch_size=settings.batch_size,
            wait_s=settings.wait_s,
            batch=self._batch,
            fifo=settings.fifo,
        )
        try:
            await self._run(session, work, polling, [self._stop] if stop is None else [self._stop, stop])
        finally:
            with self._lock:
                self._loop = self._stop = None
                self._stop_asked = False

    def run_sync(self) -> None:
        """Work until SIGTERM, SIGINT or `stop()`; at the second signal everything is released at once.

        For the main thread of a program without an event loop, and for boto3's clients.
        """
        refuse_on_loop("run_sync", "run")
        if is_async(self._client):
            raise ConsumerInvalid("run_sync needs a boto3 client. With aiobotocore, await run().")
        with contextlib.suppress(asyncio.CancelledError), asyncio.Runner() as runner:
            runner.run(self._run_with_signals())

    async def _run_with_signals(self) -> None:
        running = asyncio.create_task(self.run(), name="penstock-sqs-consumer")
        with self._heed_signals(running):
            await running

    @contextlib.contextmanager
    def _heed_signals(self, running: asyncio.Task[None]) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        asked = 0

        def heed(name: str) -> None:
            nonlocal asked
            asked += 1
            log(logging.INFO, "stopping", signal=name, queue=self.queue_url)
            if asked == 1:
                self.stop()
            else:
                running.cancel()

        heeded = (signal.SIGTERM, signal.SIGINT)
        for one in heeded:
            loop.add_signal_handler(one, heed, one.name)
        try:
            yield
        finally:
            for one in heeded:
                loop.remove_signal_handler(one)

    # -- one run --------------------------------------------------------------------------------------

    async def _run(self, session: Session, work: Work, polling: Polling, stops: list[asyncio.Event]) -> None:
        poller = asyncio.create_task(polling.run(), name="penstock-sqs-polling")
        asked = [asyncio.create_task(stop.wait()) for stop in stops]
        try:
            await asyncio.wait([poller, *asked], return_when=asyncio.FIRST_COMPLETED)
            polling.stop()
            await session.release_in_time(work.release_all("stopping", running=False))
            await self._wait_for_end({poller, *work.tasks})
        finally:
            for one in asked:
                one.cancel()
            await asyncio.shield(asyncio.ensure_future(self._give_up(session, work, polling, poller)))
        if work.failure is not None:
            raise work.failure
        if poller.done() and not poller.cancelled():
            poller.result()

    async def _wait_for_end(self, tasks: set[asyncio.Task[None]]) -> None:
        """Wait for what runs, but not longer than the grace."""
        ending = asyncio.ensure_future(asyncio.wait(tasks))
        clock = self._clock
        grace = asyncio.ensure_future(sleep_until(clock, clock.now_ms() + self._settings.grace_ms))
        waits: list[asyncio.Future[Any]] = [ending, grace]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _give_up(self, session: Session, work: Work, polling: Polling, poller: asyncio.Task[None]) -> None:
        """Cancel what still runs, release it, and close the session."""
        polling.abandon()
        running = set(work.tasks)
        for task in running:
            task.cancel()
        if running:
            # Handlers that do not end by being cancelled are left behind.
            await asyncio.wait(running, timeout=CANCEL_S)
        await session.release_in_time(self._release_unfinished(work))
        if session.api.is_async:
            # What a call brings that is cut off stays hidden, so it gets a moment to end by itself.
            await asyncio.wait([poller], timeout=CUT_S)
        poller.cancel()
        await asyncio.wait([poller], timeout=CANCEL_S)
        await session.release_in_time(work.release(polling.unclaimed(), "received while stopping"))
        await session.close()

    async def _release_unfinished(self, work: Work) -> None:
        left = await work.release_all("not done when the consumer stopped", running=True)
        if left:
            log(logging.WARNING, "released unfinished work", messages=left, queue=self.queue_url)
