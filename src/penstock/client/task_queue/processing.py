"""What both handlers of a task queue share: receiving tasks and running callbacks on them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from penstock.client.errors import ConsumerInvalid
from penstock.client.sqs.api import check_client
from penstock.client.sqs.backoff import Backoff
from penstock.client.sqs.consumer import SqsConsumer
from penstock.client.sqs.delivery import HIDDEN_S_MAX
from penstock.client.sqs.denial import Denial
from penstock.client.sqs.events import Counters, Events
from penstock.client.sqs.handlers import Calls, is_coroutine_function
from penstock.client.sqs.receiving import Receiver
from penstock.client.sqs.session import Session
from penstock.client.sqs.settings import WAIT_S_MAX, whole_seconds
from penstock.client.sqs.work import Work
from penstock.client.task_queue.scripts import explain
from penstock.client.task_queue.tasks import fields_of, task_of
from penstock.domain.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.durations import Duration
    from penstock.client.sqs.delivery import Delivery
    from penstock.client.sqs.events import Event
    from penstock.client.sqs.handlers import Handler, IdempotencyHook, KeyOf
    from penstock.client.sqs.message import Message
    from penstock.client.sqs.work import Outcome
    from penstock.domain.clock import Clock

Status = Literal["completed", "failed", "undeleted", "snoozed", "discarded"]


class TaskQueue:
    """Tasks of one FIFO queue."""

    def __init__(
        self,
        sqs_client: Any,  # noqa: ANN401 - boto3 has no types for its clients
        queue_url: str,
        dlq_url: str | None = None,
        *,
        backoff: Duration = 1,
        max_backoff: Duration = 300,
        idempotency: IdempotencyHook | None = None,
        key: KeyOf | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not sqs_client:
            raise ConsumerInvalid("SQS client is required")
        if not queue_url:
            raise ConsumerInvalid("Queue URL is required")
        check_client(sqs_client)
        for url in (queue_url, dlq_url):
            if url and not url.endswith(".fifo"):
                raise ConsumerInvalid(
                    f"{url} is not a FIFO queue, whose name ends in .fifo: tasks need message groups and deduplication."
                )
        self.sqs_client = sqs_client
        self.queue_url = queue_url
        self.dlq_url = dlq_url
        self.visibility_timeout = 900
        """Seconds for which a task is hidden while it runs. Heartbeats extend it, so it need not be the longest."""
        self.wait_time = 5
        """Seconds for which an empty queue is waited for."""
        self.counters = Counters()
        self._backoff = (backoff, max_backoff)
        Backoff(*self._backoff)
        if key is not None and idempotency is None:
            raise ConsumerInvalid("A key is for idempotency, and none is given.")
        self._idempotency = idempotency
        self._key = key or _deduplication_id
        self._clock = clock or SystemClock()
        self._denial = Denial()

    async def process_one(
        self,
        callback: Callable[..., Any],
        **callback_kwargs: Any,  # noqa: ANN401 - what a callback takes is its own
    ) -> dict[str, Any] | None:
        """Receive one task and run `callback` on it; return what became of it, or None if the queue is empty.

        The callback gets `entity_id`, `task_name`, `task_config`, `metadata` and `callback_kwargs`, which override
        those; it may be sync, and then runs in a thread. The dict has a `status`: `completed`; `failed`, and the task
        comes back after a backoff; `undeleted`, if the work is done and SQS did not take the delete; or `snoozed` or
        `discarded`, if the callback raised `Snooze` or `Discard`. If this is cancelled the task is released at once.
        """
        visibility_s = whole_seconds(self.visibility_timeout, "visibility_timeout", 1, HIDDEN_S_MAX)
        wait_s = whole_seconds(self.wait_time, "wait_time", 0, WAIT_S_MAX)
        session = Session(
            self.sqs_client,
            self.queue_url,
            clock=self._clock,
            visibility_s=visibility_s,
            beat_ms=visibility_s * 1_000 // 3,
            denial=self._denial,
            events=Events(self.counters),
        )
        receiver = Receiver(session, fifo=True)
        calls = Calls(self._handler(callback, callback_kwargs), session.threads)
        work = Work(session, calls, backoff=Backoff(*self._backoff), fifo=True)
        try:
            deliveries = work.hold(await receiver.receive(1, wait_s))
            return None if not deliveries else _result(deliveries[0], await work.run_one(deliveries[0]))
        except asyncio.CancelledError:
            receiver.abandon()
            await asyncio.shield(asyncio.ensure_future(session.release_in_time(_release(work, receiver))))
            raise
        except Exception as error:
            explain(error, self.queue_url)
            raise
        finally:
            await session.close()

    async def run(
        self,
        callback: Callable[..., Any],
        *,
        concurrency: int = 10,
        stop: asyncio.Event | None = None,
        grace: Duration = 25,
        on_event: Callable[[Event], object] | None = None,
        **callback_kwargs: Any,  # noqa: ANN401 - as above
    ) -> None:
        """Run `callback` on tasks, up to `concurrency` at once, until `stop` is set; see `SqsConsumer.run`."""
        consumer = SqsConsumer(
            self.sqs_client,
            self.queue_url,
            self._handler(callback, callback_kwargs),
            concurrency=concurrency,
            wait=self.wait_time,
            visibility=self.visibility_timeout,
            backoff=self._backoff[0],
            max_backoff=self._backoff[1],
            grace=grace,
            on_event=on_event,
            clock=self._clock,
        )
        consumer.share(self.counters, self._denial)
        await consumer.run(stop)

    def _handler(self, callback: Callable[..., Any], callback_kwargs: dict[str, Any]) -> Handler:
        """Return a handler that reads the task out of a message and calls back; bad bodies fail as tasks do."""
        if not callable(callback):
            raise ConsumerInvalid(f"A callback is a function, not {callback!r}.")

        def arguments(message: Message) -> dict[str, Any]:
            task = task_of(message)
            given = {
                "entity_id": task.entity_id,
                "task_name": task.name,
                "task_config": task.config,
                "metadata": task.metadata,
            }
            return given | callback_kwargs

        async def handle(message: Message) -> object:
            return await callback(**arguments(message))

        def handle_in_thread(message: Message) -> object:
            return callback(**arguments(message))

        handler = handle if is_coroutine_function(callback) else handle_in_thread
        if self._idempotency is None:
            return handler
        _pass_for(handler, callback)
        return self._idempotency(key=self._key)(handler)

    def _dlq(self) -> str:
        if not self.dlq_url:
            raise ConsumerInvalid("No dead-letter queue is configured: pass dlq_url.")
        return self.dlq_url


async def _release(work: Work, receiver: Receiver) -> None:
    await work.release_all("cancelled", running=True)
    await work.release(receiver.unclaimed(), "cancelled")


def _pass_for(handler: Callable[..., Any], callback: Callable[..., Any]) -> None:
    """Give a handler the name and the return type of its callback: records are kept, and read, by these."""
    handler.__module__ = getattr(callback, "__module__", None) or handler.__module__
    handler.__qualname__ = getattr(callback, "__qualname__", type(callback).__qualname__)
    try:
        returned = get_type_hints(callback).get("return", Any)
    except (NameError, TypeError):
        returned = Any  # Names that cannot be resolved, or no function.
    handler.__annotations__ = {"return": returned}


def _deduplication_id(message: Message) -> str:
    """Return what makes a task the same task: its deduplication id is a digest of all that it consists of."""
    return message.system.get("MessageDeduplicationId", message.id)


def _result(delivery: Delivery, outcome: Outcome) -> dict[str, Any]:
    fields = fields_of(delivery.message)
    told: dict[str, Any] = {"entity_id": fields.get("entity_id"), "task_name": fields.get("task_name")}
    if outcome.status in {"done", "undeleted"}:
        told["result"] = outcome.result
    if outcome.error is not None:
        told["error"] = str(outcome.error)
    status: Status = "completed" if outcome.status == "done" else outcome.status
    return told | {"status": status}
