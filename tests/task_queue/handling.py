"""Handlers under test, ours and the original, and what tests do with them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import TaskQueueHandler
from penstock.domain.clock import Clock
from tests.support.sqs_services import SqsService
from tests.task_queue.original_handler import TaskQueueHandler as OriginalHandler

BOTH = [pytest.param(OriginalHandler, id="original"), pytest.param(TaskQueueHandler, id="ours")]
"""For what the original promises."""
MENDED = [
    pytest.param(
        "sqlite_sqs",
        OriginalHandler,
        id="sqlite-original",
        marks=pytest.mark.xfail(strict=True, reason="the original's flaw"),
    ),
    pytest.param("sqlite_sqs", TaskQueueHandler, id="sqlite-ours"),
    pytest.param("postgres_sqs", TaskQueueHandler, id="postgres-ours"),
]
"""For what the original gets wrong: the same test has to fail there. Its flaws are its own, so one store shows them."""
MENDED_ON_MOTO = pytest.param("moto_sqs", TaskQueueHandler, id="moto-ours")


def made(kind: Any, *given: Any, clock: Clock) -> Any:
    """Make a handler with a clock of its own; the original has none, and nothing that would need one."""
    return kind(*given, clock=clock) if kind is TaskQueueHandler else kind(*given)


async def echo(**given: Any) -> dict[str, Any]:
    return given


async def fail(**given: Any) -> None:
    raise ValueError(f"{given['task_name']} is wrong")


def messages(sqs: SqsService, url: str) -> list[dict[str, Any]]:
    """Look at up to ten messages without hiding them."""
    answer = sqs.client.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=10,
        VisibilityTimeout=0,
        MessageAttributeNames=["All"],
        AttributeNames=["All"],
    )
    return list(answer.get("Messages", []))


def bodies(sqs: SqsService, url: str) -> list[dict[str, Any]]:
    return [json.loads(message["Body"]) for message in messages(sqs, url)]


@contextlib.contextmanager
def passing_time(sqs: SqsService) -> Iterator[None]:
    """Let time pass quickly in our service, for polls that find nothing."""
    over = threading.Event()

    def pass_by() -> None:
        while not over.wait(0.02):
            sqs.advance(1)

    thread = threading.Thread(target=pass_by)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def process(handler: Any, callback: Any = echo, **more: Any) -> Any:
    """Run `process_one`, which must not take forever."""
    async with asyncio.timeout(20):
        return await handler.process_one(callback, **more)
