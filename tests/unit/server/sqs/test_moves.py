from __future__ import annotations

import base64
import json

import pytest

from penstock.testing import ManualClock
from tests.unit.server.sqs.conftest import Client, Refusal

ARN = "arn:aws:sqs:us-east-1:000000000000:"


async def dead_letters(client: Client, *bodies: str) -> tuple[str, str]:
    """Make a queue and its dead-letter queue, which holds these bodies."""
    await client.create("dead")
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}dead", "maxReceiveCount": 1})
    await client.create("orders", RedrivePolicy=policy)
    for body in bodies:
        await client.call("SendMessage", QueueUrl="orders", MessageBody=body)
    assert len(await client.bodies("orders", VisibilityTimeout=0)) == len(bodies)
    assert await client.bodies("orders") == []
    return "orders", "dead"


async def test_dead_letters_are_moved_back(client: Client, clock: ManualClock) -> None:
    await dead_letters(client, "a", "b")
    started = clock.now_ms()
    handle = (await client.call("StartMessageMoveTask", SourceArn=f"{ARN}dead"))["TaskHandle"]
    told = json.loads(base64.b64decode(handle))
    assert told["sourceArn"] == f"{ARN}dead"
    assert set(told) == {"taskId", "sourceArn"}
    await clock.advance(seconds=1)
    assert sorted(await client.bodies("orders")) == ["a", "b"]
    assert await client.call("ListMessageMoveTasks", SourceArn=f"{ARN}dead") == {
        "Results": [
            {
                "Status": "COMPLETED",
                "SourceArn": f"{ARN}dead",
                "ApproximateNumberOfMessagesMoved": 2,
                "ApproximateNumberOfMessagesToMove": 2,
                "StartedTimestamp": started,
            }
        ]
    }


async def test_a_running_task_is_listed_with_its_handle_and_cancelled_by_it(client: Client, clock: ManualClock) -> None:
    await dead_letters(client, *"abcdefgh")
    await client.create("elsewhere")
    start = {"SourceArn": f"{ARN}dead", "DestinationArn": f"{ARN}elsewhere", "MaxNumberOfMessagesPerSecond": 1}
    handle = (await client.call("StartMessageMoveTask", **start))["TaskHandle"]
    await clock.advance(ms=100)
    [task] = (await client.call("ListMessageMoveTasks", SourceArn=f"{ARN}dead"))["Results"]
    assert task["TaskHandle"] == handle
    assert task["Status"] == "RUNNING"
    assert task["DestinationArn"] == f"{ARN}elsewhere"
    assert task["MaxNumberOfMessagesPerSecond"] == 1
    with pytest.raises(Refusal) as refused:
        await client.call("StartMessageMoveTask", **start)
    assert refused.value.code == "InvalidParameterValue"
    assert refused.value.message == (
        "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    )
    cancelled = await client.call("CancelMessageMoveTask", TaskHandle=handle)
    assert cancelled["ApproximateNumberOfMessagesMoved"] < 8
    [task] = (await client.call("ListMessageMoveTasks", SourceArn=f"{ARN}dead"))["Results"]
    assert task["Status"] == "CANCELLED"
    assert "TaskHandle" not in task
    with pytest.raises(Refusal) as refused:
        await client.call("CancelMessageMoveTask", TaskHandle=handle)
    assert (refused.value.status, refused.value.code) == (404, "ResourceNotFoundException")


async def test_a_task_whose_destination_goes_away_fails(client: Client, clock: ManualClock) -> None:
    await dead_letters(client, *"abcd")
    await client.create("elsewhere")
    await client.call(
        "StartMessageMoveTask",
        SourceArn=f"{ARN}dead",
        DestinationArn=f"{ARN}elsewhere",
        MaxNumberOfMessagesPerSecond=1,
    )
    await clock.advance(ms=100)
    await client.call("DeleteQueue", QueueUrl="elsewhere")
    await clock.advance(seconds=5)
    [task] = (await client.call("ListMessageMoveTasks", SourceArn=f"{ARN}dead"))["Results"]
    assert task["Status"] == "FAILED"
    assert task["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"


def handle(task: str, source: str) -> str:
    return base64.b64encode(json.dumps({"taskId": task, "sourceArn": source}).encode()).decode()


NO_SOURCE = "The resource that you specified for the SourceArn parameter doesn't exist."
NO_DESTINATION = "The resource that you specified for the DestinationArn parameter doesn't exist."
NO_ARN = (
    "You must use this format to specify the SourceArn: arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
)
REFUSED = [
    (
        "StartMessageMoveTask",
        {"SourceArn": f"{ARN}orders"},
        400,
        "InvalidParameterValue",
        "Source queue must be configured as a Dead Letter Queue.",
    ),
    ("StartMessageMoveTask", {"SourceArn": f"{ARN}missing"}, 404, "ResourceNotFoundException", NO_SOURCE),
    (
        "StartMessageMoveTask",
        {"SourceArn": f"{ARN}dead", "DestinationArn": f"{ARN}missing"},
        404,
        "ResourceNotFoundException",
        NO_DESTINATION,
    ),
    ("StartMessageMoveTask", {"SourceArn": "dead"}, 400, "InvalidParameterValue", NO_ARN),
    ("ListMessageMoveTasks", {"SourceArn": f"{ARN}missing"}, 404, "ResourceNotFoundException", NO_SOURCE),
    ("ListMessageMoveTasks", {"SourceArn": "dead"}, 400, "InvalidParameterValue", NO_ARN),
    (
        "CancelMessageMoveTask",
        {"TaskHandle": "foobared"},
        400,
        "InvalidParameterValue",
        "Value for parameter TaskHandle is invalid.",
    ),
    (
        "CancelMessageMoveTask",
        {"TaskHandle": handle("10f53a2d", f"{ARN}missing")},
        404,
        "ResourceNotFoundException",
        NO_SOURCE,
    ),
    (
        "CancelMessageMoveTask",
        {"TaskHandle": handle("10f53a2d", f"{ARN}dead")},
        404,
        "ResourceNotFoundException",
        "Task does not exist.",
    ),
]


@pytest.mark.parametrize(("operation", "given", "status", "code", "message"), REFUSED)
async def test_tasks_that_cannot_be_are_refused(
    client: Client, operation: str, given: dict[str, str], status: int, code: str, message: str
) -> None:
    await dead_letters(client)
    with pytest.raises(Refusal) as refused:
        await client.call(operation, **given)
    assert (refused.value.status, refused.value.code, refused.value.message) == (status, code, message)
