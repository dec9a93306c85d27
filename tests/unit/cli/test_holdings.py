"""What a server counts when it starts."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.cli import holdings
from penstock.cli.holdings import Holdings, count_holdings
from penstock.domain.job_request import JobRequest
from penstock.domain.queue import QueueName
from penstock.domain.sending import Outgoing
from penstock.engine.engine import Engine


def name(queue: str) -> QueueName:
    return QueueName("us-east-1", "000000000000", queue)


async def test_queues_waiting_work_and_dead_letters_are_counted() -> None:
    async with Engine.open("memory:", upkeep=False) as engine:
        assert await count_holdings(engine) == Holdings()
        dead, orders = name("orders-dead"), name("orders")
        await engine.queues.create(dead, {}, {})
        redrive = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 5})
        await engine.queues.create(orders, {"RedrivePolicy": redrive}, {})
        for _ in range(3):
            await engine.jobs.enqueueing.enqueue("mail", JobRequest(task="greet"))
        for queue in (orders, orders, dead):
            await engine.messages.send(queue, Outgoing(body="tea"))
        assert await count_holdings(engine) == Holdings(sqs_queues=2, job_queues=1, waiting=5, dead=1)


async def test_a_start_does_not_wait_for_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "COUNT_S_MAX", 0.0)
    async with Engine.open("memory:", upkeep=False) as engine:
        assert await asyncio.wait_for(count_holdings(engine), 10) is None


async def test_very_many_queues_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "QUEUES_MAX", 1)
    async with Engine.open("memory:", upkeep=False) as engine:
        for queue in ("a", "b"):
            await engine.queues.create(name(queue), {}, {})
        assert await count_holdings(engine) is None
