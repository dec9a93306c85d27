"""Keys, policies and queues from a configuration file, with stock clients against a real server."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.end_to_end.running import QUICK_RETRIES, REGION, STOP_TIMEOUT_S, RunningServer, fail_to_serve

pytestmark = pytest.mark.slow

OWNER, OTHER = "111122223333", "444455556666"
TOKEN = "a token for monitoring"
SECRETS = {"ADMIN": "the secret of the admin", "WORKER": "the+secret/of the worker", "NEIGHBOUR": "another secret"}
FILE = f"""
region = "{REGION}"
log_format = "json"
port = 1  # A flag says otherwise.

[[keys]]
access_key_id = "ADMIN"
secret_access_key = "{SECRETS["ADMIN"]}"
account = "{OWNER}"
policy = '''
{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}}]}}
'''

[[keys]]
access_key_id = "WORKER"
secret_access_key = "{SECRETS["WORKER"]}"
account = "{OWNER}"
user = "worker"
policy_file = "worker.json"

[[keys]]
access_key_id = "NEIGHBOUR"
secret_access_key = "{SECRETS["NEIGHBOUR"]}"
account = "{OTHER}"
policy.Version = "2012-10-17"
policy.Statement = [{{ Effect = "Allow", Action = "sqs:*", Resource = "*" }}]

[[queues]]
name = "tasks.fifo"
account = "{OWNER}"
attributes = {{ ContentBasedDeduplication = true, VisibilityTimeout = 900 }}
tags = {{ team = "tea" }}
redrive = {{ dead_letter_queue = "tasks-dead.fifo", max_receive_count = 5 }}

