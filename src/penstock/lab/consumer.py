"""The lab's consumer: the kit for SQS consumers, one message at a time, with switches for everything that can go wrong.

It is made of the same parts as `SqsConsumer`. But a message that failed stays hidden until its visibility timeout ends,
heartbeats are sent only if they are switched on, and every wait is taken on the lab's clock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from penstock.client.sqs.denial import Denial
from penstock.client.sqs.events import Event, Events
from penstock.client.sqs.handlers import Calls
from penstock.client.sqs.receiving import Receiver
from penstock.client.sqs.session import Session
from penstock.client.sqs.settling import Unsettled
from penstock.client.sqs.work import Work
from penstock.client.tasks.retries import RetryAfter
from penstock.lab.checkers.evidence import number
from penstock.lab.consumer_settings import ConsumerSettings, QueueUrlMissing
from penstock.lab.endpoints import sqs_of
from penstock.lab.handling import Handling, Received, SeenIds, log, received_of
from penstock.lab.observing import Observer, signals_wake
from penstock.lab.pace import PaceClock
from penstock.lab.tables.opening import open_tables
from penstock.lab.variables import BadValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.client.sqs.delivery import Delivery
    from penstock.client.sqs.message import Message
    from penstock.lab.pace import Pace

AT_ONCE = 143
"""The exit code of a consumer that ends in the middle of its work, for a second signal or by a flaw."""
RECEIVE_MAX = 10
"""How many messages SQS gives in one receive at most."""


class Kept(Exception):
    """A message is not to be deleted, and its visibility not to be changed."""


class PacedClient:
    """A boto3 client whose receives and deletes take their time on the lab's clock."""

    def __init__(self, client: Any, pace: Pace) -> None:  # noqa: ANN401 - boto3 has no types
        self.client = client
        self.pace = pace

    def receive_message(self, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        """Receive, and wait in the call."""
        answer: dict[str, Any] = self.pace.poll(
            parameters["WaitTimeSeconds"], lambda: self.client.receive_message(**parameters)
        )
        return answer

    def delete_message_batch(self, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        """Delete. Step 6 of a message."""
        self.pace.step()
        answer: dict[str, Any] = self.client.delete_message_batch(**parameters)
        return answer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        return getattr(self.client, name)


class RecordedEvents(Events):
    """Events of the kit. The consumer writes them to its history and its log."""

    def __init__(self, consumer: Consumer) -> None:
        super().__init__()
        self._consumer = consumer

    def emit(self, event: Event) -> None:
        """Take an event in."""
        self._consumer.record(event)


class FatalDenial(Denial):
    """Ends the consumer where the kit would go on without ChangeMessageVisibility."""

    def note(self, error: Exception, queue_url: str) -> None:  # noqa: ARG002 - the error names the operation
        """Raise the error."""
        raise error


class Consumer:
    """Consumes one queue until it is stopped, has had enough, or has waited for too long."""

    handling = Handling
    """What works on messages. A test may give another."""
    marks_receives = False
    """Whether the tries of one receive share a ReceiveRequestAttemptId."""

    def __init__(self, settings: ConsumerSettings, observer: Observer) -> None:
        self.settings = settings
        self.observer = observer
        self.sqs: Any = PacedClient(sqs_of(settings.queue_url, region=settings.aws_region or None), observer.pace)
        self.tables = open_tables(settings)
        self.seen = SeenIds(settings.idempotency_cache_size)
        self.stopping = False
        self.processed = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.call: str | None = None
        """What the tries of the present receive have in common, where that is of interest."""

    def run(self) -> int:
        """Consume, and return the exit code."""
        with asyncio.Runner() as runner:
            runner.run(self._consume())
        return 0

    async def _consume(self) -> None:
        settings, self.loop = self.settings, asyncio.get_running_loop()
        log.info("consuming %s", settings.queue_url)
        if settings.max_messages > RECEIVE_MAX:
            log.warning("MAX_MESSAGES is %d, and a receive takes at most %d", settings.max_messages, RECEIVE_MAX)
        session = Session(
            self.sqs,
            settings.queue_url,
            clock=PaceClock(self.observer.pace),
            visibility_s=self.observer.visibility_ms // 1_000 or None,
            beat_ms=round(settings.heartbeat_seconds * 1_000),
            denial=FatalDenial(),
            events=RecordedEvents(self),
            beats_itself=False,
        )
        self.handler = self.handling(settings, self.observer, self.tables, session.heartbeats.beat)
        handle = self.handle_batch if settings.has("whole-batch") else self.handle
        work = Work(session, Calls(handle, session.threads), backoff=None)
        try:
            with signals_wake(self.loop):
                await self._poll(Receiver(session, fifo=self.marks_receives), work)
        finally:
            self.loop = None
            await session.close()

    async def _poll(self, receiver: Receiver, work: Work) -> None:
        pace, idle_ms = self.observer.pace, round(self.settings.idle_timeout_seconds * 1_000)
        quiet_since_ms = pace.now_ms()
        while self.wants_more():
            wait_s = self.settings.wait_time_seconds
            left_ms = quiet_since_ms + idle_ms - pace.now_ms()
            if idle_ms:
                # A long poll lasts whole seconds: the rest of the idle time is slept, before one last look.
                if left_ms < 1_000:
                    pace.sleep(max(left_ms, 0) / 1_000, wanted=self.wants_more)
                    if not self.wants_more():
                        break
                wait_s = min(wait_s, max(left_ms // 1_000, 0))
            deliveries = await receiver.receive(self.most, wait_s)
            if deliveries:
                await self._handle_all(work, deliveries)
                quiet_since_ms = pace.now_ms()
            elif idle_ms and pace.now_ms() >= quiet_since_ms + idle_ms:
                log.info("no message for %g s", self.settings.idle_timeout_seconds)
                break

    async def _handle_all(self, work: Work, deliveries: Sequence[Delivery]) -> None:
        """Handle the messages of one receive, one after another. Each is deleted once it is done."""
        settings, held = self.settings, work.hold(deliveries)
        if self.stopping:
            # They came after the signal, so others may have them, and at once.
            log.info("%s received while stopping; released", number(len(held), "message"))
            await work.release(held, "received while stopping")
            return
        if settings.has("delete-on-receive"):
            for delivery in held:
                await work.delete(delivery)
        if settings.has("whole-batch"):
            await work.run_batch(held)
            return
        for delivery in held:
            await work.run_one(delivery)

    def wants_more(self) -> bool:
        """Return whether to receive again: it was not stopped, and has not reached its limit."""
        return not self.stopping and not 0 < self.settings.message_limit <= self.processed

    @property
    def most(self) -> int:
        """How many messages the next receive asks for."""
        settings = self.settings
        left = settings.message_limit - self.processed if settings.message_limit else RECEIVE_MAX
        return min(settings.max_messages, left, RECEIVE_MAX)

    # -- handlers of the kit, called in threads, one at a time ---------------------------------------------------

    def handle(self, message: Message) -> None:
        """Handle a message. It is deleted unless this raises `Kept` or `RetryAfter`."""
        received = received_of(message)
        if received.id in self.seen:
            log.info("message %s was handled before", received.id)
            self.observer.record("fail", "effect", **received.facts, what="left out: in the cache")
        else:
            fate = self.handler.handle(received)
            if fate == "failed" and (delay_s := self.retry_s(received)) is not None:
                raise RetryAfter(delay_s)
            if fate != "done":
                raise Kept(fate)
            self.seen.add(received.id)
            self.processed += 1
        if self.settings.has("never-delete") or self.settings.has("delete-on-receive"):
            raise Kept("a flaw of this consumer")

    def handle_batch(self, messages: list[Message]) -> dict[str, Exception]:
        """Handle all messages of a receive, and keep them all if one of them is bad; return why, by their ids."""
        bad: dict[str, Exception] = {}
        for message in messages:
            try:
                self.handle(message)
            except (Kept, RetryAfter) as error:
                bad[message.id] = error
        return {message.id: Kept("another of its batch is bad") for message in messages} | bad if bad else {}

    def retry_s(self, message: Received) -> float | None:
        """Return for how long to hide a message that failed, more each time; None leaves that to the queue."""
        settings = self.settings
        if settings.has("retry-at-once"):
            return 0
        if not settings.retry_base_seconds:
            return None
        delay_s = min(settings.retry_base_seconds * 2 ** (message.receives - 1), settings.retry_max_seconds)
        return self.observer.random.uniform(0, delay_s) if settings.retry_jitter else delay_s

    # -- what is seen --------------------------------------------------------------------------------------------

    def record(self, event: Event) -> None:
        """Write an event of the kit to the history; raise its error if no switch asked for that."""
        message = received_of(event.message)
        record, now_ms = self.observer.record, self.observer.now_ms()
        match event.kind:
            case "received":
                until_ms = now_ms + self.observer.visibility_ms if self.observer.visibility_ms else None
                sent_ms = None if message.sent_ms is None else self.observer.since_origin_ms(message.sent_ms)
                facts = message.facts if self.call is None else message.facts | {"call": self.call}
                record("ok", "receive", **facts, count=message.receives, until_ms=until_ms, sent_ms=sent_ms)
            case "deleted":
                record("ok", "delete", **message.facts)
                log.info("message %s is done and deleted, receive %d of it", message.id, message.receives)
            case "undeleted" if isinstance(event.error, Unsettled) and event.error.stale:
                log.warning("message %s was not deleted, its receipt handle is stale: %s", message.id, event.error)
                record("fail", "delete", **message.facts, what="the receipt handle is stale")
            case "failed" if isinstance(event.error, Kept):
                pass
            case "undeleted" | "failed" if not isinstance(event.error, RetryAfter):
                assert event.error is not None
                raise event.error
            case "extended" | "failed" | "released" if event.delay_s is not None:
                record("ok", "extend", **message.facts, until_ms=now_ms + round(event.delay_s * 1_000))
            case "failed" | "released":
                record("fail", "extend", **message.facts, what="the visibility was not changed")
            case "lost":
                log.warning("the lease on message %s is over: %s", message.id, event.reason)
                record("fail", "extend", **message.facts, what="the lease is over")

    def stop(self) -> None:
        """Finish what is in work and receive nothing more; end here if it is the second time, or for a flaw."""
        if self.stopping or self.settings.has("exit-at-once"):
            os._exit(AT_ONCE)
        self.stopping = True
        if self.loop is not None:
            # A signal may come in the middle of a line of the log.
            self.loop.call_soon_threadsafe(
                log.info, "stopping after the work and the receive under way; a second signal ends this at once"
            )

    def close(self) -> None:
        """Close the tables and the client."""
        self.tables.close()
        self.sqs.close()


def main(arguments: Sequence[str] = (), *, kind: type[Consumer] = Consumer) -> int:
    """Run a consumer as the environment says, and return its exit code: 1 without a queue, 2 for a bad value."""
    assert not arguments, "a consumer has variables, and no arguments"
    try:
        settings = ConsumerSettings.read(os.environ)
    except BadValue as error:
        sys.stderr.write(f"error: {error}\n")
        return 1 if isinstance(error, QueueUrlMissing) else 2
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    observer = Observer()
    consumer = kind(settings, observer)
    observer.on_stop(consumer.stop)
    try:
        code = consumer.run()
        log.info("processed %d, and ends", consumer.processed)
        return code
    finally:
        consumer.close()
        observer.close()
