"""Queues and tables of a scenario: named, made, found, emptied, and never left half made."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.lab.endpoints import CREDENTIALS, _session, client, endpoint_of, on_loopback
from penstock.lab.environment import Environment, Missing, QueueSettings, names_of
from penstock.lab.provisioning import Wanted
from penstock.lab.tables.places import DynamoPlace
from penstock.lab.validate import validate
from penstock.testing import RunningServer

NAMES = names_of("sqs-demo", "crash")


def environment(
    server: RunningServer, tables: str, *, make: bool = True, settings: QueueSettings | None = None
) -> Environment:
    settings = settings or QueueSettings()
    return Environment(
        names_of("sqs-demo", "crash", fifo=settings.fifo),
        settings,
        endpoint=server.url,
        region="us-west-1",
        tables_url=tables,
        make=make,
    )


def queues(sqs: Any) -> list[str]:
    return [url.rpartition("/")[2] for url in sqs.list_queues().get("QueueUrls", [])]


def test_names_are_those_of_the_project_and_the_scenario() -> None:
    fifo = names_of("p", "fifo-order", fifo=True)
    assert (fifo.queue, fifo.dlq) == ("p-fifo-order-queue.fifo", "p-fifo-order-dlq.fifo")
    assert NAMES.queue == "sqs-demo-crash-queue"
    assert NAMES.dlq == "sqs-demo-crash-dlq"
    assert NAMES.status_table == "sqs-demo-crash-message-status"
    assert NAMES.side_effects_table == "sqs-demo-crash-message-side-effects"


def test_queues_are_made_as_the_settings_say(server: RunningServer, sqs: Any, tmp_path: Path) -> None:
    with environment(server, f"sqlite:{tmp_path / 'tables.db'}") as made:
        attributes = sqs.get_queue_attributes(QueueUrl=made.queue_url, AttributeNames=["All"])["Attributes"]
        assert attributes["VisibilityTimeout"] == attributes["ReceiveMessageWaitTimeSeconds"] == "10"
        policy = {"deadLetterTargetArn": made.dlq_arn, "maxReceiveCount": 2}
        assert json.loads(attributes["RedrivePolicy"]) == policy
        assert sorted(queues(sqs)) == [NAMES.dlq, NAMES.queue]
    assert queues(sqs) == []


@pytest.mark.parametrize("fifo", [False, True])
def test_queues_have_other_names_as_long_as_sqs_refuses_the_usual(
    server: RunningServer, sqs: Any, tmp_path: Path, fifo: bool
) -> None:
    end = ".fifo" if fifo else ""
    for number in ("", "-2", "-3"):
        settings = QueueSettings(fifo=fifo)
        with environment(server, f"sqlite:{tmp_path / 'tables.db'}", settings=settings) as made:
            wanted = [f"sqs-demo-crash-{kind}{number}{end}" for kind in ("dlq", "queue")]
            assert sorted(queues(sqs)) == [made.names.dlq, made.names.queue] == wanted
            attributes = sqs.get_queue_attributes(QueueUrl=made.queue_url, AttributeNames=["All"])["Attributes"]
            assert attributes["QueueArn"].endswith(f":{made.names.queue}")
            assert json.loads(attributes["RedrivePolicy"])["deadLetterTargetArn"] == made.dlq_arn
        assert queues(sqs) == []


def test_a_queue_of_another_run_is_left_alone(server: RunningServer, sqs: Any, tmp_path: Path) -> None:
    with environment(server, f"sqlite:{tmp_path / 'tables.db'}"):
        pass
    for name in ("sqs-demo-crash-queue-2", "sqs-demo-crash-dlq-2"):
        sqs.create_queue(QueueName=name)
    with environment(server, f"sqlite:{tmp_path / 'tables.db'}") as made:
        assert (made.names.queue, made.names.dlq) == ("sqs-demo-crash-queue-3", "sqs-demo-crash-dlq-3")
    assert sorted(queues(sqs)) == ["sqs-demo-crash-dlq-2", "sqs-demo-crash-queue-2"]


def test_without_redrive_there_is_no_policy(server: RunningServer, sqs: Any, tmp_path: Path) -> None:
    with environment(server, f"sqlite:{tmp_path / 't.db'}", settings=QueueSettings(receives_max=0, fifo=True)) as made:
        attributes = sqs.get_queue_attributes(QueueUrl=made.queue_url, AttributeNames=["All"])["Attributes"]
        assert "RedrivePolicy" not in attributes
        assert attributes["FifoQueue"] == "true"


def test_what_was_made_is_removed_if_the_rest_fails(server: RunningServer, sqs: Any, tmp_path: Path) -> None:
    settings = QueueSettings(attributes={"VisibilityTimeout": "no number"})
    with (
        pytest.raises(Exception, match="VisibilityTimeout"),
        environment(server, f"sqlite:{tmp_path / 'tables.db'}", settings=settings),
    ):
        pass
    assert queues(sqs) == []


def test_what_was_made_is_removed_after_ctrl_c(
    server: RunningServer, sqs: Any, dynamodb: Any, dynamodb_url: str
) -> None:
    def interrupted() -> None:
        with environment(server, f"dynamodb:{dynamodb_url}"):
            assert len(dynamodb.list_tables()["TableNames"]) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert queues(sqs) == []
    assert dynamodb.list_tables()["TableNames"] == []


def test_resources_of_others_are_found_emptied_and_set_back(server: RunningServer, sqs: Any, tmp_path: Path) -> None:
    tables = f"sqlite:{tmp_path / 'tables.db'}"
    with environment(server, tables) as theirs:
        sqs.set_queue_attributes(QueueUrl=theirs.queue_url, Attributes={"ReceiveMessageWaitTimeSeconds": "0"})
        sqs.send_message(QueueUrl=theirs.queue_url, MessageBody="left over")
        other = environment(server, tables, make=False, settings=QueueSettings(visibility_s=3, receives_max=0))
        other.empty_wait_s = 0
        with other as found:
            assert found.queue_url == theirs.queue_url
            attributes = sqs.get_queue_attributes(QueueUrl=found.queue_url, AttributeNames=["All"])["Attributes"]
            assert attributes["VisibilityTimeout"] == "3"
            assert "RedrivePolicy" not in attributes
            assert attributes["ApproximateNumberOfMessages"] == "0"
        attributes = sqs.get_queue_attributes(QueueUrl=theirs.queue_url, AttributeNames=["All"])["Attributes"]
        assert attributes["VisibilityTimeout"] == "10"
        assert json.loads(attributes["RedrivePolicy"])["maxReceiveCount"] == 2


def test_a_queue_that_somebody_else_must_make_is_missed(server: RunningServer, tmp_path: Path) -> None:
    with (
        pytest.raises(Missing, match="There is no queue sqs-demo-crash-queue"),
        environment(server, f"sqlite:{tmp_path / 'tables.db'}", make=False),
    ):
        pass


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("https://sqs.us-west-1.amazonaws.com/123456789012/orders", None),
        ("https://us-west-1.queue.amazonaws.com/123456789012/orders", None),
        ("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders", None),
        ("http://localhost:9324/000000000000/orders", "http://localhost:9324"),
        ("https://queue.example.com/000000000000/orders", "https://queue.example.com"),
        ("https://amazonaws.com.example.org/1/orders", "https://amazonaws.com.example.org"),
    ],
)
def test_the_endpoint_comes_from_the_queue_unless_it_is_on_aws(url: str, endpoint: str | None) -> None:
    assert endpoint_of(url) == endpoint


LOOPBACK = [
    ("http://127.0.0.1:9324", True),
    ("http://localhost:4566", True),
    ("http://[::1]:9324", True),
    ("http://10.0.0.1:9324", False),
    ("https://queue.example.com", False),
    (None, False),
]


@pytest.mark.parametrize(("endpoint", "local"), LOOPBACK)
def test_some_endpoints_are_on_this_machine(endpoint: str | None, local: bool) -> None:
    assert on_loopback(endpoint) is local


@pytest.fixture
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A machine without any credentials of AWS, but with an instance metadata service."""
    for name in {*CREDENTIALS, "AWS_PROFILE"}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with socket.create_server(("127.0.0.1", 0)) as metadata:
        metadata.setblocking(False)
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{metadata.getsockname()[1]}")
        _session.cache_clear()
        yield metadata
    _session.cache_clear()


