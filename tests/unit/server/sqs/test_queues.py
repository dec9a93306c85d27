from __future__ import annotations

from typing import Any

import pytest

from penstock.server.sqs import SqsEndpoint
from penstock.testing import ManualClock
from tests.unit.server.sqs.conftest import Client, Refusal

ARN = "arn:aws:sqs:us-east-1:000000000000:"


async def refusal(client: Client, operation: str, /, **parameters: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await client.call(operation, **parameters)
    return refused.value


async def test_a_queue_is_created_found_and_deleted(client: Client) -> None:
    url = await client.create("orders")
    assert url == "http://localhost:9324/000000000000/orders"
    assert await client.call("GetQueueUrl", QueueName="orders") == {"QueueUrl": url}
    assert await client.call("DeleteQueue", QueueUrl=url) == {}
    assert (await refusal(client, "GetQueueUrl", QueueName="orders")).code == "AWS.SimpleQueueService.NonExistentQueue"


async def test_creating_a_queue_again_is_harmless_unless_it_should_be_another(client: Client) -> None:
    url = await client.create("orders", DelaySeconds="5")
    assert await client.create("orders", DelaySeconds="5") == url
    assert await client.create("orders") == url
    error = await refusal(client, "CreateQueue", QueueName="orders", Attributes={"DelaySeconds": "6"})
    assert (error.status, error.code) == (400, "QueueAlreadyExists")
    assert error.message == "A queue already exists with the same name and a different value for attribute DelaySeconds"


async def test_a_name_is_free_again_a_minute_after_its_queue_was_deleted(client: Client, clock: ManualClock) -> None:
    await client.call("DeleteQueue", QueueUrl=await client.create("orders"))
    error = await refusal(client, "CreateQueue", QueueName="orders")
    assert error.code == "AWS.SimpleQueueService.QueueDeletedRecently"
    await clock.advance(seconds=60)
    await client.create("orders")


@pytest.mark.parametrize(
    ("name", "attributes", "code"),
    [
        ("no spaces", {}, "InvalidParameterValue"),
        ("", {}, "InvalidParameterValue"),
        ("x" * 81, {}, "InvalidParameterValue"),
        ("orders.fifo", {}, "InvalidParameterValue"),
        ("orders", {"FifoQueue": "true"}, "InvalidParameterValue"),
        ("orders", {"FifoQueue": "false"}, "InvalidAttributeName"),
        ("orders.fifo", {"FifoQueue": "false"}, "InvalidAttributeValue"),
        ("orders", {"ContentBasedDeduplication": "true"}, "InvalidAttributeName"),
        ("orders", {"VisibilityTimeout": "43201"}, "InvalidAttributeValue"),
        ("orders", {"Wings": "2"}, "InvalidAttributeName"),
    ],
)
async def test_queues_that_cannot_be_are_refused(
    client: Client, name: str, attributes: dict[str, str], code: str
) -> None:
    assert (await refusal(client, "CreateQueue", QueueName=name, Attributes=attributes)).code == code
    assert await client.call("ListQueues") == {}


async def test_attributes_are_set_and_told(client: Client, clock: ManualClock) -> None:
    url = await client.create("orders")
    created = str(clock.now_ms() // 1000)
    assert await client.call("GetQueueAttributes", QueueUrl=url) == {}
    told = (await client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"]))["Attributes"]
    assert told == {
        "QueueArn": f"{ARN}orders",
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "CreatedTimestamp": created,
        "LastModifiedTimestamp": created,
        "VisibilityTimeout": "30",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
    }
    assert await client.call("SetQueueAttributes", QueueUrl=url, Attributes={"KmsMasterKeyId": "alias/k"}) == {}
    told = await client.call(
        "GetQueueAttributes", QueueUrl=url, AttributeNames=["KmsMasterKeyId", "SqsManagedSseEnabled"]
    )
    assert told == {"Attributes": {"KmsMasterKeyId": "alias/k", "SqsManagedSseEnabled": "false"}}
    assert (await refusal(client, "GetQueueAttributes", QueueUrl=url, AttributeNames=["Wings"])).code == (
        "InvalidAttributeName"
    )


@pytest.mark.parametrize(
    ("name", "given", "code", "message"),
    [
        ("orders", {"FifoQueue": "true"}, "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        (
            "orders.fifo",
            {"FifoQueue": "false"},
            "InvalidAttributeValue",
            "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
        ),
    ],
)
async def test_what_kind_a_queue_is_cannot_be_changed(
    client: Client, name: str, given: dict[str, str], code: str, message: str
) -> None:
    error = await refusal(client, "SetQueueAttributes", QueueUrl=await client.create(name), Attributes=given)
    assert (error.code, error.message) == (code, message)


async def test_queues_are_listed_page_by_page(client: Client) -> None:
    urls = [await client.create(f"q{number}") for number in range(5)]
    await client.create("other")
    assert await client.call("ListQueues", QueueNamePrefix="q") == {"QueueUrls": urls}
    seen: list[str] = []
    page = await client.call("ListQueues", QueueNamePrefix="q", MaxResults=2)
    while True:
        seen += page["QueueUrls"]
        if "NextToken" not in page:
            break
        page = await client.call("ListQueues", QueueNamePrefix="q", MaxResults=2, NextToken=page["NextToken"])
    assert seen == urls
    assert await client.call("ListQueues", QueueNamePrefix="nothing") == {}


@pytest.mark.parametrize("given", [{"MaxResults": 0}, {"MaxResults": 1001}, {"NextToken": "*"}, {"NextToken": "/w=="}])
async def test_pages_that_cannot_be_are_refused(client: Client, given: dict[str, Any]) -> None:
    assert (await refusal(client, "ListQueues", **given)).code == "InvalidParameterValue"


async def test_the_queues_behind_a_dead_letter_queue_are_listed(client: Client) -> None:
    dead = await client.create("dead")
    assert await client.call("ListDeadLetterSourceQueues", QueueUrl=dead) == {}
    policy = f'{{"deadLetterTargetArn":"{ARN}dead","maxReceiveCount":3}}'
    urls = [await client.create(f"q{number}", RedrivePolicy=policy) for number in range(3)]
    page = await client.call("ListDeadLetterSourceQueues", QueueUrl=dead, MaxResults=2)
    assert page["queueUrls"] == urls[:2]
    page = await client.call("ListDeadLetterSourceQueues", QueueUrl=dead, MaxResults=2, NextToken=page["NextToken"])
    assert page == {"queueUrls": urls[2:]}


async def test_tags_are_put_on_told_and_taken_off(client: Client) -> None:
    created = await client.call("CreateQueue", QueueName="orders", tags={"team": "a", "empty": ""})
    url = created["QueueUrl"]
    assert await client.call("TagQueue", QueueUrl=url, Tags={"stage": "test"}) == {}
    assert await client.call("ListQueueTags", QueueUrl=url) == {"Tags": {"team": "a", "empty": "", "stage": "test"}}
    assert await client.call("UntagQueue", QueueUrl=url, TagKeys=["team", "empty", "stage", "never there"]) == {}
    assert await client.call("ListQueueTags", QueueUrl=url) == {}
    assert (await refusal(client, "TagQueue", QueueUrl=url, Tags={})).code == "MissingParameter"
    for keys in ([], ["x" * 129]):
        error = await refusal(client, "UntagQueue", QueueUrl=url, TagKeys=keys)
        assert error.code == "InvalidParameterValue"
        assert error.message == "Tag keys must be between 1 and 128 characters in length."


async def test_a_queue_is_purged_once_a_minute(client: Client, clock: ManualClock) -> None:
    url = await client.create("orders")
    await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    assert await client.call("PurgeQueue", QueueUrl=url) == {}
    assert await client.bodies(url) == []
    error = await refusal(client, "PurgeQueue", QueueUrl=url)
    assert (error.status, error.code) == (403, "AWS.SimpleQueueService.PurgeQueueInProgress")
    assert error.message == "Only one PurgeQueue operation on orders is allowed every 60 seconds."
    await clock.advance(seconds=60)
    await client.call("PurgeQueue", QueueUrl=url)


async def test_permissions_edit_the_policy(client: Client) -> None:
    url = await client.create("orders")
    given = {"AWSAccountIds": ["111122223333"], "Actions": ["SendMessage"]}
    assert await client.call("AddPermission", QueueUrl=url, Label="one", **given) == {}
    await client.call("AddPermission", QueueUrl=url, Label="two", **given)
    policy = (await client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["Policy"]))["Attributes"]["Policy"]
    assert policy.startswith(f'{{"Version":"2008-10-17","Id":"{ARN}orders/SQSDefaultPolicy","Statement":[')
    assert policy.count("arn:aws:iam::111122223333:root") == 2
    error = await refusal(client, "AddPermission", QueueUrl=url, Label="one", **given)
    assert error.message == "Value one for parameter Label is invalid. Reason: Already exists."
    for label in ("one", "two"):
        assert await client.call("RemovePermission", QueueUrl=url, Label=label) == {}
    assert await client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["Policy"]) == {}


SIGNED = "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/{}/sqs/aws4_request, SignedHeaders=host, Signature=0"


async def test_regions_have_queues_of_their_own_with_urls_that_differ(client: Client) -> None:
    europe = client.with_headers(authorization=SIGNED.format("eu-west-1"))
    here, there = await client.create("orders"), await europe.create("orders")
    assert there == "http://localhost:9324/queue/eu-west-1/000000000000/orders"
    await client.call("SendMessage", QueueUrl=here, MessageBody="here")
    await client.call("SendMessage", QueueUrl=there, MessageBody="there")
    assert await europe.call("ListQueues") == {"QueueUrls": [there]}
    assert await europe.bodies("orders") == ["there"]
    assert await client.bodies("orders") == ["here"]
    told = await europe.call("GetQueueAttributes", QueueUrl=there, AttributeNames=["QueueArn"])
    assert told["Attributes"]["QueueArn"] == "arn:aws:sqs:eu-west-1:000000000000:orders"


async def test_another_accounts_queue_is_found_by_its_owner(client: Client) -> None:
    await client.create("orders")
    found = await client.call("GetQueueUrl", QueueName="orders", QueueOwnerAWSAccountId="000000000000")
    assert found["QueueUrl"].endswith("/000000000000/orders")
    error = await refusal(client, "GetQueueUrl", QueueName="orders", QueueOwnerAWSAccountId="111122223333")
    assert error.code == "AWS.SimpleQueueService.NonExistentQueue"


async def test_urls_have_the_host_that_the_client_used(client: Client) -> None:
    url = await client.with_headers(host="queues.internal:8080").create("orders")
    assert url == "http://queues.internal:8080/000000000000/orders"
    await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    assert await client.bodies("http://another.host/000000000000/orders") == ["a"]


async def test_urls_have_the_public_address_where_there_is_one(endpoint: SqsEndpoint, engine: Any) -> None:
    public = SqsEndpoint(engine, public_url="https://queues.example.com/sqs/", region="eu-west-1", account="1" * 12)
    assert await Client(public, "json").create("orders") == "https://queues.example.com/sqs/111111111111/orders"


async def test_urls_say_how_the_server_is_reached(engine: Any) -> None:
    secure = SqsEndpoint(engine, scheme="https")
    assert (await Client(secure, "json").create("orders")).startswith("https://localhost:9324/")
