"""The requests of the load generator beside those that boto3 sends."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from benchmarks.http_requests import RequestWriter

URL = "http://127.0.0.1:1/000000000000/orders"


@pytest.fixture
def writer() -> RequestWriter:
    return RequestWriter("127.0.0.1:1", URL, ["alpha", "beta", "gamma"])


def read(request: bytes) -> tuple[dict[str, str], Any]:
    """Split a request into its headers, by their names in lower case, and the value in its body."""
    head, _, body = request.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    assert line == "POST / HTTP/1.1"
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
    assert int(headers["content-length"]) == len(body)
    return headers, json.loads(body)


def sent_by_boto3(operation: str, **parameters: Any) -> tuple[dict[str, str], Any]:
    sqs = boto3.session.Session(aws_access_key_id="AKIDEXAMPLE", aws_secret_access_key="any").client(
        "sqs", endpoint_url="http://127.0.0.1:1", region_name="us-east-1", config=Config(user_agent="x")
    )
    seen: list[Any] = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        seen.append(request)
        return AWSResponse(request.url, 400, {}, None)

    sqs.meta.events.register("before-send.sqs", answer)
    with pytest.raises(AttributeError):  # The answer has no body to be read; what was asked is all that counts.
        getattr(sqs, operation)(QueueUrl=URL, **parameters)
    [request] = seen
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    return headers, json.loads(request.body)


def test_a_send_looks_like_one_of_boto3(writer: RequestWriter) -> None:
    headers, body = read(writer.send(1))
    theirs, their_body = sent_by_boto3("send_message", MessageBody="alpha")
    assert body == their_body
    # http.client adds the other two on the way.
    assert set(headers) == {*theirs, "host", "accept-encoding"}
    for name in ("x-amz-target", "content-type", "x-amzn-query-mode", "amz-sdk-request"):
        assert headers[name] == theirs[name]
    for name in ("amz-sdk-invocation-id", "x-amz-date"):
        assert len(headers[name]) == len(theirs[name])
    assert len(headers["authorization"]) == len(theirs["authorization"])


def test_a_batch_a_receive_and_deletes_say_what_boto3_says(writer: RequestWriter) -> None:
    entries = [{"Id": str(index), "MessageBody": body} for index, body in enumerate(["alpha", "beta"])]
    assert read(writer.send(2))[1] == sent_by_boto3("send_message_batch", Entries=entries)[1]
    assert read(writer.receive(10))[1] == sent_by_boto3("receive_message", MaxNumberOfMessages=10)[1]
    assert read(writer.delete(["h"], batch=False))[1] == sent_by_boto3("delete_message", ReceiptHandle="h")[1]
    handles = [{"Id": "0", "ReceiptHandle": "g"}, {"Id": "1", "ReceiptHandle": "h"}]
    assert read(writer.delete(["g", "h"], batch=True))[1] == sent_by_boto3("delete_message_batch", Entries=handles)[1]


def test_no_two_requests_share_an_invocation_id_or_a_signature(writer: RequestWriter) -> None:
    all_headers = [read(writer.send(1))[0] for _ in range(50)]
    assert len({headers["amz-sdk-invocation-id"] for headers in all_headers}) == 50
    assert len({headers["authorization"] for headers in all_headers}) == 50


def test_bodies_take_turns(writer: RequestWriter) -> None:
    assert [read(writer.send(1))[1]["MessageBody"] for _ in range(4)] == ["alpha", "beta", "gamma", "alpha"]


def test_on_fifo_messages_name_their_group_and_none_is_like_another() -> None:
    writer = RequestWriter("127.0.0.1:1", URL, ["alpha"], groups=2)
    singles = [read(writer.send(1))[1] for _ in range(3)]
    assert [each["MessageGroupId"] for each in singles] == ["group-0", "group-1", "group-0"]
    entries = read(writer.send(3))[1]["Entries"]
    assert {entry["MessageGroupId"] for entry in entries} == {"group-1"}
    assert len({each["MessageDeduplicationId"] for each in [*singles, *entries]}) == 6


def test_a_writer_on_another_queue_counts_on(writer: RequestWriter) -> None:
    other = writer.on("http://127.0.0.1:1/000000000000/others")
    headers, body = read(writer.send(1))
    other_headers, other_body = read(other.send(1))
    assert (body["QueueUrl"], other_body["QueueUrl"]) == (URL, "http://127.0.0.1:1/000000000000/others")
    assert headers["amz-sdk-invocation-id"] != other_headers["amz-sdk-invocation-id"]


def test_a_receive_may_wait(writer: RequestWriter) -> None:
    asked = {"MaxNumberOfMessages": 1, "WaitTimeSeconds": 20}
    assert read(writer.receive(1, wait_seconds=20))[1] == {"QueueUrl": URL, **asked}
