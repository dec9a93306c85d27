"""Queues through the engine: creation, attributes, tags, pages, dead-letter permissions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from penstock.domain.errors import (
    InvalidAttributeName,
    InvalidAttributeValue,
    InvalidParameter,
    QueueDoesNotExist,
    QueueNameExists,
)
from penstock.domain.queue import QueueName
from penstock.domain.sending import Outgoing
from penstock.engine.messages import Messages
from penstock.engine.queues import Queues
from penstock.testing import ManualClock
from penstock.wire.sqs.permissions import add_permission
from tests.support.queues import ACCOUNT, REGION, queue_name

ORDERS = queue_name("orders")
DEAD = queue_name("dead")


def redrive(target: QueueName = DEAD) -> dict[str, str]:
    return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": target.arn, "maxReceiveCount": 3})}


async def test_creating_a_queue_again_returns_it_when_what_is_given_agrees(queues: Queues) -> None:
    queue = await queues.create(ORDERS, {"VisibilityTimeout": "5", "DelaySeconds": "1"}, {"team": "red"})
    assert await queues.create(ORDERS, {"VisibilityTimeout": "5"}) == queue
    assert await queues.create(ORDERS) == queue
    for differing in ({"VisibilityTimeout": "6"}, {"KmsDataKeyReusePeriodSeconds": "60"}):
        with pytest.raises(QueueNameExists, match=f"a different value for attribute {min(differing)}$"):
            await queues.create(ORDERS, differing)


@pytest.mark.parametrize(
    ("text", "given", "error"),
    [
        ("bad name", {}, InvalidParameter),
        ("orders", {"FifoQueue": "true"}, InvalidParameter),
        ("orders.fifo", {"FifoQueue": "false"}, InvalidAttributeValue),
        ("orders", {"Nonsense": "1"}, InvalidAttributeName),
        ("orders", {"DelaySeconds": "901"}, InvalidAttributeValue),
        ("orders", redrive(), InvalidParameter),
    ],
)
async def test_a_queue_that_cannot_be_is_not_created(
    queues: Queues, text: str, given: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await queues.create(queue_name(text), given)
    with pytest.raises(QueueDoesNotExist):
        await queues.find(queue_name(text))


async def test_a_queue_is_described_with_its_counts_and_times(
    queues: Queues, messages: Messages, clock: ManualClock
) -> None:
    await queues.create(ORDERS)
    created_at_s = clock.now_ms() // 1000
    for delay_s in (0, 0, 0, 10):
        await messages.send(ORDERS, Outgoing(body="x", delay_s=delay_s))
    await messages.receive(ORDERS)
    await clock.advance(seconds=2)
    await queues.set_attributes(ORDERS, {"DelaySeconds": "1"})
    described = await queues.describe(ORDERS)
    assert described["QueueArn"] == ORDERS.arn
    assert described["ApproximateNumberOfMessages"] == "2"
    assert described["ApproximateNumberOfMessagesNotVisible"] == "1"
    assert described["ApproximateNumberOfMessagesDelayed"] == "1"
    assert described["CreatedTimestamp"] == str(created_at_s)
    assert described["LastModifiedTimestamp"] == str(created_at_s + 2)
    assert await queues.describe(ORDERS, ["DelaySeconds", "QueueArn"]) == {
        "DelaySeconds": "1",
        "QueueArn": ORDERS.arn,
    }
    with pytest.raises(InvalidAttributeName):
        await queues.describe(ORDERS, ["Nonsense"])


async def test_attributes_change_together_or_not_at_all(queues: Queues) -> None:
    await queues.create(ORDERS)
    with pytest.raises(InvalidAttributeValue):
        await queues.set_attributes(ORDERS, {"DelaySeconds": "1", "VisibilityTimeout": "x"})
    assert (await queues.find(ORDERS)).attributes.delay_s == 0


async def test_changes_at_the_same_time_are_all_kept(queues: Queues) -> None:
    await queues.create(ORDERS)
    await asyncio.gather(
        queues.set_attributes(ORDERS, {"DelaySeconds": "1"}),
        queues.set_attributes(ORDERS, {"VisibilityTimeout": "2"}),
        *(queues.tag(ORDERS, {f"t{number}": "v"}) for number in range(5)),
    )
    queue = await queues.find(ORDERS)
    assert (queue.attributes.delay_s, queue.attributes.visibility_timeout_s) == (1, 2)
    assert set(queue.tags) == {f"t{number}" for number in range(5)}


async def test_statements_added_to_a_policy_at_the_same_time_are_all_kept(queues: Queues) -> None:
    await queues.create(ORDERS)
    partners = [f"{number:012}" for number in range(1, 6)]

    def let_in(partner: str) -> Callable[[str], str]:
        return lambda policy: add_permission(policy, ORDERS, label=partner, accounts=[partner], actions=["SendMessage"])

    await asyncio.gather(*(queues.edit_policy(ORDERS, let_in(partner)) for partner in partners))
    policy = json.loads((await queues.find(ORDERS)).attributes.policy)
    assert sorted(statement["Sid"] for statement in policy["Statement"]) == partners


async def test_tags_are_added_replaced_and_removed(queues: Queues) -> None:
    await queues.create(ORDERS, tags={"a": "1", "b": "2"})
    assert (await queues.tag(ORDERS, {"b": "3", "c": ""})).tags == {"a": "1", "b": "3", "c": ""}
    assert (await queues.untag(ORDERS, ["a", "unknown"])).tags == {"b": "3", "c": ""}


@pytest.mark.parametrize("tags", [{"": "x"}, {"k" * 129: "x"}, {"k": "v" * 257}, {str(i): "" for i in range(51)}])
async def test_tags_have_limits(queues: Queues, tags: dict[str, str]) -> None:
    await queues.create(ORDERS)
    with pytest.raises(InvalidParameter):
        await queues.tag(ORDERS, tags)


async def test_tags_added_at_once_stay_within_the_limit_together(queues: Queues) -> None:
    await queues.create(ORDERS)
    outcomes = await asyncio.gather(
        *(queues.tag(ORDERS, {f"{which}{number}": "" for number in range(30)}) for which in "ab"),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes].count(InvalidParameter) == 1
    assert len((await queues.find(ORDERS)).tags) == 30


async def test_queues_are_listed_in_pages(queues: Queues) -> None:
    for text in ("b", "a", "c", "other"):
        await queues.create(queue_name(text))
    await queues.create(queue_name("a", account="111111111111"))
    first = await queues.list_queues(REGION, ACCOUNT, limit=2)
    assert ([queue.name.name for queue in first.queues], first.after) == (["a", "b"], "b")
    rest = await queues.list_queues(REGION, ACCOUNT, after="b", limit=2)
    assert ([queue.name.name for queue in rest.queues], rest.after) == (["c", "other"], None)
    named = await queues.list_queues(REGION, ACCOUNT, prefix="o")
    assert [queue.name.name for queue in named.queues] == ["other"]
    with pytest.raises(InvalidParameter):
        await queues.list_queues(REGION, ACCOUNT, limit=1_001)


async def test_dead_letter_sources_are_listed_in_pages(queues: Queues) -> None:
    await queues.create(DEAD)
    for text in ("b", "a", "c"):
        await queues.create(queue_name(text), redrive())
    first = await queues.dead_letter_sources(DEAD, limit=2)
    assert ([queue.name.name for queue in first.queues], first.after) == (["a", "b"], "b")
    assert [queue.name.name for queue in (await queues.dead_letter_sources(DEAD, after="b")).queues] == ["c"]


async def test_a_dead_letter_queue_says_whose_dead_letters_it_takes(queues: Queues) -> None:
    policy = {"redrivePermission": "byQueue", "sourceQueueArns": [ORDERS.arn]}
    await queues.create(DEAD, {"RedriveAllowPolicy": json.dumps(policy)})
    await queues.create(ORDERS, redrive())
    with pytest.raises(InvalidParameter):
        await queues.create(queue_name("uninvited"), redrive())
    await queues.set_attributes(DEAD, {"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'})
    with pytest.raises(InvalidParameter):
        await queues.set_attributes(ORDERS, redrive())
    await queues.set_attributes(ORDERS, {"RedrivePolicy": ""})
    assert (await queues.dead_letter_sources(DEAD)).queues == []


async def test_a_dead_letter_queue_that_is_gone_does_not_keep_the_rest_from_changing(queues: Queues) -> None:
    await queues.create(DEAD)
    await queues.create(ORDERS, redrive())
    await queues.delete(DEAD)
    assert (await queues.set_attributes(ORDERS, {"DelaySeconds": "1"})).attributes.delay_s == 1
    with pytest.raises(InvalidParameter):
        await queues.set_attributes(ORDERS, redrive())
