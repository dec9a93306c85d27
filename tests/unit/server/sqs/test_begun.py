"""Operations that are begun without a coroutine, where they fail: the rest of these tests go this way too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.wire.http import Request
from tests.support.sqs_model import write_request
from tests.unit.server.sqs.conftest import Client, respond

if TYPE_CHECKING:
    from penstock.server.sqs import SqsEndpoint
    from penstock.store.port import Store

URL = "http://localhost:9324/000000000000/orders"
INVOCATION = {"amz-sdk-invocation-id": "11111111-1111-4111-8111-111111111111"}


@pytest.fixture
def client(endpoint: SqsEndpoint) -> Client:
    return Client(endpoint, "json")


def never(_: object) -> None:
    raise AssertionError("nothing was begun")


async def send(client: Client, name: str, **parameters: Any) -> Request:
    url = await client.create(name)
    await client.call("SendMessage", QueueUrl=url, MessageBody="so that the queue is known")
    return write_request("json", "SendMessage", {"QueueUrl": url, "MessageBody": "a", **parameters})


def batch(*bodies: str) -> Request:
    entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
    return write_request("json", "SendMessageBatch", {"QueueUrl": URL, "Entries": entries})


async def test_a_send_a_receive_and_a_delete_are_begun(endpoint: SqsEndpoint, client: Client) -> None:
    sent = await send(client, "orders")
    assert endpoint.begin(sent, lambda _: None)
    assert endpoint.begin(write_request("json", "ReceiveMessage", {"QueueUrl": URL}), lambda _: None)
    [second] = await client.receive(URL)
    assert second["Body"] == "a"
    deleted = write_request("json", "DeleteMessage", {"QueueUrl": URL, "ReceiptHandle": second["ReceiptHandle"]})
    assert endpoint.begin(deleted, lambda _: None)
    assert await client.bodies(URL) == []


async def test_a_batch_is_begun(endpoint: SqsEndpoint, client: Client) -> None:
    await client.create("orders")
    assert endpoint.begin(batch("a", "b"), lambda _: None)
    assert sorted(await client.bodies(URL)) == ["a", "b"]


async def test_a_batch_of_which_something_is_refused_is_left_to_the_coroutine(
    endpoint: SqsEndpoint, client: Client
) -> None:
    await client.create("orders")
    for request in (batch("a", "\x01"), batch("a", ""), batch(), batch(*["x" * 600_000] * 2)):
        assert not endpoint.begin(request, never)
    assert await client.bodies(URL) == []


@pytest.mark.parametrize("asked", [{"WaitTimeSeconds": 1}, {}], ids=["by itself", "by its queue"])
async def test_a_receive_that_may_wait_is_left_to_the_coroutine(
    endpoint: SqsEndpoint, client: Client, asked: dict[str, int]
) -> None:
    await client.create("orders", ReceiveMessageWaitTimeSeconds="0" if asked else "1")
    assert not endpoint.begin(write_request("json", "ReceiveMessage", {"QueueUrl": URL, **asked}), never)


async def test_what_is_refused_at_once_is_left_to_the_coroutine(endpoint: SqsEndpoint, client: Client) -> None:
    await send(client, "orders")
    for parameters in ({"MessageBody": "\x01"}, {"MessageBody": ""}, {"DelaySeconds": 901}, {"QueueUrl": "/0/none"}):
        assert not endpoint.begin(await send(client, "orders", **parameters), never)


async def test_a_place_where_a_test_steps_in_is_left_to_the_coroutine(
    endpoint: SqsEndpoint, client: Client, failpoints: Failpoints
) -> None:
    sent = await send(client, "orders")
    failpoints.arm("append.committed", lambda: None)
    assert not endpoint.begin(sent, never)


@pytest.mark.parametrize("headers", [{}, INVOCATION], ids=["no key", "attempt key"])
@pytest.mark.parametrize("several", [False, True], ids=["one", "batch"])
async def test_a_store_that_fails_is_told_in_the_same_words(
    endpoint: SqsEndpoint, client: Client, store: Store, headers: dict[str, str], several: bool
) -> None:
    sent = await send(client, "orders")
    if several:
        sent = batch("a", "b")
    sent.headers.update(headers)
    # As if the file were damaged.
    store._commits._db.execute("DROP TABLE message")  # type: ignore[attr-defined] # noqa: SLF001 - no verb does it
    begun, answered = await respond(endpoint, sent), await endpoint.answer(sent)
    assert begun.status == answered.status == 503
    assert begun.body == answered.body


async def test_a_queue_that_is_gone_by_its_turn_is_told_in_the_same_words(
    endpoint: SqsEndpoint, client: Client
) -> None:
    sent = await send(client, "orders")
    begun = asyncio.create_task(respond(endpoint, sent))
    # Both are gathered into one transaction, and there queues go first.
    await client.call("DeleteQueue", QueueUrl=URL)
    response, answered = await begun, await endpoint.answer(sent)
    assert response.status == answered.status == 400
    assert response.body == answered.body
