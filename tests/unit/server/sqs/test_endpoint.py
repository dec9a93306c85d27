from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.limits import Limits
from penstock.engine.engine import Engine
from penstock.server.sqs import SqsEndpoint
from penstock.testing import ManualClock
from penstock.wire.http import Request
from penstock.wire.sqs.operations import OPERATIONS
from tests.unit.server.sqs.conftest import Client, Refusal

HOST = {"host": "localhost:9324"}
JSON = {**HOST, "content-type": "application/x-amz-json-1.0"}


def request(method: str = "POST", path: str = "/", query: str = "", body: bytes = b"", **headers: str) -> Request:
    return Request(method, path, query, {**HOST, **{k.replace("_", "-"): v for k, v in headers.items()}}, body)


def target(operation: str, body: bytes = b"{}", path: str = "/") -> Request:
    return Request("POST", path, "", {**JSON, "x-amz-target": f"AmazonSQS.{operation}"}, body)


# -- which protocol, and which queue --------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "content_type"),
    [
        (target("ListQueues"), "application/x-amz-json-1.0"),
        (request(query="Action=ListQueues"), "text/xml"),
        (request("GET", query="Action=ListQueues"), "text/xml"),
        (request(body=b"Action=ListQueues"), "text/xml"),
        (request(query="Action=ListQueues", accept="application/json"), "application/json"),
        (request("GET", query="Action=ListQueues", accept="*/*"), "text/xml"),
    ],
)
async def test_a_request_is_answered_in_its_own_protocol(
    endpoint: SqsEndpoint, sent: Request, content_type: str
) -> None:
    response = await endpoint.answer(sent)
    assert response.status == 200
    assert ("content-type", content_type) in response.headers


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (target("Fly"), 400, b"UnknownOperationException"),
        (Request("POST", "/", "", JSON, b"{}"), 400, b"UnknownOperationException"),
        (target("SendMessage", b"{"), 400, b"SerializationException"),
        (target("SendMessage", b'{"MessageBody":"a"}'), 400, b"MissingRequiredParameterException"),
        (target("SendMessage", b'{"MessageBody":"a","QueueUrl":""}'), 400, b"QueueDoesNotExist"),
        (request(), 404, b"<UnknownOperationException/>"),
        (request("GET", "/000000000000/orders"), 404, b"<UnknownOperationException/>"),
        (request("GET", "/000000000000/orders", accept="application/json"), 404, b"<UnknownOperationException/>"),
        (request("PUT", "/somewhere"), 404, b"<UnknownOperationException/>"),
        (request(query="Action=Fly"), 400, b"<Code>InvalidAction</Code>"),
        (request(query="Action=SendMessage&MessageBody=a"), 404, b"<Code>InvalidAddress</Code>"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_in_its_own_protocol(
    endpoint: SqsEndpoint, sent: Request, status: int, code: bytes
) -> None:
    response = await endpoint.answer(sent)
    assert response.status == status
    assert code in response.body


@pytest.mark.parametrize("path", ["/000000000000/orders", "/queue/orders", "/queue/us-east-1/000000000000/orders"])
async def test_a_queue_is_named_by_the_path_of_a_request(endpoint: SqsEndpoint, path: str) -> None:
    client = Client(endpoint, "query")
    await client.create("orders")
    for sent in (
        request("GET", path, "Action=SendMessage&MessageBody=a"),
        request("POST", path, body=b"Action=SendMessage&MessageBody=a"),
        target("SendMessage", b'{"MessageBody":"a"}', path),
    ):
        response = await endpoint.answer(sent)
        assert response.status == 200, response.body
    assert await client.bodies("orders") == ["a"] * 3


async def test_the_queue_url_of_a_request_goes_before_its_path(endpoint: SqsEndpoint) -> None:
    client = Client(endpoint, "query")
    one, two = await client.create("one"), await client.create("two")
    form = urlencode({"Action": "SendMessage", "MessageBody": "a", "QueueUrl": two})
    await endpoint.answer(request(path="/000000000000/one", body=form.encode()))
    assert (await client.bodies(one), await client.bodies(two)) == ([], ["a"])


async def test_request_ids_differ(endpoint: SqsEndpoint) -> None:
    ids = {dict((await endpoint.answer(target("ListQueues"))).headers)["x-amzn-RequestId"] for _ in range(3)}
    assert len(ids) == 3


# -- retries --------------------------------------------------------------------------------------


async def test_a_retried_send_gets_the_first_answer_and_sends_nothing(client: Client, clock: ManualClock) -> None:
    url = await client.create("orders")
    sdk = client.with_headers(amz_sdk_invocation_id="i-1", amz_sdk_request="attempt=1")
    first = await sdk.call("SendMessage", QueueUrl=url, MessageBody="a")
    [message] = await client.receive(url)
    await client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    again = sdk.with_headers(amz_sdk_request="attempt=2")
    assert await again.call("SendMessage", QueueUrl=url, MessageBody="a") == first
    assert await client.bodies(url) == []
    another = await client.with_headers(amz_sdk_invocation_id="i-2").call("SendMessage", QueueUrl=url, MessageBody="a")
    assert another["MessageId"] != first["MessageId"]


async def test_a_retried_batch_gets_the_first_answer_with_its_failures(client: Client) -> None:
    url = await client.create("orders", MaximumMessageSize="1024")
    sdk = client.with_headers(amz_sdk_invocation_id="i-1")
    batch = {"QueueUrl": url, "Entries": [{"Id": "1", "MessageBody": "a"}, {"Id": "2", "MessageBody": "x" * 1025}]}
    first = await sdk.call("SendMessageBatch", **batch)
    await client.call("SetQueueAttributes", QueueUrl=url, Attributes={"MaximumMessageSize": "2048"})
    assert await sdk.call("SendMessageBatch", **batch) == first
    assert await client.bodies(url) == ["a"]


async def test_a_retried_receive_gets_its_messages_again(client: Client) -> None:
    url = await client.create("orders")
    await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    sdk = client.with_headers(amz_sdk_invocation_id="i-1")
    first = await sdk.receive(url, AttributeNames=["ApproximateReceiveCount"])
    assert await sdk.receive(url, AttributeNames=["ApproximateReceiveCount"]) == first
    assert await client.receive(url) == []
    await client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=first[0]["ReceiptHandle"])
    assert await sdk.receive(url, AttributeNames=["ApproximateReceiveCount"]) == []


