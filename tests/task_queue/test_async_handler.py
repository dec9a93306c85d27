"""AsyncTaskQueueHandler does what TaskQueueHandler does, on aiobotocore."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from penstock import AsyncTaskQueueHandler, TaskQueueHandler
from penstock.client.errors import ConsumerInvalid
from tests.support.sqs_services import REGION, SqsService, aio_client, until
from tests.task_queue.handling import echo, fail, process

TASKS = [{"name": f"t{number}"} for number in range(12)]


@contextlib.asynccontextmanager
async def handling(sqs: SqsService, *urls: str) -> AsyncIterator[AsyncTaskQueueHandler]:
    async with aio_client(sqs) as client:
        yield AsyncTaskQueueHandler(client, *urls)


async def test_tasks_go_in_and_come_out(sqs: SqsService) -> None:
    url, dead = sqs.create("tasks.fifo"), sqs.create("dead.fifo")
    async with handling(sqs, url, dead) as handler:
        for _ in range(2):
            enqueued = await handler.enqueue_tasks("doc", TASKS, {"x": 1})
            assert (enqueued, enqueued.failed) == (12, ())
        assert sum((await handler.get_queue_status()).values()) == 12
        told = await process(handler, echo, extra=1)
        assert (told["status"], told["result"]["extra"]) == ("completed", 1)
        assert (await process(handler, fail))["status"] == "failed"
        sqs.send(dead, "not json")
        assert [letter["task_name"] for letter in await handler.get_dlq_messages()] == [None]


async def test_a_loop_and_redrive(ours: SqsService) -> None:
    url, dead = ours.create_with_dlq("tasks.fifo", 1)
    async with handling(ours, url, dead) as handler:
        handler.wait_time = 0
        await handler.enqueue_tasks("doc", TASKS[:2], {})
        stop = asyncio.Event()
        running = asyncio.create_task(handler.run(fail, concurrency=2, stop=stop))
        await until(lambda: handler.counters.failed == 2)
        ours.advance(10)
        await until(lambda: sum(ours.counts(dead)) == 2)
        stop.set()
        await running
        assert len(await handler.get_dlq_messages(100)) == 2
        assert await handler.redrive()
        await until(lambda: sum(ours.counts(url)) == 2)


async def test_each_handler_takes_its_kind_of_client(sqlite_sqs: SqsService) -> None:
    url = sqlite_sqs.create("tasks.fifo")
    with pytest.raises(ConsumerInvalid, match="use TaskQueueHandler"):
        AsyncTaskQueueHandler(sqlite_sqs.client, url)
    async with handling(sqlite_sqs, url) as handler:
        with pytest.raises(ConsumerInvalid, match="use AsyncTaskQueueHandler"):
            TaskQueueHandler(handler.sqs_client, url)
        assert await handler.get_dlq_messages() == []


async def test_a_queue_that_is_missing_is_an_error_that_says_so(sqs: SqsService) -> None:
    async with handling(sqs, f"{sqs.url}/123456789012/none.fifo") as handler:
        with pytest.raises(ClientError) as raised:
            await handler.enqueue_tasks("doc", TASKS, {})
    assert "There is no queue" in raised.value.__notes__[0]


async def test_the_environment_names_the_queues(sqlite_sqs: SqsService, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {
        "AWS_DEFAULT_REGION": REGION,
        "SQS_TASK_QUEUE_URL": sqlite_sqs.create("tasks.fifo"),
        "SQS_DLQ_URL": sqlite_sqs.create("dead.fifo"),
        "AWS_ENDPOINT_URL": sqlite_sqs.url,
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    async with AsyncTaskQueueHandler.from_env() as handler:
        assert await handler.enqueue_tasks("doc", TASKS, {}) == 12
        assert await handler.get_dlq_messages() == []
