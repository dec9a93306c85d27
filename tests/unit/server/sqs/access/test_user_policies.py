"""Policies of users: what the holder of a key may do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.domain.limits import Limits
from penstock.engine.engine import Engine
from penstock.server import access
from penstock.server.access import Access
from penstock.server.sqs import SqsEndpoint
from penstock.testing import ManualClock
from penstock.wire.sqs.operations import OPERATIONS
from tests.support.signing import REGION, signed
from tests.support.sqs_model import write_request
from tests.unit.server.sqs.access.conftest import KEYS, ORDERS, OTHER, OWN, As, Signing, key


async def test_a_user_does_what_their_policy_allows_and_nothing_else(as_: As) -> None:
    tasks = await as_("ann").create("tasks.fifo", ContentBasedDeduplication="true")
    orders = await as_("ann").create("orders")
    worker = as_("worker")
    entries = [{"Id": "1", "MessageBody": "b", "MessageGroupId": "g"}]
    await worker.call("SendMessage", QueueUrl=tasks, MessageBody="a", MessageGroupId="g")
    assert "Successful" in await worker.call("SendMessageBatch", QueueUrl=tasks, Entries=entries)
    [one, two] = await worker.receive(tasks, MaxNumberOfMessages=10)
    await worker.call("DeleteMessage", QueueUrl=tasks, ReceiptHandle=one["ReceiptHandle"])
    await worker.call(
        "DeleteMessageBatch", QueueUrl=tasks, Entries=[{"Id": "1", "ReceiptHandle": two["ReceiptHandle"]}]
    )
    refused_calls: list[tuple[str, dict[str, Any]]] = [
        ("SendMessage", {"QueueUrl": orders, "MessageBody": "a"}),
        ("SendMessageBatch", {"QueueUrl": orders, "Entries": entries}),
        ("DeleteQueue", {"QueueUrl": tasks}),
        ("PurgeQueue", {"QueueUrl": tasks}),
        ("CreateQueue", {"QueueName": "tasks-2.fifo", "Attributes": {"FifoQueue": "true"}}),
        ("ListQueues", {}),
        ("GetQueueUrl", {"QueueName": "tasks.fifo"}),
    ]
    for operation, parameters in refused_calls:
        refused = await worker.refusal(operation, **parameters)
        assert (refused.code, refused.status) == ("AccessDenied", 403), operation


async def test_a_denial_says_who_may_not_do_what_where_and_why(as_: As) -> None:
    url = await as_("ann").create("orders")
    refused = await as_("worker").refusal("SendMessageBatch", QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "b"}])
    assert refused.message == (
        f"User: arn:aws:iam::{OWN}:user/worker is not authorized to perform: sqs:sendmessage on resource: {ORDERS} "
        "because no identity-based policy allows the sqs:sendmessage action"
    )


SAMPLES: dict[str, dict[str, Any]] = {
    "AddPermission": {"Label": "l", "AWSAccountIds": [OTHER], "Actions": ["SendMessage"]},
    "CancelMessageMoveTask": {"TaskHandle": "eyJ0YXNrSWQiOiIxIiwic291cmNlQXJuIjoiYXJuOmF3czpzcXM6ZXU6MTptb3ZlcyJ9"},
    "ChangeMessageVisibility": {"ReceiptHandle": "r", "VisibilityTimeout": 1},
    "CreateQueue": {"QueueName": "new"},
    "DeleteMessage": {"ReceiptHandle": "r"},
    "GetQueueUrl": {"QueueName": "orders"},
    "ListMessageMoveTasks": {"SourceArn": ORDERS},
    "RemovePermission": {"Label": "l"},
    "SendMessage": {"MessageBody": "a"},
    "SetQueueAttributes": {"Attributes": {"DelaySeconds": "1"}},
    "StartMessageMoveTask": {"SourceArn": ORDERS},
    "TagQueue": {"Tags": {"a": "b"}},
    "UntagQueue": {"TagKeys": ["a"]},
}


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
@pytest.mark.parametrize("user", ["nobody", "bob", None])
async def test_no_operation_is_open_to_those_who_may_nothing(as_: As, operation: str, user: str | None) -> None:
    url = await as_("ann").create("orders")
    given = dict(SAMPLES.get(operation, {}))
    if "queue_url" in OPERATIONS[operation].request.__struct_fields__:
        given["QueueUrl"] = url
    if operation == "GetQueueUrl":
        given["QueueOwnerAWSAccountId"] = OWN
    if operation in {"CreateQueue", "ListQueues"} and user == "bob":
        return  # These are about the caller's own account.
    refused = await as_(user).refusal(operation, **given)
    assert refused.code == ("AccessDenied" if user else "MissingAuthenticationToken")


async def test_a_queue_that_does_not_exist_is_told_from_one_only_to_those_who_may_know(as_: As) -> None:
    refused = await as_("ann").refusal("SendMessage", QueueUrl="absent", MessageBody="a")
    assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"
    url = (await as_("ann").create("orders")).replace("orders", "absent")
    for user in ("worker", "bob"):
        assert (await as_(user).refusal("SendMessage", QueueUrl=url, MessageBody="a")).code == "AccessDenied"


async def test_a_retry_is_answered_after_its_queue_is_gone(endpoint: SqsEndpoint, as_: As, clock: ManualClock) -> None:
    url = await as_("ann").create("orders")
    request = write_request("json", "SendMessage", {"QueueUrl": url, "MessageBody": "a"}, amz_sdk_invocation_id="i-1")
    ann = KEYS["ann"]
    first = await endpoint.answer(signed(request, ann.id, ann.secret, at_ms=clock.now_ms()))
    await as_("ann").call("DeleteQueue", QueueUrl=url)
    again = await endpoint.answer(signed(request, ann.id, ann.secret, at_ms=clock.now_ms() + 1_000))
    assert (again.status, again.body) == (200, first.body)


async def test_to_move_messages_takes_the_right_to_receive_them_here_and_send_them_there(
    engine: Engine, clock: ManualClock, limits: Limits
) -> None:
    mover = key(
        "mover",
        OWN,
        {"Effect": "Allow", "Action": ["sqs:*MessageMoveTask*", "sqs:ReceiveMessage"], "Resource": "*"},
        {
            "Effect": "Allow",
            "Action": ["sqs:DeleteMessage", "sqs:GetQueueAttributes"],
            "Resource": "arn:aws:sqs:*:*:dead",
        },
        {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "arn:aws:sqs:*:*:there"},
    )
    guard = Access([KEYS["ann"], mover], engine.queues, clock, region=REGION, secure_transport=False)
    endpoint = SqsEndpoint(engine, region=REGION, access=guard)
    ann = Signing(endpoint, "json", clock, "ann")
    base = f"arn:aws:sqs:{REGION}:{OWN}:"
    await ann.create("dead")
    await ann.create("there")
    redrive = json.dumps({"deadLetterTargetArn": f"{base}dead", "maxReceiveCount": 1})
    await ann.create("origin", RedrivePolicy=redrive)

    async def start(**parameters: str) -> str:
        request = write_request("json", "StartMessageMoveTask", {"SourceArn": f"{base}dead", **parameters})
        response = await endpoint.answer(signed(request, mover.id, mover.secret, at_ms=clock.now_ms()))
        return response.body.decode() if response.status != 200 else ""

    assert f"sqs:sendmessage on resource: {base}origin" in await start()
    assert f"sqs:sendmessage on resource: {base}origin" in await start(DestinationArn=f"{base}origin")
    assert f"sqs:deletemessage on resource: {base}origin" in await start(SourceArn=f"{base}origin")
    assert await start(DestinationArn=f"{base}there") == ""


async def test_what_was_allowed_before_is_judged_again_once_the_queue_has_a_policy(as_: As) -> None:
    url = await as_("ann").create("orders")
    for _ in range(2):
        await as_("ann").call("SendMessage", QueueUrl=url, MessageBody="a")
    await as_("ann").allow(url, "*", "sqs:SendMessage", Effect="Deny")
    assert (await as_("ann").refusal("SendMessage", QueueUrl=url, MessageBody="a")).code == "AccessDenied"
    await as_("ann").call("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": ""})
    await as_("ann").call("SendMessage", QueueUrl=url, MessageBody="a")
    assert (await as_("worker").refusal("SendMessage", QueueUrl=url, MessageBody="a")).code == "AccessDenied"


async def test_little_is_remembered(as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "ALLOWED_REMEMBERED_MAX", 2)
    urls = [await as_("ann").create(f"q{number}") for number in range(5)]
    for url in urls * 2:
        await as_("ann").call("SendMessage", QueueUrl=url, MessageBody="a")
