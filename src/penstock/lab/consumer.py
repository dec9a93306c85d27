"""The lab's consumer: polls a queue, handles each message, deletes it, and fails in every way it is told to."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from penstock.lab.consumer_settings import ConsumerSettings, QueueUrlMissing
from penstock.lab.endpoints import sqs_of
from penstock.lab.handling import Delivery, Handling, delivery_of, log, stale_receipt
from penstock.lab.observing import Observer
from penstock.lab.tables.opening import open_tables
from penstock.lab.variables import BadValue

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_ONCE = 143
"""The exit code of a consumer that SIGTERM ends in the middle of its work."""


class SeenIds:
    """The ids of the messages that were handled last: a cache that forgets the one used longest ago."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, message_id: str) -> bool:
        """Return whether an id is known, which counts as a use of it."""
        if message_id not in self._ids:
            return False
        self._ids.move_to_end(message_id)
        return True

    def add(self, message_id: str) -> None:
        """Remember an id."""
        if self._size:
            self._ids[message_id] = None
            self._ids.move_to_end(message_id)
            if len(self._ids) > self._size:
                self._ids.popitem(last=False)


class Consumer:
    """Consumes one queue until it is stopped, has had enough, or has waited for too long."""

    handling = Handling
    """What works on messages. A test may give another."""

    def __init__(self, settings: ConsumerSettings, observer: Observer) -> None:
        self.settings = settings
        self.observer = observer
        self.sqs = sqs_of(settings.queue_url, region=settings.aws_region or None)
        self.tables = open_tables(settings)
        self.work = self.handling(settings, observer, self.sqs, self.tables)
        self.seen = SeenIds(settings.idempotency_cache_size)
        self.stopping = False
        self.processed = 0
        self.call: str | None = None
        """What the tries of the present receive have in common, where that is of interest."""

    def run(self) -> int:
        """Consume, and return the exit code."""
        pace, idle_ms = self.observer.pace, round(self.settings.idle_timeout_seconds * 1_000)
        quiet_since_ms = pace.now_ms()
        while not self.stopping and not self.enough:
            wait_s = self.settings.wait_time_seconds
            left_ms = quiet_since_ms + idle_ms - pace.now_ms()
            if idle_ms:
                # A long poll lasts whole seconds: the rest of the idle time is slept, before one last look.
                if left_ms < 1_000:
                    pace.sleep(max(left_ms, 0) / 1_000, wanted=lambda: not self.stopping)
                wait_s = min(wait_s, max(left_ms // 1_000, 0))
            messages = self.receive(wait_s)
            if messages:
                self.handle_all(messages)
                quiet_since_ms = pace.now_ms()
            elif idle_ms and pace.now_ms() >= quiet_since_ms + idle_ms:
                log.info("no message for %g s", self.settings.idle_timeout_seconds)
                break
        return 0

    @property
    def enough(self) -> bool:
        """Whether as many messages were processed as it is to process."""
        return 0 < self.settings.message_limit <= self.processed

    def receive(self, wait_s: int) -> list[Delivery]:
        """Wait for messages, and return those that came."""
        settings = self.settings
        most = settings.max_messages
        if settings.message_limit:
            most = min(most, settings.message_limit - self.processed)
        answer = self.ask(most, wait_s)
        messages = [delivery_of(received, settings.queue_url) for received in answer.get("Messages", [])]
        until_ms = self.observer.now_ms() + self.observer.visibility_ms if self.observer.visibility_ms else None
        for message in messages:
            sent_ms = None if message.sent_ms is None else self.observer.since_origin_ms(message.sent_ms)
            facts = message.facts if self.call is None else message.facts | {"call": self.call}
            self.observer.record("ok", "receive", **facts, count=message.receives, until_ms=until_ms, sent_ms=sent_ms)
        return messages

    def ask(self, most: int, wait_s: int) -> dict[str, Any]:
        """Make the call, and wait in it."""
        answer: dict[str, Any] = self.observer.pace.poll(
            wait_s, lambda: self.sqs.receive_message(**self.request(most, wait_s))
        )
        return answer

    def request(self, most: int, wait_s: int) -> dict[str, Any]:
        """Return what a receive asks for."""
        return {
            "QueueUrl": self.settings.queue_url,
            "MaxNumberOfMessages": most,
            "WaitTimeSeconds": wait_s,
            "MessageSystemAttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        }

    def handle_all(self, messages: Sequence[Delivery]) -> None:
        """Handle the messages of one receive. Those that were done are deleted, each for itself."""
        if self.stopping:
            # They came after the signal, so others may have them, and at once.
            for message in messages:
                self.work.extend(message, 0)
            return
        done: list[Delivery] = []
        bad = 0
        for message in messages:
            if self.settings.has("delete-on-receive"):
                self.delete(message)
            if not self.handle_one(message):
                bad += 1
            elif self.settings.has("whole-batch"):
                done.append(message)
            elif not self.settings.has("delete-on-receive"):
                self.delete(message)
        if not bad:
            for message in done:
                self.delete(message)

    def handle_one(self, message: Delivery) -> bool:
        """Handle a message; return whether it can be deleted."""
        if message.id in self.seen:
            log.info("message %s was handled before", message.id)
            self.observer.record("fail", "effect", **message.facts, what="left out: in the cache")
            return True
        fate = self.work.handle(message)
        if fate == "failed":
            self.retry(message)
        if fate != "done":
            return False
        self.seen.add(message.id)
        self.processed += 1
        return True

    def retry(self, message: Delivery) -> None:
        """Hide a message that failed, for longer each time; or leave that to its visibility timeout."""
        settings = self.settings
        if settings.has("retry-at-once"):
            self.work.extend(message, 0)
            return
        if not settings.retry_base_seconds:
            return
        delay_s = min(settings.retry_base_seconds * 2 ** (message.receives - 1), settings.retry_max_seconds)
        if settings.retry_jitter:
            delay_s = self.observer.random.uniform(0, delay_s)
        self.work.extend(message, math.ceil(delay_s))

    def delete(self, message: Delivery) -> None:
        """Step 6. A receipt handle that is stale is worth a warning and no more."""
        if self.settings.has("never-delete"):
            return
        self.observer.pace.step()
        try:
            self.sqs.delete_message(QueueUrl=self.settings.queue_url, ReceiptHandle=message.receipt)
        except self.sqs.exceptions.ClientError as error:
            if not stale_receipt(error):
                raise
            log.warning("message %s was not deleted, its receipt handle is stale: %s", message.id, error)
            self.observer.record("fail", "delete", **message.facts, what="the receipt handle is stale")
        else:
            self.observer.record("ok", "delete", **message.facts)
            log.info("message %s is done and deleted, receive %d of it", message.id, message.receives)

    def stop(self) -> None:
        """Finish what is in work and receive nothing more; a flawed consumer ends here."""
        if self.settings.has("exit-at-once"):
            os._exit(AT_ONCE)
        self.stopping = True

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