def access_key(endpoint: str | None, profile: str | None = None) -> str:
    _session.cache_clear()
    made = client("sqs", endpoint=endpoint, region="us-west-1", profile=profile)
    made.close()
    found: str = made._request_signer._credentials.access_key  # noqa: SLF001 - boto3 shows it nowhere else
    return found


def test_a_machine_without_credentials_can_use_its_own_endpoints(no_credentials: socket.socket) -> None:
    assert access_key("http://127.0.0.1:9324") == "lab"
    with pytest.raises(BlockingIOError):
        no_credentials.accept()


@pytest.mark.parametrize("endpoint", [endpoint for endpoint, _ in LOOPBACK])
@pytest.mark.usefixtures("no_credentials")
def test_the_users_own_credentials_are_used(
    endpoint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = "aws_access_key_id = {0}\naws_secret_access_key = secret\n"
    (tmp_path / "credentials").write_text("[default]\n" + keys.format("default"))
    (tmp_path / "config").write_text("[profile other]\n" + keys.format("other"))
    assert access_key(endpoint) == "default"
    assert access_key(endpoint, profile="other") == "other"
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert access_key(endpoint) == "other"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert access_key(endpoint) == "mine"
    assert access_key(endpoint, profile="other") == "other"


# -- validate -----------------------------------------------------------------------------------------


def faults(sqs: Any, dynamodb: Any) -> list[str]:
    tables = None if dynamodb is None else DynamoPlace(dynamodb)
    found = validate(sqs, tables, [Wanted(scenario="crash")])
    return [f"{fault.resource.removeprefix('sqs-demo-crash-')}: {fault.problem}" for fault in found]


def test_sound_resources_have_no_faults(server: RunningServer, sqs: Any, dynamodb: Any, dynamodb_url: str) -> None:
    with environment(server, f"dynamodb:{dynamodb_url}"):
        assert faults(sqs, dynamodb) == []


def test_all_that_is_missing_is_listed(sqs: Any, dynamodb: Any) -> None:
    assert faults(sqs, dynamodb) == [
        "dlq: there is no such queue",
        "queue: there is no such queue",
        "message-status: there is no such table",
        "message-side-effects: there is no such table",
    ]


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({"RedrivePolicy": ""}, "queue: it has no RedrivePolicy: poison messages would return for ever"),
        ({"VisibilityTimeout": "30"}, "queue: VisibilityTimeout is 30, not 10"),
        ({"ReceiveMessageWaitTimeSeconds": "0"}, "queue: ReceiveMessageWaitTimeSeconds is 0, not 10"),
    ],
)
def test_a_wrong_queue_is_a_fault(
    server: RunningServer, sqs: Any, tmp_path: Path, attributes: dict[str, str], problem: str
) -> None:
    with environment(server, f"sqlite:{tmp_path / 'tables.db'}") as made:
        sqs.set_queue_attributes(QueueUrl=made.queue_url, Attributes=attributes)
        assert faults(sqs, None) == [problem]


def test_a_wrong_redrive_policy_is_a_fault(server: RunningServer, sqs: Any, tmp_path: Path) -> None:
    with environment(server, f"sqlite:{tmp_path / 'tables.db'}") as made:
        other = sqs.create_queue(QueueName="other")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=other, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = {"deadLetterTargetArn": arn, "maxReceiveCount": 5}
        sqs.set_queue_attributes(QueueUrl=made.queue_url, Attributes={"RedrivePolicy": json.dumps(policy)})
        assert faults(sqs, None) == [
            f"queue: its dead letters go to {arn}, not to {made.dlq_arn}",
            "queue: maxReceiveCount is 5, not 2",
        ]


def test_a_table_without_the_key_is_a_fault(server: RunningServer, sqs: Any, dynamodb: Any, dynamodb_url: str) -> None:
    with environment(server, f"dynamodb:{dynamodb_url}") as made:
        dynamodb.delete_table(TableName=made.names.status_table)
        dynamodb.create_table(
            TableName=made.names.status_table,
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        assert faults(sqs, dynamodb) == ["message-status: its key must be HASH message_id alone, not HASH id"]
