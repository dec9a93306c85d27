"""Every error that Amazon's model gives an operation, met by asking for it; the table is closed by the model itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.domain.limits import Limits
from penstock.server.sqs import SqsEndpoint
from penstock.wire.sqs.errors import SQS_ERRORS
from penstock.wire.sqs.operations import OPERATIONS
from tests.support.queues import with_limits
from tests.support.sqs_model import sqs_model, write_request
from tests.unit.server.sqs.conftest import Client, Refusal

ORDERS = "orders"
NO_ARN = "arn:aws:sqs:us-east-1:000000000000:absent"
NO_TASK = "eyJ0YXNrSWQiOiAiMSIsICJzb3VyY2VBcm4iOiAiYXJuOmF3czpzcXM6dXMtZWFzdC0xOjAwMDAwMDAwMDAwMDphYnNlbnQifQ=="

Parameters = dict[str, Any]
Preparation = Callable[[Client], Awaitable[Parameters]]

# -- requests that are in order but for what the table says ---------------------------------------

ENTRY: dict[str, Parameters] = {
    "SendMessageBatch": {"MessageBody": "tea"},
    "DeleteMessageBatch": {"ReceiptHandle": "any"},
    "ChangeMessageVisibilityBatch": {"ReceiptHandle": "any", "VisibilityTimeout": 1},
}
USUAL: dict[str, Parameters] = {
    "AddPermission": {"Label": "l", "AWSAccountIds": ["111122223333"], "Actions": ["SendMessage"]},
    "ChangeMessageVisibility": {"ReceiptHandle": "any", "VisibilityTimeout": 1},
    "DeleteMessage": {"ReceiptHandle": "any"},
    "GetQueueAttributes": {"AttributeNames": ["All"]},
    "RemovePermission": {"Label": "l"},
    "SendMessage": {"MessageBody": "tea"},
    "SetQueueAttributes": {"Attributes": {"DelaySeconds": "1"}},
    "TagQueue": {"Tags": {"team": "red"}},
    "UntagQueue": {"TagKeys": ["team"]},
    **{operation: {"Entries": [{"Id": "1", **entry}]} for operation, entry in ENTRY.items()},
}


def entries(operation: str, *ids: str) -> Parameters:
    return {"Entries": [{"Id": entry_id, **ENTRY[operation]} for entry_id in ids]}


def given(**parameters: Any) -> Preparation:
    async def prepare(client: Client) -> Parameters:
        return parameters

    return prepare


async def purge_once(client: Client) -> Parameters:
    await client.call("PurgeQueue", QueueUrl=ORDERS)
    return {}


async def delete_queue(client: Client) -> Parameters:
    await client.call("DeleteQueue", QueueUrl=ORDERS)
    return {"QueueName": ORDERS}


async def lease_all_that_may_be(client: Client) -> Parameters:
    await client.call("SendMessage", QueueUrl=ORDERS, MessageBody="tea")
    assert len(await client.receive(ORDERS)) == 1
    return {}


MET: dict[tuple[str, str], Preparation] = {
    **{(operation, "QueueDoesNotExist"): given(QueueUrl="absent") for operation in {*USUAL, "DeleteQueue"}},
    **{
        (operation, "QueueDoesNotExist"): given(QueueUrl="absent")
        for operation in ("ListDeadLetterSourceQueues", "ListQueueTags", "PurgeQueue", "ReceiveMessage")
    },
    ("GetQueueUrl", "QueueDoesNotExist"): given(QueueName="absent"),
    **{(operation, "EmptyBatchRequest"): given(Entries=[]) for operation in ENTRY},
    **{(each, "TooManyEntriesInBatchRequest"): given(**entries(each, *map(str, range(11)))) for each in ENTRY},
    **{(each, "BatchEntryIdsNotDistinct"): given(**entries(each, "1", "1")) for each in ENTRY},
    **{(each, "InvalidBatchEntryId"): given(**entries(each, "no id")) for each in ENTRY},
    ("SendMessageBatch", "BatchRequestTooLong"): given(
        Entries=[{"Id": str(number), "MessageBody": "x" * 600_000} for number in range(2)]
    ),
    ("CreateQueue", "InvalidAttributeName"): given(QueueName="new", Attributes={"Nil": "1"}),
    ("GetQueueAttributes", "InvalidAttributeName"): given(AttributeNames=["Nil"]),
    ("SetQueueAttributes", "InvalidAttributeName"): given(Attributes={"Nil": "1"}),
    ("CreateQueue", "InvalidAttributeValue"): given(QueueName="new", Attributes={"DelaySeconds": "901"}),
    ("SetQueueAttributes", "InvalidAttributeValue"): given(Attributes={"DelaySeconds": "901"}),
    ("CreateQueue", "QueueNameExists"): given(QueueName=ORDERS, Attributes={"DelaySeconds": "9"}),
    ("CreateQueue", "QueueDeletedRecently"): delete_queue,
    ("PurgeQueue", "PurgeQueueInProgress"): purge_once,
    ("SendMessage", "InvalidMessageContents"): given(MessageBody="\ufffe"),
    ("DeleteMessage", "ReceiptHandleIsInvalid"): given(ReceiptHandle="any"),
    ("ChangeMessageVisibility", "ReceiptHandleIsInvalid"): given(ReceiptHandle="any"),
    ("ReceiveMessage", "OverLimit"): lease_all_that_may_be,
    ("AddPermission", "OverLimit"): given(Actions=sorted(OPERATIONS)[:8]),
    ("StartMessageMoveTask", "ResourceNotFoundException"): given(SourceArn=NO_ARN),
    ("ListMessageMoveTasks", "ResourceNotFoundException"): given(SourceArn=NO_ARN),
    ("CancelMessageMoveTask", "ResourceNotFoundException"): given(TaskHandle=NO_TASK),
    ("SendMessage", "UnsupportedOperation"): given(
        MessageAttributes={"many": {"DataType": "String", "StringListValues": ["a", "b"]}}
    ),
}

# Errors that the model gives all operations alike; it is enough that one of them meets each.
OF_ALL_OPERATIONS = {"InvalidAddress", "InvalidSecurity", "RequestThrottled", "UnsupportedOperation"}

NEVER_MET = {
    ("SetQueueAttributes", "OverLimit"): "a queue's policy is limited in bytes, and not in statements",
}


def told() -> set[str]:
    """The modelled errors that are told at all; `test_against_botocore` has the reasons for the others."""
    prefix = "com.amazonaws.sqs#"
    return {error.type.removeprefix(prefix) for error in SQS_ERRORS.values() if error.type.startswith(prefix)}


def test_no_operation_has_an_error_that_is_never_met() -> None:
    modelled = {
        (operation, shape.name)
        for operation in sqs_model("json").operation_names
        for shape in sqs_model("json").operation_model(operation).error_shapes
        if shape.name in told() - OF_ALL_OPERATIONS
    }
    met = {pair for pair in MET if pair[1] not in OF_ALL_OPERATIONS}
    assert met | set(NEVER_MET) == modelled
    assert not met & set(NEVER_MET)


@pytest.mark.parametrize(("operation", "error"), sorted(MET))
@with_limits(in_flight_standard_max=1)
async def test_an_operation_meets_its_error(client: Client, limits: Limits, operation: str, error: str) -> None:
    await client.create(ORDERS)
    parameters = dict(USUAL.get(operation, {}))
    if "queue_url" in OPERATIONS[operation].request.__struct_fields__:
        parameters["QueueUrl"] = ORDERS
    parameters |= await MET[operation, error](client)
    with pytest.raises(Refusal) as refused:
        await client.call(operation, **parameters)
    [(code, status)] = {(known.code, known.status) for known in SQS_ERRORS.values() if known.type.endswith(f"#{error}")}
    assert (refused.value.code, refused.value.status) == (code, status)


ON_A_QUEUE = sorted(name for name, each in OPERATIONS.items() if "queue_url" in each.request.__struct_fields__)


@pytest.mark.parametrize("operation", ON_A_QUEUE)
async def test_json_that_names_no_queue_and_comes_to_none_misses_a_parameter(
    endpoint: SqsEndpoint, operation: str
) -> None:
    # The SDKs for Java and Rust send it so; others miss the parameter themselves.
    with pytest.raises(Refusal) as refused:
        await Client(endpoint, "json").call(operation, **USUAL.get(operation, {}))
    assert (refused.value.code, refused.value.status) == ("MissingParameter", 400)
    assert refused.value.message == "The request must contain the parameter QueueUrl."


@pytest.mark.parametrize("operation", ON_A_QUEUE)
async def test_a_form_that_names_no_queue_and_comes_to_none_has_no_address(
    endpoint: SqsEndpoint, operation: str
) -> None:
    response = await endpoint.answer(write_request("query", operation, USUAL.get(operation, {})))
    assert (response.status, b"<Code>InvalidAddress</Code>" in response.body) == (404, True)
