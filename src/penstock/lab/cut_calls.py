"""Processes that get no answer: a sender and a consumer, each behind a proxy of its own that cuts answers off."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from penstock.client.sqs.message import message_of
from penstock.lab.consumer import Consumer, PacedClient, main
from penstock.lab.cutting_proxy import CuttingProxy
from penstock.lab.endpoints import TRIES, client
from penstock.lab.handling import received_of
from penstock.lab.observing import Observer
from penstock.lab.payloads import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.lab.consumer_settings import ConsumerSettings

T = TypeVar("T")

CUT = "connection cut"
"""The fault of an event whose answer was cut off."""
BACKOFF_S = (0.05, 0.25)
"""How long a call waits before its next try, by the seed."""
RECEIVER_VARIABLE = "LAB_RECEIVER"
_IDLE_S = 1.0


class Line:
    """A boto3 client behind a proxy that cuts answers off. Pauses between tries are taken on the lab's clock.

    With `sdk_retries` the SDK repeats a call by itself and marks its tries with one invocation id. Without, `call`
    repeats it, and each try is a call of its own to the server.
    """

    def __init__(
        self,
        queue_url: str,
        region: str,
        observer: Observer,
        *,
        sdk_retries: bool,
        cut: Callable[[bytes, int], None],
    ) -> None:
        place = urlsplit(queue_url)
        self._observer = observer
        self._cut = cut
        self._tries = TRIES if sdk_retries else 1
        self._attempt = 1
        self.proxy = CuttingProxy(f"{place.scheme}://{place.netloc}").__enter__()
        # The proxy is spoken to in plain HTTP, and speaks TLS to the endpoint where that does.
        self.sqs = client(
            "sqs", endpoint=f"http://{place.netloc}", region=region or None, proxy=self.proxy.url, tries=self._tries
        )
        self.sqs.meta.events.register_first("needs-retry.sqs", self._failed)

    def call(self, call: Callable[[], T], *, cuts: int) -> tuple[T, int]:
        """Make a call of which the first `cuts` answers are cut off; return its answer and how many tries it took."""
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - an extra

        self.proxy.cut_next(cuts)
        self._attempt = 1
        while True:
            before = self._attempt
            try:
                return call(), self._attempt
            except BotoCoreError:
                if self._attempt == before or self._attempt > TRIES:
                    raise  # It was not cut by us, or too often.
                self._pause()

    def _failed(self, *, attempts: int, caught_exception: Exception | None = None, **_: object) -> int | None:
        """Hear of a try that failed. 0 is "try again at once": the pause is over by then."""
        answer = self.proxy.taken() if caught_exception is not None else None
        if answer is None:
            return None  # The SDK decides.
        self._cut(answer, self._attempt)
        self._attempt += 1
        if attempts >= self._tries:
            return None
        self._pause()
        return 0

    def _pause(self) -> None:
        self._observer.pace.sleep(self._observer.random.uniform(*BACKOFF_S))

    def close(self) -> None:
        """Close the client and its proxy."""
        self.sqs.close()
        self.proxy.close()


class SenderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the sender is told."""

    queue_url: str
    region: str
    count: int
    cuts: int
    """How many answers to each call are cut off."""
    fresh_ids: bool
    """Whether every try has an id of its own, as when the application repeats a call by itself."""


