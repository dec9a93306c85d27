"""What was recorded of AWS's answers, and what once made a server fail, through the endpoint on each store."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from penstock.server.sqs import SqsEndpoint
from penstock.testing import ManualClock
from penstock.wire.http import Request, Response
from tests.support.sqs_client import Client, Refusal, respond

HOST = {"host": "localhost:9324"}
JSON = {**HOST, "content-type": "application/x-amz-json-1.0"}
FORM = {**HOST, "content-type": "application/x-www-form-urlencoded"}
ORDERS = "arn:aws:sqs:us-east-1:000000000000:orders"


async def post(
    endpoint: SqsEndpoint, operation: str, body: dict[str, Any], path: str = "/", **headers: str
) -> Response:
    """Post JSON, as an SDK does, to any path."""
    headers = {**JSON, "x-amz-target": f"AmazonSQS.{operation}", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return await respond(endpoint, Request("POST", path, "", headers, json.dumps(body).encode()))


async def get(endpoint: SqsEndpoint, path: str, query: str = "", **headers: str) -> Response:
    return await respond(endpoint, Request("GET", path, query, HOST | headers, b""))


# -- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "element"),
    [
        ("ReceiveMessage", b"<ReceiveMessageResult/>"),
        ("ListQueueTags", b"<ListQueueTagsResult/>"),
        ("GetQueueAttributes", b"<GetQueueAttributesResult/>"),
        ("ListDeadLetterSourceQueues", b"<ListDeadLetterSourceQueuesResult/>"),
    ],
)
async def test_a_result_without_content_is_an_empty_element(endpoint: SqsEndpoint, action: str, element: bytes) -> None:
    await Client(endpoint, "json").create("orders")
    answer = await get(endpoint, "/000000000000/orders", f"Action={action}")
    assert answer.status == 200
    assert element in answer.body


@pytest.mark.parametrize("accept", ["*/*", "application/json"])
@pytest.mark.parametrize("path", ["/000000000000/orders", "/000000000000/nothing-there", "/"])
async def test_a_get_that_asks_for_nothing_is_an_unknown_operation_in_xml(
    endpoint: SqsEndpoint, path: str, accept: str
) -> None:
    await Client(endpoint, "json").create("orders")
    answer = await get(endpoint, path, accept=accept)
    assert (answer.status, answer.body) == (404, b"<UnknownOperationException/>")
    assert dict(answer.headers)["content-type"] == "text/xml"


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("TagQueue", {"Tags": {"team": None}}),
        ("SetQueueAttributes", {"Attributes": {"DelaySeconds": None}}),
        ("SendMessage", {"MessageBody": "a", "MessageAttributes": {"colour": None}}),
        ("SendMessageBatch", {"Entries": [{"Id": "a", "MessageBody": "a", "MessageAttributes": {"colour": None}}]}),
    ],
)
async def test_null_inside_a_map_is_refused(endpoint: SqsEndpoint, operation: str, body: dict[str, Any]) -> None:
    await Client(endpoint, "json").create("orders")
    answer = await post(endpoint, operation, {"QueueUrl": "orders", **body})
    told = msgspec.json.decode(answer.body)
    assert (answer.status, told["__type"].partition("#")[2]) == (400, "InvalidParameterValueException")
    assert told["message"] == "the parameter 'value' may not be null"


# -- receipt handles ------------------------------------------------------------------------------


async def test_receipt_handles_are_standard_base64(client: Client) -> None:
    """Clients that put a handle into a text of their own split it at the last hyphen."""
    url = await client.create("orders")
    handles = []
    for _ in range(20):
        entries = [{"Id": str(number), "MessageBody": "a"} for number in range(10)]
        await client.call("SendMessageBatch", QueueUrl=url, Entries=entries)
        handles += [message["ReceiptHandle"] for message in await client.receive(url, MaxNumberOfMessages=10)]
    assert all(re.fullmatch("[A-Za-z0-9+/]+={0,2}", handle) for handle in handles)
    assert any("+" in handle for handle in handles)
    assert any("/" in handle for handle in handles)
    for handle in handles:
        await client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
    described = await client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
    assert described["Attributes"]["ApproximateNumberOfMessagesNotVisible"] == "0"


async def test_handles_of_an_earlier_version_stay_valid(client: Client) -> None:
    """They were in the alphabet for URLs."""
    url = await client.create("orders")
    older = ""
    for _ in range(100):
        await client.call("SendMessage", QueueUrl=url, MessageBody="a")
        [message] = await client.receive(url)
        older = message["ReceiptHandle"].replace("+", "-").replace("/", "_")
        if set("-_") <= set(older):
            break
    await client.call("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=older, VisibilityTimeout=60)
    await client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=older)
    with pytest.raises(Refusal, match="InvalidParameterValue"):
        await client.call("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=older, VisibilityTimeout=60)


# -- retries --------------------------------------------------------------------------------------


async def test_one_request_at_two_addresses_is_two_requests(endpoint: SqsEndpoint) -> None:
    """It says the same under the same id, but names its queue by the path alone."""
    client = Client(endpoint, "json")
    for name in ("one", "two"):
        await client.create(name)
    ids = []
    for name in ("one", "two", "one"):
        answer = await post(
            endpoint, "SendMessage", {"MessageBody": "a"}, f"/000000000000/{name}", amz_sdk_invocation_id="i-1"
        )
        ids.append(msgspec.json.decode(answer.body)["MessageId"])
    assert ids[0] != ids[1]
    assert ids[0] == ids[2]
    assert await client.bodies("one") == ["a"]
    assert await client.bodies("two") == ["a"]


async def test_one_request_for_two_regions_is_two_requests(endpoint: SqsEndpoint) -> None:
    for region in ("eu-west-1", "eu-west-2"):
        scope = f"AWS4-HMAC-SHA256 Credential=any/20260101/{region}/sqs/aws4_request, SignedHeaders=host, Signature=0"
        client = Client(endpoint, "json", authorization=scope)
        await client.create("orders")
        body = {"QueueUrl": "orders", "MessageBody": "a"}
        await post(endpoint, "SendMessage", body, amz_sdk_invocation_id="i-1", authorization=scope)
        assert await client.bodies("orders") == ["a"]


# -- policies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", [{}, {"Resource": "any text"}, {"Resource": ["", ORDERS]}])
async def test_a_queue_keeps_a_policy_with_any_resource_or_none(client: Client, resource: dict[str, Any]) -> None:
    policy = json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", **resource}],
        }
    )
    url = await client.create("orders", Policy=policy)
    told = await client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["Policy"])
    assert told["Attributes"]["Policy"] == policy


STATEMENT = '{"Statement":[{"Effect":"Allow","Principal":"*","Action":"sqs:SendMessage","Resource":"*"}]}'


@pytest.mark.parametrize(
    "policy",
    [
        STATEMENT.replace('"Allow"', "[]"),
        STATEMENT.replace('"Allow"', '"Allow","Effect":"Deny"'),
        STATEMENT.replace("Send", "Sned"),
        "[" * 9_000,
        '{"Statement":' * 2_000,
        '{"Statement":[],"Id":"\\ud800","Version":"\\ud800"}',
    ],
    ids=["effect", "duplicate", "unknown action", "brackets", "braces", "surrogate"],
)
async def test_a_policy_that_cannot_be_enforced_is_refused(client: Client, policy: str) -> None:
    url = await client.create("orders")
    with pytest.raises(Refusal, match="Invalid value for the parameter Policy") as refused:
        await client.call("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": policy})
    assert (refused.value.status, refused.value.code) == (400, "InvalidAttributeValue")


@pytest.mark.parametrize(
    "policy",
    [
        "[" * 9_000,
        '{"a":' * 9_000,
        '{"maxReceiveCount":"\\ud800","deadLetterTargetArn":"a"}',
        '{"maxReceiveCount":' + "9" * 5_000 + ',"deadLetterTargetArn":"a"}',
        '{"maxReceiveCount":1,"deadLetterTargetArn":"' + ORDERS + '\\u0000"}',
        '{"maxReceiveCount":1,"deadLetterTargetArn":[]}',
    ],
    ids=["brackets", "braces", "surrogate", "digits", "nul", "list"],
)
async def test_a_redrive_policy_that_makes_no_sense_is_refused(client: Client, policy: str) -> None:
    url = await client.create("orders")
    with pytest.raises(Refusal, match="for parameter RedrivePolicy is invalid") as refused:
        await client.call("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": policy})
    assert (refused.value.status, refused.value.code) == (400, "InvalidParameterValue")


# -- characters -----------------------------------------------------------------------------------

NUL = "a\0b"
TEXT = {"DataType": "String", "StringValue": "v"}


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("CreateQueue", {"QueueName": NUL}),
        ("GetQueueUrl", {"QueueName": NUL}),
        ("GetQueueUrl", {"QueueName": "orders", "QueueOwnerAWSAccountId": NUL}),
        ("DeleteQueue", {"QueueUrl": NUL}),
        ("DeleteQueue", {"QueueUrl": f"http://localhost/000000000000/{NUL}"}),
        ("DeleteQueue", {"QueueUrl": f"http://localhost/queue/{NUL}/000000000000/orders"}),
        ("SendMessage", {"QueueUrl": NUL, "MessageBody": "a"}),
        ("SendMessage", {"QueueUrl": "orders", "MessageBody": NUL}),
        ("SendMessage", {"QueueUrl": "orders", "MessageBody": "a", "MessageGroupId": NUL}),
        ("SendMessage", {"QueueUrl": "orders", "MessageBody": "a", "MessageDeduplicationId": NUL}),
        ("SendMessage", {"QueueUrl": "orders", "MessageBody": "a", "MessageAttributes": {NUL: TEXT}}),
        (
            "SendMessage",
            {
                "QueueUrl": "orders",
                "MessageBody": "a",
                "MessageAttributes": {"a": {**TEXT, "DataType": f"String.{NUL}"}},
            },
        ),
        (
            "SendMessage",
            {
                "QueueUrl": "orders",
                "MessageBody": "a",
                "MessageSystemAttributes": {"AWSTraceHeader": {**TEXT, "StringValue": NUL}},
            },
        ),
        ("ReceiveMessage", {"QueueUrl": NUL}),
        ("DeleteMessage", {"QueueUrl": "orders", "ReceiptHandle": NUL}),
        ("TagQueue", {"QueueUrl": "orders", "Tags": {NUL: "v"}}),
        ("TagQueue", {"QueueUrl": "orders", "Tags": {"k": NUL}}),
        ("SetQueueAttributes", {"QueueUrl": "orders", "Attributes": {"KmsMasterKeyId": NUL}}),
        ("SetQueueAttributes", {"QueueUrl": "orders", "Attributes": {NUL: "v"}}),
        ("AddPermission", {"QueueUrl": "orders", "Label": NUL, "AWSAccountIds": ["1" * 12], "Actions": ["*"]}),
        ("ListMessageMoveTasks", {"SourceArn": f"{ORDERS}\0"}),
        ("StartMessageMoveTask", {"SourceArn": f"{ORDERS}\0"}),
    ],
)
async def test_a_nul_is_refused_on_every_store(client: Client, operation: str, parameters: dict[str, Any]) -> None:
    await client.create("orders")
    with pytest.raises(Refusal) as refused:
        await client.call(operation, **parameters)
    assert 400 <= refused.value.status < 500


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("ListQueues", {"QueueNamePrefix": NUL}),
        ("ReceiveMessage", {"QueueUrl": "orders", "MessageAttributeNames": [NUL], "AttributeNames": ["All"]}),
        ("UntagQueue", {"QueueUrl": "orders", "TagKeys": [NUL]}),
    ],
)
async def test_a_nul_finds_nothing_on_every_store(client: Client, operation: str, parameters: dict[str, Any]) -> None:
    await client.create("orders")
    assert await client.call(operation, **parameters) == {}


async def test_a_region_with_a_nul_has_no_queues(endpoint: SqsEndpoint) -> None:
    """It is possible in a presigned URL alone, since no header can hold a NUL."""
    credential = "X-Amz-Credential=any%2F20260101%2Feu%00west%2Fsqs%2Faws4_request"
    assert b"<ListQueuesResult/>" in (await get(endpoint, "/", f"Action=ListQueues&{credential}")).body
    assert (await get(endpoint, "/", f"Action=CreateQueue&QueueName=orders&{credential}")).status == 400
    assert b"NonExistentQueue" in (await get(endpoint, "/", f"Action=GetQueueUrl&QueueName=orders&{credential}")).body


@pytest.mark.parametrize(
    "tags", [{"aws:team": "blue"}, {"AWS:team": "blue"}, {"a#b": "c"}, {"a": "b;c"}, {"a": "b\tc"}], ids=str
)
async def test_tags_are_of_the_characters_that_aws_takes(client: Client, tags: dict[str, str]) -> None:
    url = await client.create("orders")
    with pytest.raises(Refusal, match="InvalidParameterValue"):
        await client.call("TagQueue", QueueUrl=url, Tags=tags)
    await client.call("TagQueue", QueueUrl=url, Tags={"Größe / 1.2_3:=+-@": "四 5"})
    assert await client.call("ListQueueTags", QueueUrl=url) == {"Tags": {"Größe / 1.2_3:=+-@": "四 5"}}


# -- dead letters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
async def test_a_queue_may_be_its_own_dead_letter_queue(client: Client, clock: ManualClock, name: str) -> None:
    url = await client.create(name)
    arn = ORDERS.replace("orders", name)
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1}, separators=(",", ":"))
    await client.call("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": policy})
    told = await client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["RedrivePolicy"])
    assert told["Attributes"]["RedrivePolicy"] == policy
    assert await client.call("ListDeadLetterSourceQueues", QueueUrl=url) == {"queueUrls": [url]}
    in_group = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if name.endswith(".fifo") else {}
    sent = await client.call("SendMessage", QueueUrl=url, MessageBody="a", **in_group)
    for count in range(1, 4):
        [message] = await client.receive(url, AttributeNames=["All"], VisibilityTimeout=1)
        assert message["MessageId"] == sent["MessageId"]
        assert message["Attributes"]["ApproximateReceiveCount"] == str(count)
        assert message["Attributes"].get("DeadLetterQueueSourceArn") == (None if count == 1 else arn)
        await clock.advance(seconds=1)


async def test_a_queue_that_takes_no_dead_letters_takes_none_of_its_own(client: Client) -> None:
    url = await client.create("orders")
    redrive = json.dumps({"deadLetterTargetArn": ORDERS, "maxReceiveCount": 1})
    allow = json.dumps({"redrivePermission": "denyAll"})
    with pytest.raises(Refusal, match="does not allow this source queue"):
        await client.call(
            "SetQueueAttributes", QueueUrl=url, Attributes={"RedriveAllowPolicy": allow, "RedrivePolicy": redrive}
        )


async def test_dead_letters_of_such_a_queue_cannot_be_moved_back_to_it(client: Client) -> None:
    """As if it were named as the destination: the task would not come to an end."""
    url = await client.create("orders")
    redrive = json.dumps({"deadLetterTargetArn": ORDERS, "maxReceiveCount": 1})
    await client.call("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": redrive})
    for destination in ({}, {"DestinationArn": ORDERS}):
        with pytest.raises(Refusal, match="Source queue arn and destination queue arn cannot be the same"):
            await client.call("StartMessageMoveTask", SourceArn=ORDERS, **destination)
    await client.create("others")
    others = ORDERS.replace("orders", "others")
    assert await client.call("StartMessageMoveTask", SourceArn=ORDERS, DestinationArn=others)