[[queues]]
name = "tasks-dead.fifo"
account = "{OWNER}"
"""
WORKER_POLICY = """
{
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": [
                "sqs:SendMessage",
                "sqs:ReceiveMessage",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
                "sqs:GetQueueUrl"
            ],
            "Resource": [
                "arn:aws:sqs:*:*:tasks*.fifo"
            ]
        }
    ]
}
"""


def guard(folder: Path, *arguments: str, **variables: str) -> RunningServer:
    """Start a server with these keys and queues."""
    (folder / "penstock.toml").write_text(FILE)
    (folder / "worker.json").write_text(WORKER_POLICY)
    own = ("--config", "penstock.toml", "--port", "0")
    return RunningServer(folder, *own, *arguments, PENSTOCK_MONITORING_TOKEN=TOKEN, **variables)


@pytest.fixture
def guarded(store_url: str, tmp_path: Path) -> Iterator[RunningServer]:
    with guard(tmp_path, "--log-level", "debug", PENSTOCK_STORE=store_url) as server:
        yield server


def client(server: RunningServer, key: str, secret: str | None = None) -> Any:
    session = boto3.session.Session(
        aws_access_key_id=key, aws_secret_access_key=SECRETS.get(key, "") if secret is None else secret
    )
    return session.client("sqs", endpoint_url=server.url, region_name=REGION, config=QUICK_RETRIES)


def code_of(call: Any, **parameters: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**parameters)
    return str(refused.value.response["Error"]["Code"])


def fetch(url: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=STOP_TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_worker_does_its_work_and_nothing_else(guarded: RunningServer) -> None:
    worker = client(guarded, "WORKER")
    url = worker.get_queue_url(QueueName="tasks.fifo")["QueueUrl"]
    worker.send_message(QueueUrl=url, MessageBody="one", MessageGroupId="g")
    worker.send_message_batch(QueueUrl=url, Entries=[{"Id": "2", "MessageBody": "two", "MessageGroupId": "g"}])
    messages = worker.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5, MessageSystemAttributeNames=["SenderId"]
    )["Messages"]
    assert [(m["Body"], m["Attributes"]["SenderId"]) for m in messages] == [("one", "worker"), ("two", "worker")]
    for message in messages:
        worker.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    attributes = worker.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "900"
    assert attributes["RedrivePolicy"].endswith('tasks-dead.fifo","maxReceiveCount":5}')
    assert code_of(worker.delete_queue, QueueUrl=url) == "AccessDenied"
    assert code_of(worker.create_queue, QueueName="mine") == "AccessDenied"
    [denial] = re.findall(r'"reason": "(.*?) because', guarded.errors.read_text())[-1:]
    assert re.fullmatch(r"User: arn:aws:iam::\d+:user/worker is not .*: sqs:createqueue on .*:mine", denial)


def test_those_who_are_not_who_they_say_are_refused(guarded: RunningServer) -> None:
    assert code_of(client(guarded, "ADMIN", "guessed").list_queues) == "SignatureDoesNotMatch"
    assert code_of(client(guarded, "STRANGER", "any").list_queues) == "InvalidClientTokenId"
    status, answer = fetch(f"{guarded.url}/?Action=ListQueues")
    assert (status, "<Code>MissingAuthenticationToken</Code>" in answer) == (403, True)
    secrets = [*SECRETS.values(), TOKEN, "guessed"]
    log = guarded.errors.read_text()
    assert not any(secret in log for secret in secrets)


def test_a_presigned_url_needs_no_key_of_its_own(guarded: RunningServer) -> None:
    admin = client(guarded, "ADMIN")
    url = admin.create_queue(QueueName="orders")["QueueUrl"]
    admin.send_message(QueueUrl=url, MessageBody="tea & biscuits")
    status, _ = fetch(url + "?Action=ReceiveMessage")
    assert status == 403
    presigned = presign(admin, f"{url}?Action=ReceiveMessage&Version=2012-11-05&AttributeName.1=All")
    status, answer = fetch(presigned)
    assert (status, "tea &amp; biscuits" in answer) == (200, True)
    assert fetch(presigned.replace("ReceiveMessage", "PurgeQueue"))[0] == 403


def presign(sqs: Any, url: str) -> str:
    request = {"method": "GET", "url": url, "headers": {}, "body": b"", "context": {}, "url_path": "/"}
    presigned: str = sqs._request_signer.generate_presigned_url(request, "ListQueues", expires_in=60)  # noqa: SLF001 - botocore's own signer of URLs
    return presigned


def test_accounts_share_what_they_permit(guarded: RunningServer) -> None:
    admin, neighbour = client(guarded, "ADMIN"), client(guarded, "NEIGHBOUR")
    url = admin.create_queue(QueueName="orders")["QueueUrl"]
    assert neighbour.list_queues().get("QueueUrls", []) == []
    assert code_of(neighbour.send_message, QueueUrl=url, MessageBody="a") == "AccessDenied"
    admin.add_permission(QueueUrl=url, Label="share", AWSAccountIds=[OTHER], Actions=["SendMessage"])
    neighbour.send_message(QueueUrl=url, MessageBody="from next door")
    assert code_of(neighbour.receive_message, QueueUrl=url) == "AccessDenied"
    [message] = admin.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    assert message["Body"] == "from next door"


def test_metrics_and_logs_tell_of_requests(guarded: RunningServer) -> None:
    admin = client(guarded, "ADMIN")
    answer = admin.list_queues()
    request_id = answer["ResponseMetadata"]["RequestId"]
    assert fetch(f"{guarded.url}/metrics")[0] == 401
    status, text = fetch(f"{guarded.url}/metrics", Authorization=f"Bearer {TOKEN}")
    assert status == 200
    assert 'penstock_requests_total{operation="ListQueues",status="200"} 1.0' in text
    labels = f'account="{OWNER}",queue="tasks.fifo",region="{REGION}",state="visible"'
    assert f"penstock_queue_messages{{{labels}}} 0.0" in text
    assert guarded.stop() == (0, "")
    lines = [json.loads(line) for line in guarded.errors.read_text().splitlines()]
    [line] = [line for line in lines if line.get("request_id") == request_id]
    assert (line["event"], line["operation"], line["status"], line["level"]) == ("request", "ListQueues", 200, "debug")


def test_with_keys_a_server_may_listen_where_others_reach_it(guarded: RunningServer, tmp_path: Path) -> None:
    arguments = ("--config", "penstock.toml", "--port", "0", "--store", "memory:", "--host", "0.0.0.0")
    with RunningServer(tmp_path, *arguments) as server:
        assert server.stop() == (0, "")


def test_signatures_go_by_the_time_of_the_world_and_not_by_a_clock_that_was_moved(tmp_path: Path) -> None:
    with guard(tmp_path, "--store", "memory:", "--clock", "manual") as server:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        status, _ = fetch(f"{server.url}/_penstock/clock/advance", b'{"seconds": 86400}', **bearer)
        assert status == 200
        assert len(client(server, "ADMIN").list_queues()["QueueUrls"]) == 2


def test_flags_go_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('port = 1\nhost = "localhost"\nstore = "memory:"\nlog_format = "json"\n')
    with RunningServer(
        tmp_path, "--port", "0", PENSTOCK_CONFIG="penstock.toml", PENSTOCK_PORT="2", PENSTOCK_LOG_FORMAT="console"
    ) as server:
        assert server.url.startswith("http://localhost:")
        assert server.stop() == (0, "")
        assert '"event"' not in server.errors.read_text()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", "penstock.toml, line 1: unknown setting prot."),
        ('[[queues]]\nname = "a b"', "The queue a b cannot be made as it is declared."),
        ('[[keys]]\naccess_key_id = "A"\nsecret = "hush"', "unknown setting keys.0.secret."),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "penstock.toml").write_text(text)
    said = fail_to_serve(tmp_path, "--config", "penstock.toml", "--port", "0", "--store", "memory:")
    assert told in said
    assert "hush" not in said
