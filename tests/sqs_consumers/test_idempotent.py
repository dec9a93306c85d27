"""An idempotency hook wraps the handler, by a key of the message."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Message
from penstock.client.errors import IdempotencyInProgress
from penstock.client.sqs.handlers import default_key
from tests.sqs_consumers.consuming import consuming
from tests.support.sqs_services import SqsService, until


class Remembering:
    """Keeps results in memory, as simply as a hook can be."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self.busy: set[str] = set()

    def __call__(self, *, key: Callable[..., str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
            async def run(message: Message) -> object:
                name = key(message)
                if name in self.busy:
                    self.busy.discard(name)
                    raise IdempotencyInProgress(name, retry_after=7.2)
                if name not in self.results:
                    result = handler(message)
                    self.results[name] = await result if inspect.isawaitable(result) else result
                return self.results[name]

            return run

        return decorate


async def test_a_second_delivery_of_one_payload_does_not_run_it_again(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, '{"id": 17, "try": 1}', '{"id": 17, "try": 2}')
    hook = Remembering()
    runs: list[str] = []

    async def handle(message: Message) -> str:
        runs.append(message.body)
        return "charged"

    async with consuming(sqs, url, handle, concurrency=1, idempotency=hook) as running:
        await until(lambda: running.consumer.counters.deleted == 2)
    assert len(runs) == 1
    assert [event.result for event in running.of("done")] == ["charged", "charged"]
    assert hook.results == {"17": "charged"}


async def test_what_another_holder_works_on_comes_back_later_and_has_not_failed(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "order 17")
    hook = Remembering()
    hook.busy.add("ORDER 17")
    async with consuming(
        ours, url, lambda message: "done", idempotency=hook, key=lambda message: message.body.upper()
    ) as running:
        await until(lambda: running.of("snoozed"))
        assert running.of("snoozed")[0].delay_s == 8
        ours.advance(8)
        await until(lambda: running.consumer.counters.deleted)
    assert running.consumer.counters.failed == 0


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ('{"id": "order-17"}', "order-17"),
        ('{"id": 17}', "17"),
        ('{"id": true}', "m"),
        ('{"id": ""}', "m"),
        ('{"id": [1]}', "m"),
        ("[1]", "m"),
        ("not json", "m"),
        ("[" * 100_000, "m"),
    ],
)
def test_the_key_is_the_id_of_the_payload_or_of_the_message(body: str, key: str) -> None:
    assert default_key(Message(id="m", body=body, receipt="r", queue_url="q")) == key
