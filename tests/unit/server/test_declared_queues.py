"""Queues that the configuration declares."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.engine import Engine
from penstock.engine.queues import Queues
from penstock.server.config import DeclaredQueue, StartFailure
from penstock.server.declared_queues import make_declared_queues
from penstock.testing import ManualClock
from tests.support.queues import ACCOUNT, REGION, queue_name

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])


@pytest.fixture
async def queues() -> AsyncIterator[Queues]:
    async with Engine.open("memory:", clock=ManualClock(), upkeep=False) as engine:
        yield engine.queues


def declared(name: str, **more: Any) -> DeclaredQueue:
    return DeclaredQueue(**{"region": REGION, "account": ACCOUNT, "name": name, "attributes": {}, "tags": {}, **more})


ORDERS = declared(
    "orders",
    attributes={"VisibilityTimeout": "60"},
    tags={"team": "tea"},
    dead_letter_queue="dead",
    max_receive_count=3,
)


async def test_queues_are_made_with_their_redrives_in_whatever_order(queues: Queues) -> None:
    await make_declared_queues(queues, [ORDERS, declared("dead")])
    described = await queues.describe(queue_name("orders"))
    assert described["VisibilityTimeout"] == "60"
    assert json.loads(described["RedrivePolicy"]) == {
        "deadLetterTargetArn": queue_name("dead").arn,
        "maxReceiveCount": 3,
    }
    assert (await queues.find(queue_name("orders"))).tags == {"team": "tea"}


async def test_queues_that_are_as_declared_are_left_alone(queues: Queues) -> None:
    await make_declared_queues(queues, [ORDERS, declared("dead")])
    before = await queues.find(queue_name("orders"))
    await make_declared_queues(queues, [ORDERS, declared("dead")])
    assert await queues.find(queue_name("orders")) == before


async def test_queues_that_exist_are_brought_up_to_what_is_declared_and_keep_the_rest(queues: Queues) -> None:
    await queues.create(queue_name("orders"), {"VisibilityTimeout": "10", "DelaySeconds": "5"}, {"old": "tag"})
    await make_declared_queues(queues, [ORDERS, declared("dead")])
    described = await queues.describe(queue_name("orders"))
    assert (described["VisibilityTimeout"], described["DelaySeconds"]) == ("60", "5")
    assert (await queues.find(queue_name("orders"))).tags == {"old": "tag", "team": "tea"}


@pytest.mark.parametrize(
    ("queue", "told"),
    [
        (declared("or ders"), "The queue or ders cannot be made"),
        (declared("orders", attributes={"Colour": "red"}), "Unknown Attribute Colour."),
        (declared("orders", dead_letter_queue="absent", max_receive_count=3), "Dead letter target does not exist."),
        (declared("orders", dead_letter_queue="orders", max_receive_count=0), "maxReceiveCount"),
    ],
)
async def test_a_queue_that_cannot_be_made_is_named(queues: Queues, queue: DeclaredQueue, told: str) -> None:
    with pytest.raises(StartFailure) as failure:
        await make_declared_queues(queues, [queue])
    assert told in str(failure.value)
