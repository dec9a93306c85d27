"""Policies of queues: whom else they let in, and whom they keep out."""

from __future__ import annotations

import pytest

from penstock.domain.errors import InvalidAttributeValue
from penstock.store.port import Store
from tests.support.signing import REGION
from tests.unit.server.sqs.access.conftest import OTHER, OWN, As
from tests.unit.server.sqs.conftest import Refusal


async def test_a_permission_lets_another_account_in_until_it_is_removed(as_: As) -> None:
    url = await as_("ann").create("orders")
    send = {"QueueUrl": url, "MessageBody": "from bob"}
    refused = await as_("bob").refusal("SendMessage", **send)
    assert refused.message.endswith("because no resource-based policy allows the sqs:sendmessage action")
    await as_("ann").call(
        "AddPermission", QueueUrl=url, Label="share", AWSAccountIds=[OTHER], Actions=["SendMessage", "GetQueueUrl"]
    )
    await as_("bob").call("SendMessage", **send)
    found = await as_("bob").call("GetQueueUrl", QueueName="orders", QueueOwnerAWSAccountId=OWN)
    assert found["QueueUrl"] == url
    assert (await as_("bob").refusal("ReceiveMessage", QueueUrl=url)).code == "AccessDenied"
    assert (await as_("bobs").refusal("SendMessage", **send)).code == "AccessDenied"
    await as_("ann").call("RemovePermission", QueueUrl=url, Label="share")
    assert (await as_("bob").refusal("SendMessage", **send)).code == "AccessDenied"
    assert await as_("ann").bodies(url) == ["from bob"]


async def test_what_concerns_the_queue_itself_is_its_accounts_alone(as_: As) -> None:
    url = await as_("ann").create("orders")
    await as_("ann").allow(url, "*")
    for operation in ("DeleteQueue", "ListQueueTags"):
        assert (await as_("bob").refusal(operation, QueueUrl=url)).code == "AccessDenied"
    grab = {"Policy": ""}
    assert (await as_("bob").refusal("SetQueueAttributes", QueueUrl=url, Attributes=grab)).code == "AccessDenied"
    await as_("bob").call("PurgeQueue", QueueUrl=url)


async def test_a_queue_for_everybody_takes_requests_that_nobody_signed(as_: As) -> None:
    url = await as_("ann").create("orders")
    await as_("ann").allow(url, "*", "sqs:SendMessage")
    await as_(None).call("SendMessage", QueueUrl=url, MessageBody="a")
    assert (await as_(None).refusal("ReceiveMessage", QueueUrl=url)).code == "MissingAuthenticationToken"
    [message] = await as_("ann").receive(url, AttributeNames=["SenderId"])
    assert message["Attributes"]["SenderId"] == "anonymous"


async def test_a_queues_policy_may_deny_its_own_account(as_: As) -> None:
    url = await as_("ann").create("orders")
    await as_("ann").allow(url, "*", "sqs:SendMessage", Effect="Deny")
    refused = await as_("ann").refusal("SendMessage", QueueUrl=url, MessageBody="a")
    assert refused.message.endswith("with an explicit deny in a resource-based policy")


async def test_conditions_of_a_queues_policy_hold(as_: As) -> None:
    url = await as_("ann").create("orders")
    await as_("ann").allow(url, "*", Condition={"StringEquals": {"aws:PrincipalAccount": OTHER}})
    await as_("bob").call("SendMessage", QueueUrl=url, MessageBody="a")
    assert (await as_(None).refusal("SendMessage", QueueUrl=url, MessageBody="a")).code == "MissingAuthenticationToken"
    await as_("ann").allow(url, "*", Condition={"Bool": {"aws:SecureTransport": "true"}})
    assert (await as_("bob").refusal("SendMessage", QueueUrl=url, MessageBody="a")).code == "AccessDenied"


async def test_a_policy_that_would_not_be_enforced_cannot_be_set(as_: As) -> None:
    url = await as_("ann").create("orders")
    with pytest.raises(Refusal) as refused:
        await as_("ann").allow(url, "*", Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}})
    assert refused.value.code == InvalidAttributeValue.__name__
    assert "'IpAddress' is not supported" in refused.value.message


async def test_a_policy_from_before_it_was_checked_lets_nobody_in_until_it_is_replaced(as_: As, store: Store) -> None:
    url = await as_("ann").create("orders")
    await as_("ann").call("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": ""})
    [queue] = await store.list_queues(REGION, OWN, limit=1)
    fields = {name: getattr(queue.attributes, name) for name in queue.attributes.__struct_fields__}
    await store.save_queue(queue, attributes=type(queue.attributes)(**{**fields, "policy": '{"Statement":["?"]}'}))
    refused = await as_("ann").refusal("SendMessage", QueueUrl=url, MessageBody="a")
    assert "cannot be enforced" in refused.message
    await as_("ann").call("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": ""})
    await as_("ann").call("SendMessage", QueueUrl=url, MessageBody="a")