async def test_a_receive_attempt_id_gives_the_same_messages_on_a_fifo_queue(client: Client) -> None:
    url = await client.create("orders.fifo", ContentBasedDeduplication="true")
    await client.call("SendMessage", QueueUrl=url, MessageBody="a", MessageGroupId="g")
    first = await client.receive(url, ReceiveRequestAttemptId="r-1")
    assert len(first) == 1
    assert await client.receive(url, ReceiveRequestAttemptId="r-1") == first
    assert await client.receive(url, ReceiveRequestAttemptId="r-2") == []
    with pytest.raises(Refusal) as refused:
        await client.receive(url, ReceiveRequestAttemptId="no spaces")
    assert refused.value.code == "InvalidParameterValue"


async def test_an_undelivered_answer_gives_its_messages_back_at_no_cost(client: Client) -> None:
    url = await client.create("orders")
    await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    response = await client.respond("ReceiveMessage", QueueUrl=url)
    assert response.undelivered is not None
    assert await client.receive(url) == []
    await response.undelivered()
    [message] = await client.receive(url, AttributeNames=["ApproximateReceiveCount"])
    assert message["Attributes"] == {"ApproximateReceiveCount": "1"}


async def test_an_undelivered_answer_for_a_queue_that_is_gone_is_let_go(client: Client) -> None:
    url = await client.create("orders")
    await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    response = await client.respond("ReceiveMessage", QueueUrl=url)
    await client.call("DeleteQueue", QueueUrl=url)
    assert response.undelivered is not None
    await response.undelivered()


@pytest.mark.parametrize("operation", ["ReceiveMessage", "ListQueues", "GetQueueAttributes"])
async def test_an_answer_without_messages_has_nothing_to_give_back(client: Client, operation: str) -> None:
    url = await client.create("orders")
    parameters = {} if operation == "ListQueues" else {"QueueUrl": url}
    assert (await client.respond(operation, **parameters)).undelivered is None


# -- what goes wrong ------------------------------------------------------------------------------


async def test_a_store_that_is_away_is_unavailable(client: Client, failpoints: Failpoints) -> None:
    url = await client.create("orders")

    def fail() -> None:
        raise StoreUnavailable("The store does not answer. Try again.")

    failpoints.arm("append.begun", fail)
    with pytest.raises(Refusal) as refused:
        await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    assert (refused.value.status, refused.value.code) == (503, "ServiceUnavailable")


