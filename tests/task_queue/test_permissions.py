"""The IAM policy of the original is enough; what it does not grant costs one warning."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from penstock import TaskQueueHandler
from penstock.domain.policy import parse_user_policy
from penstock.server.access import AccessKey
from penstock.server.config import ServerConfig
from penstock.testing import RunningServer, serve
from tests.docs.pages import page
from tests.support.postgres import PostgresServer
from tests.support.sqs_services import ONCE, SESSION
from tests.task_queue.handling import BOTH, echo, fail

ACCOUNT = "0" * 12
_numbers = itertools.count(1)
ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}]}


def policies() -> list[dict[str, Any]]:
    """Return the policies of the page: the original's, and the one with more in it."""
    blocks = page("docs/task-queue-handler.md").of("json")
    return [json.loads(block.text.replace("{queue-name-pattern}", "tasks*")) for block in blocks]


def key(name: str, policy: dict[str, Any]) -> AccessKey:
    return AccessKey(id=name, secret=f"{name}'s", account=ACCOUNT, user=name, policy=parse_user_policy(policy))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    original, more = policies()
    keys = (key("ADMIN", ALL), key("ORIGINAL", original), key("MORE", more))
    with contextlib.ExitStack() as stack:
        store = f"sqlite:{tmp_path_factory.mktemp('guarded') / 'penstock.db'}"
        if request.param == "postgres":
            postgres: PostgresServer = request.getfixturevalue("postgres_server")
            database = postgres.create_database()
            stack.callback(postgres.drop_database, database)
            store = postgres.dsn(database)
        yield stack.enter_context(
            serve(ServerConfig(port=0, store=store, clock="manual", log_level="error", keys=keys))
        )


def client_of(server: RunningServer, name: str, secret: str) -> Any:
    return SESSION.client(
        "sqs", endpoint_url=server.url, config=ONCE, aws_access_key_id=name, aws_secret_access_key=secret
    )


@pytest.fixture(scope="module")
def clients(guarded: RunningServer) -> Iterator[dict[str, Any]]:
    made = {name: client_of(guarded, name, f"{name}'s") for name in ("ADMIN", "ORIGINAL", "MORE")}
    yield made
    for client in made.values():
        client.close()


@pytest.fixture
def queues(clients: dict[str, Any]) -> tuple[str, str]:
    admin, fifo = clients["ADMIN"], {"FifoQueue": "true"}
    number = next(_numbers)
    dead = admin.create_queue(QueueName=f"tasks-dead-{number}.fifo", Attributes=fifo)["QueueUrl"]
    arn = admin.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    attributes = {**fifo, "RedrivePolicy": policy}
    return admin.create_queue(QueueName=f"tasks-{number}.fifo", Attributes=attributes)["QueueUrl"], dead


@pytest.mark.parametrize("kind", BOTH)
async def test_the_policy_of_the_original_is_enough(
    kind: Any,
    clients: dict[str, Any],
    queues: tuple[str, str],
    guarded: RunningServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler = kind(clients["ORIGINAL"], *queues)
    assert handler.enqueue_tasks("doc", [{"name": "a"}, {"name": "b"}], {}) == 2
    assert (await handler.process_one(fail))["status"] == "failed"
    assert (await handler.process_one(echo))["status"] == "completed"
    guarded.clock.advance(seconds=899)
    assert handler.get_queue_status()["messages_available"] == 0, "it comes back when its visibility ends"
    guarded.clock.advance(seconds=1)
    assert (await handler.process_one(fail))["status"] == "failed"
    guarded.clock.advance(seconds=900)
    assert clients["ADMIN"].receive_message(QueueUrl=queues[0]).get("Messages", []) == []
    assert len(handler.get_dlq_messages()) == 1
    if kind is TaskQueueHandler:
        assert len(handler.get_dlq_messages(100)) == 1
        warned = [record for record in caplog.records if "not allowed to change visibility" in record.message]
        assert len(warned) == 1
        with pytest.raises(ClientError, match="AccessDenied") as denied:
            handler.redrive()
        assert "do not allow this call" in denied.value.__notes__[0]


async def test_the_policy_of_the_page_allows_all_of_it(
    clients: dict[str, Any], queues: tuple[str, str], guarded: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    handler = TaskQueueHandler(clients["MORE"], *queues)
    handler.enqueue_tasks("doc", [{"name": "a"}], {})
    for _ in range(2):
        assert (await handler.process_one(fail) or {})["status"] == "failed"
        guarded.clock.advance(seconds=2)
    assert clients["ADMIN"].receive_message(QueueUrl=queues[0]).get("Messages", []) == []
    assert len(handler.get_dlq_messages(100)) == 1
    assert handler.redrive()
    assert caplog.records == [record for record in caplog.records if "not allowed" not in record.message]


async def test_wrong_credentials_are_an_error_that_says_so(
    clients: dict[str, Any], queues: tuple[str, str], guarded: RunningServer
) -> None:
    wrong = client_of(guarded, "ADMIN", "guessed")
    handler = TaskQueueHandler(wrong, *queues)
    with pytest.raises(ClientError) as refused:
        handler.enqueue_tasks("doc", [{"name": "a"}], {})
    assert "credentials" in refused.value.__notes__[0]
    assert "guessed" not in str(refused.value) + refused.value.__notes__[0]
    wrong.close()
