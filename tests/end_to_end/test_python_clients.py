"""Python clients besides boto3: aiobotocore, the AWS command line, and Celery with its SQS transport."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiobotocore.session import get_session

from tests.end_to_end.running import CLIENT_TIMEOUT_S, REGION, RunningServer, environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]


def amazon_environment() -> dict[str, str]:
    """Return an environment for Amazon's tools, with nothing in it of whoever runs the test."""
    own = {name: value for name, value in environment().items() if not name.startswith("AWS_")}
    return own | {
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


async def test_aiobotocore_sends_many_at_once_and_polls(shared_server: RunningServer, queue_name: str) -> None:
    session = get_session()
    async with session.create_client(
        "sqs",
        endpoint_url=shared_server.url,
        region_name=REGION,
        aws_access_key_id="any",
        aws_secret_access_key="any",
    ) as sqs:
        url = (await sqs.create_queue(QueueName=queue_name))["QueueUrl"]
        poll = asyncio.create_task(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20))
        answers = await asyncio.gather(
            *(sqs.send_message(QueueUrl=url, MessageBody=str(number)) for number in range(20))
        )
        sent = {answer["MessageId"] for answer in answers}
        messages = (await poll)["Messages"]
        while len(messages) < 20:
            answer = await sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20, MaxNumberOfMessages=10)
            messages += answer["Messages"]
        assert {message["MessageId"] for message in messages} == sent
        await asyncio.gather(
            *(sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]) for message in messages)
        )
        counts = (await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"]))["Attributes"]
        assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"


def aws(server: RunningServer, *arguments: str) -> Any:
    """Run the AWS command line, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "awscli", "--endpoint-url", server.url, "sqs", *arguments, "--output", "json"],
        capture_output=True,
        text=True,
        check=False,
        env=amazon_environment(),
        timeout=CLIENT_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


def test_the_aws_command_line_does_a_messages_whole_life(shared_server: RunningServer, queue_name: str) -> None:
    queue = f"{queue_name}.fifo"
    created = aws(shared_server, "create-queue", "--queue-name", queue, "--attributes", "FifoQueue=true")
    at = ("--queue-url", created["QueueUrl"])
    attributes = {
        "blob": {"DataType": "Binary", "BinaryValue": "tea"}
    }  # The command line takes bytes as text, and gives base64.
    sent = aws(
        shared_server,
        *("send-message", *at, "--message-body", "from a shell", "--message-group-id", "one"),
        *("--message-deduplication-id", "first", "--message-attributes", json.dumps(attributes)),
    )
    asked = ("--message-attribute-names", "All", "--wait-time-seconds", "1")
    [message] = aws(shared_server, "receive-message", *at, *asked)["Messages"]
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "from a shell")
    assert message["MessageAttributes"]["blob"]["BinaryValue"] == "dGVh"
    assert aws(shared_server, "delete-message", *at, "--receipt-handle", message["ReceiptHandle"]) is None
    counts = aws(shared_server, "get-queue-attributes", *at, "--attribute-names", "All")["Attributes"]
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"
    assert aws(shared_server, "list-queues", "--queue-name-prefix", queue)["QueueUrls"] == [at[1]]


CALL = "import sys; from tests.end_to_end.celery_app import add; add.delay(int(sys.argv[1]), int(sys.argv[2]))"


def test_a_celery_worker_runs_a_task_that_was_sent_by_sqs(shared_server: RunningServer, tmp_path: Path) -> None:
    address = urlsplit(shared_server.url)
    variables = amazon_environment() | {
        "SHOP_BROKER_URL": f"sqs://any:any@{address.hostname}:{address.port}//",
        "SHOP_REGION": REGION,
        "PYTHONPATH": str(ROOT),
    }
    work = ["-m", "celery", "--app", "tests.end_to_end.celery_app", "worker", "--pool", "solo", "--loglevel", "INFO"]
    errors = tmp_path / "worker"
    with errors.open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, *work], stdout=subprocess.PIPE, stderr=log, cwd=tmp_path, env=variables, text=True
        )
    try:
        for left, right in ((2, 3), (40, 2)):
            caller = [sys.executable, "-c", CALL, str(left), str(right)]
            subprocess.run(caller, check=True, env=variables, cwd=tmp_path, timeout=CLIENT_TIMEOUT_S)
            assert worker.stdout is not None
            assert f"sum={left + right}\n" in iter(worker.stdout.readline, ""), errors.read_text()
        worker.terminate()
        worker.communicate(timeout=CLIENT_TIMEOUT_S)
        assert worker.returncode == 0, errors.read_text()
    finally:
        worker.kill()
        worker.communicate(timeout=CLIENT_TIMEOUT_S)
    sqs = shared_server.sqs()
    counts = sqs.get_queue_attributes(QueueUrl=sqs.get_queue_url(QueueName="shop")["QueueUrl"], AttributeNames=["All"])[
        "Attributes"
    ]
    assert counts["ApproximateNumberOfMessages"] == counts["ApproximateNumberOfMessagesNotVisible"] == "0"
