"""The same consumer on a client of aiobotocore."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Message, SqsConsumer
from penstock.client.errors import ConsumerInvalid, QueueUnusable
from penstock.testing import ManualClock
from tests.sqs_consumers.consuming import consuming
from tests.support.sqs_services import SqsService, aio_client, until


async def test_messages_are_run_and_deleted_and_failures_come_back(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, *map(str, range(5)))

    async def handle(message: Message) -> None:
        if message.body == "3" and message.receive_count == 1:
            raise ValueError("no")

    async with (
        aio_client(sqs) as client,
        consuming(sqs, url, handle, client=client, backoff=0, max_backoff=0) as running,
    ):
        await until(lambda: running.consumer.counters.deleted == 5)
    assert running.consumer.counters.failed == 1
    assert sqs.counts(url) == (0, 0)


async def test_heartbeats_hold_what_outlasts_its_visibility(ours: SqsService) -> None:
    url = ours.create("orders.fifo")
    ours.send(url, "1", "2")
    go = asyncio.Event()

    async def handle(message: Message) -> None:
        await go.wait()

    clock = ManualClock()
    async with (
        aio_client(ours) as client,
        consuming(ours, url, handle, client=client, visibility=30, clock=clock) as running,
    ):
        await until(lambda: running.consumer.counters.started)
        for beats in (2, 4):
            ours.advance(20)
            await clock.advance(seconds=20)
            await until(lambda: running.consumer.counters.extended == beats)  # noqa: B023 - awaited at once
        go.set()
        await until(lambda: running.consumer.counters.deleted == 2)
        running.stop.set()


async def test_cancelling_releases_at_once(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, *"ab")

    async def handle(message: Message) -> None:
        await asyncio.Event().wait()

    async with aio_client(sqs) as client:
        consumer = SqsConsumer(client, url, handle, wait=0, visibility=900)
        running = asyncio.create_task(consumer.run())
        await until(lambda: consumer.counters.started == 2)
        running.cancel()
        await asyncio.wait([running])
    assert sqs.counts(url) == (2, 0)


async def test_what_cannot_work_is_refused(sqs: SqsService) -> None:
    async with aio_client(sqs) as client:
        consumer = SqsConsumer(client, f"{sqs.url}/123456789012/nowhere", lambda message: None)
        with pytest.raises(QueueUnusable):
            await consumer.run()
        with pytest.raises(ConsumerInvalid, match="boto3"):
            await asyncio.to_thread(consumer.run_sync)
