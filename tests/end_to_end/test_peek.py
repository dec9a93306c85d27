"""Looking into a queue of a real server process, on both stores."""

from __future__ import annotations

import pytest

from tests.end_to_end.running import REGION, RunningServer

pytestmark = pytest.mark.slow

PATH = "/v1/queues/looked-into/messages"


def test_who_looks_sees_every_message_and_takes_none(shared_server: RunningServer) -> None:
    sqs = shared_server.sqs()
    queue = sqs.create_queue(QueueName="looked-into")["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="leased")
    [received] = sqs.receive_message(QueueUrl=queue)["Messages"]
    sqs.send_message(QueueUrl=queue, MessageBody="visible")
    sqs.send_message(QueueUrl=queue, MessageBody="delayed", DelaySeconds=900)
    for _ in range(2):
        answer = shared_server.get(f"{PATH}?region={REGION}")
        assert {message["body"]: message["state"] for message in answer["messages"]} == {
            state: state for state in ("leased", "visible", "delayed")
        }
        assert answer["after"] is None
    [leased] = shared_server.get(f"{PATH}?region={REGION}&state=leased&limit=100")["messages"]
    assert (leased["message_id"], leased["receive_count"]) == (received["MessageId"], 1)
    [visible] = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    assert visible["Body"] == "visible"