class Sender:
    """Sends messages one by one, each by one call with several tries."""

    def __init__(self, settings: SenderSettings, observer: Observer) -> None:
        self.settings = settings
        self.observer = observer
        self.fifo = settings.queue_url.endswith(".fifo")
        self.body: dict[str, Any] = {}
        self.deduplication = ""
        self.line = Line(
            settings.queue_url, settings.region, observer, sdk_retries=not settings.fresh_ids, cut=self.cut
        )

    def run(self) -> None:
        """Send them all."""
        for number in range(1, self.settings.count + 1):
            self.observer.pace.step()
            self.body = {"id": self.new_id(), "call": f"call {number}"}
            self.deduplication = self.new_id()
            answer, tries = self.line.call(self.send, cuts=self.settings.cuts)
            self.observer.record(
                "ok", "send", **facts_of(self.body), message_id=answer["MessageId"], attempt=tries, what="answered"
            )

    def send(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """Make one call."""
        fifo = {}
        if self.fifo:
            same = self.new_id() if self.settings.fresh_ids else self.deduplication
            fifo = {"MessageGroupId": self.body["id"], "MessageDeduplicationId": same}
        return self.line.sqs.send_message(QueueUrl=self.settings.queue_url, MessageBody=json.dumps(self.body), **fifo)

    def cut(self, _answer: bytes, attempt: int) -> None:
        """Note a try whose answer was lost. The sender cannot know whether its message was stored."""
        what = "stored, the answer is cut off"
        self.observer.record("info", "send", **facts_of(self.body), attempt=attempt, fault=CUT, what=what)

    def new_id(self) -> str:
        """Return an id by the seed."""
        return str(UUID(int=self.observer.random.getrandbits(128), version=4))


def send(arguments: Sequence[str]) -> int:
    """Run a sender for the runner, with its settings as JSON."""
    observer = Observer()
    sender = Sender(msgspec.json.decode(arguments[0], type=SenderSettings), observer)
    try:
        sender.run()
    finally:
        sender.line.close()
        observer.close()
    return os.EX_OK


class ReceiverSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the consumer is told beside the variables of every consumer."""

    cuts: int
    """How many receives get no answer at first."""
    attempt_id: bool
    """Whether tries of one receive are marked: by a ReceiveRequestAttemptId on FIFO queues, else by the SDK."""


class CutConsumer(Consumer):
    """A consumer of which the first receives get no answer, and which asks again at once."""

    def __init__(self, settings: ConsumerSettings, observer: Observer) -> None:
        super().__init__(settings, observer)
        self.sqs.close()
        self.told = msgspec.json.decode(os.environ[RECEIVER_VARIABLE], type=ReceiverSettings)
        fifo = settings.queue_url.endswith(".fifo")
        self.marks_receives = fifo and self.told.attempt_id
        self.calls = 0
        sdk_retries = self.told.attempt_id and not fifo
        self.line = Line(settings.queue_url, settings.aws_region, observer, sdk_retries=sdk_retries, cut=self.cut)
        self.sqs = CutReceives(self)

    def cut(self, answer: bytes, attempt: int) -> None:
        """Note which messages an answer had that was lost. Only the proxy knows them."""
        for received in json.loads(answer).get("Messages", []):
            message = received_of(message_of(received, self.settings.queue_url))
            self.observer.record(
                "info",
                "receive",
                **(message.facts | {"call": self.call}),
                count=message.receives,
                attempt=attempt,
                fault=CUT,
                what="leased, the answer is cut off",
            )

    def close(self) -> None:
        """Close the proxy, too."""
        super().close()
        self.line.close()


class CutReceives(PacedClient):
    """The client of a `CutConsumer`."""

    def __init__(self, consumer: CutConsumer) -> None:
        super().__init__(consumer.line.sqs, consumer.observer.pace)
        self._consumer = consumer

    def receive_message(self, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - boto3 has no types
        """Receive by a short poll: a pause between tries cannot be taken inside a long one."""
        consumer, wait_s = self._consumer, parameters["WaitTimeSeconds"]
        consumer.calls += 1
        consumer.call = f"receive {consumer.calls}"
        self.pace.step()
        answer, _ = consumer.line.call(
            lambda: self.client.receive_message(**parameters | {"WaitTimeSeconds": 0}),
            cuts=1 if consumer.calls <= consumer.told.cuts else 0,
        )
        if not answer.get("Messages") and wait_s:
            self.pace.sleep(_IDLE_S)
        found: dict[str, Any] = answer
        return found


def receive(arguments: Sequence[str]) -> int:
    """Run such a consumer for the runner."""
    return main(arguments, kind=CutConsumer)