async def test_a_bug_of_ours_is_a_plain_500_and_logged(
    client: Client, failpoints: Failpoints, caplog: pytest.LogCaptureFixture
) -> None:
    url = await client.create("orders")

    def fail() -> None:
        raise AssertionError("a secret of ours")

    failpoints.arm("append.begun", fail)
    with caplog.at_level(logging.ERROR), pytest.raises(Refusal) as refused:
        await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    assert (refused.value.status, refused.value.code) == (500, "InternalFailure")
    assert "secret" not in refused.value.message
    assert "a secret of ours" in caplog.text


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
async def test_every_operation_is_known(endpoint: SqsEndpoint, operation: str) -> None:
    await assert_answered(endpoint, target(operation))


async def test_request_ids_come_from_their_source(engine: Engine) -> None:
    response = await SqsEndpoint(engine).answer(target("ListQueues"))
    assert ("x-amzn-RequestId", "00000000-0000-0000-0000-000000000001") in response.headers


# -- nonsense: whatever is sent is answered, and never with a 500 ---------------------------------


async def assert_answered(endpoint: SqsEndpoint, sent: Request) -> None:
    response = await endpoint.answer(sent)
    assert response.status < 500, response.body


@pytest.fixture
def patient(engine: Engine, endpoint: SqsEndpoint) -> SqsEndpoint:
    """An endpoint at which nobody waits for messages."""
    engine.end_waits()
    return endpoint


async def ensure_queues(endpoint: SqsEndpoint) -> None:
    client = Client(endpoint, "json")
    for name in ("orders", "orders.fifo"):
        await client.respond("CreateQueue", QueueName=name, Attributes={"FifoQueue": "true"} if "." in name else {})
        await client.respond("SendMessage", QueueUrl=name, MessageBody="a", MessageGroupId="g")


ARN = "arn:aws:sqs:us-east-1:000000000000:orders"
TOLD = [name for operation in OPERATIONS.values() for name in operation.request.__struct_encode_fields__]
INNER = ["Id", "DataType", "StringValue", "BinaryValue", "StringListValues", "Name", "Value", "FifoQueue", "Policy"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
WORDS = st.sampled_from(["orders", "orders.fifo", "All", "String", "Binary", "1", ARN, "{}", '{"Statement":[1]}'])
NAMES = st.sampled_from(sorted(set(TOLD)) + INNER) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
ANY_OPERATION = st.sampled_from(sorted(OPERATIONS))
NO_WAIT_FOR_NAMES = pytest.mark.parametrize("limits", [Limits(name_reuse_ms=0, purge_interval_ms=0)])
FUZZ = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@NO_WAIT_FOR_NAMES
@FUZZ
@given(operation=ANY_OPERATION, parameters=st.dictionaries(NAMES, VALUES, max_size=6) | VALUES)
async def test_json_of_the_wrong_shape_is_answered(patient: SqsEndpoint, operation: str, parameters: Any) -> None:
    await ensure_queues(patient)
    if isinstance(parameters, dict):
        parameters.setdefault("QueueUrl", "orders")
    await assert_answered(patient, target(operation, json.dumps(parameters).encode()))


@NO_WAIT_FOR_NAMES
@FUZZ
@given(
    operation=ANY_OPERATION,
    parameters=st.dictionaries(
        st.lists(NAMES | st.integers(-1, 11).map(str), min_size=1, max_size=4).map(".".join),
        st.text(max_size=20) | st.integers().map(str) | WORDS,
        max_size=8,
    ),
    path=st.sampled_from(["/", "/queue/orders", "/000000000000/orders.fifo", "/a/b/c/d/e"]),
)
async def test_forms_of_the_wrong_shape_are_answered(
    patient: SqsEndpoint, operation: str, parameters: dict[str, str], path: str
) -> None:
    await ensure_queues(patient)
    form = urlencode({"Action": operation, **parameters})
    await assert_answered(patient, request(path=path, body=form.encode()))


LATIN = st.text(st.characters(codec="latin-1"), max_size=50)
HEADERS = ["x-amz-target", "content-type", "authorization", "accept", "amz-sdk-invocation-id", "host"]
MEANT = ["AmazonSQS.SendMessage", "AmazonSQS.", "application/x-amz-json-1.0", "application/json", "Credential=////"]


@FUZZ
@given(
    body=st.binary(max_size=200),
    query=LATIN,
    headers=st.dictionaries(st.sampled_from(HEADERS), LATIN | st.sampled_from(MEANT)),
    method=st.sampled_from(["GET", "POST", "PUT", "OPTIONS"]),
    path=LATIN,
)
async def test_noise_is_answered(
    patient: SqsEndpoint, body: bytes, query: str, headers: dict[str, str], method: str, path: str
) -> None:
    await assert_answered(patient, Request(method, path, query, headers, body))
