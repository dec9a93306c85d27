from __future__ import annotations

import pytest

from penstock.domain.queue import QueueName
from penstock.wire.http import Request
from penstock.wire.sqs.attempts import RETRY_NUMBER_MAX, receive_attempt, request_attempt, retry_number

ORDERS = QueueName("us-east-1", "000000000000", "orders.fifo")


def request(
    body: bytes = b"{}",
    *,
    invocation: str | None = "i-1",
    attempt: str = "attempt=1",
    path: str = "/",
    query: str = "",
) -> Request:
    headers = {"amz-sdk-request": attempt}
    if invocation is not None:
        headers["amz-sdk-invocation-id"] = invocation
    return Request("POST", path, query, headers, body)


def test_a_retry_has_the_key_of_the_first_try() -> None:
    first = request_attempt("AKIA", "SendMessage", request())
    assert first is not None
    assert len(first) == 16
    assert request_attempt("AKIA", "SendMessage", request(attempt="attempt=2")) == first


@pytest.mark.parametrize(
    ("caller", "operation", "sent"),
    [
        ("another", "SendMessage", request()),
        ("AKIA", "ReceiveMessage", request()),
        ("AKIA", "SendMessage", request(invocation="i-2")),
        ("AKIA", "SendMessage", request(b'{"MessageBody":"another"}')),
        ("AKIA", "SendMessage", request(path="/000000000000/orders")),
        ("AKIA", "SendMessage", request(query="QueueUrl=orders")),
    ],
)
def test_whatever_differs_makes_another_key(caller: str, operation: str, sent: Request) -> None:
    assert request_attempt(caller, operation, sent) != request_attempt("AKIA", "SendMessage", request())


def test_the_same_words_at_another_address_or_for_another_region_make_another_key() -> None:
    addresses = [
        request(path="/000000000000/orders"),
        request(path="/000000000000/tasks"),
        request(path="/000000000000/tasks", query="a=b"),
        request(query="a=b"),
    ]
    keys = {request_attempt("AKIA", "SendMessage", at, region=region) for at in addresses for region in ("", "x")}
    assert len(keys) == 2 * len(addresses)


def test_keys_at_the_root_are_those_of_earlier_versions() -> None:
    """A retry may meet a server that was updated since the first try."""
    key = request_attempt("AKIA", "SendMessage", request(b'{"MessageBody":"a"}'))
    assert key == bytes.fromhex("25f31ea66042be2d66c89935e55cf4fe")


@pytest.mark.parametrize("invocation", [None, ""])
def test_a_request_that_does_not_mark_its_retries_has_no_key(invocation: str | None) -> None:
    assert request_attempt("AKIA", "SendMessage", request(invocation=invocation)) is None


def test_a_get_is_told_apart_by_its_query() -> None:
    headers = {"amz-sdk-invocation-id": "i-1"}
    one, other = (Request("GET", "/", query, headers, b"") for query in ("MessageBody=a", "MessageBody=b"))
    assert request_attempt("", "SendMessage", one) != request_attempt("", "SendMessage", other)


def test_a_receive_attempt_id_is_the_callers_own_on_one_queue() -> None:
    key = receive_attempt("AKIA", ORDERS, "a-1")
    assert receive_attempt("AKIA", ORDERS, "a-1") == key
    another = QueueName(ORDERS.region, ORDERS.account, "another.fifo")
    others = {
        receive_attempt("another", ORDERS, "a-1"),
        receive_attempt("AKIA", ORDERS, "a-2"),
        receive_attempt("AKIA", another, "a-1"),
    }
    assert len(others | {key}) == 4


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("attempt=1", 0),
        ("attempt=1; max=3", 0),
        ("attempt=2; max=3", 1),
        ("ttl=20261118T000000Z; attempt=3; max=5", 2),
        ("attempt=11", 10),
        ("max=3", 0),
        ("attempt=0", 0),
        ("attempt=-1", 0),
        ("attempt=x", 0),
        ("attempt=99999", RETRY_NUMBER_MAX),
        ("attempt=999999999999999999999", 0),
        ("reattempt=4", 0),
        ("", 0),
    ],
)
def test_the_number_of_a_retry_is_read_from_what_the_sdk_says(said: str, number: int) -> None:
    assert retry_number(request(attempt=said)) == number


def test_a_request_that_does_not_count_its_tries_is_the_first() -> None:
    assert retry_number(Request("POST", "/", "", {}, b"{}")) == 0
