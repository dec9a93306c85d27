"""What cannot work is refused at the start, with nothing half done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from botocore.config import Config

from penstock import SqsConsumer
from penstock.client.errors import ConsumerInvalid, QueueUnusable
from penstock.domain.policy import parse_user_policy
from penstock.server.access import AccessKey
from penstock.server.config import ServerConfig
from penstock.testing import serve
from tests.support.sqs_services import ONCE, SESSION, SqsService, until


def ignore(message: object) -> None:
    pass


async def ignore_later(event: object) -> None:
    pass


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"batch_size": 11}, "batch_size"),
        ({"wait": 21}, "wait"),
        ({"wait": 0.5}, "wait"),
        ({"visibility": 0}, "visibility"),
        ({"visibility": "13h"}, "visibility"),
        ({"heartbeat": 30}, "heartbeat"),
        ({"heartbeat": "soon"}, "heartbeat"),
        ({"backoff": 400}, "backoff"),
        ({"max_backoff": "13h"}, "max_backoff"),
        ({"grace": -1}, "grace"),
        ({"poison_after": 0}, "poison_after"),
        ({"key": str}, "idempotency"),
        ({"on_event": ignore_later}, "on_event"),
        ({"on_event": "print"}, "on_event"),
        ({"on_poison": "print"}, "on_poison"),
        ({"middleware": ignore_later}, "middleware"),
        ({"middleware": [ignore]}, "middleware"),
        ({"batch": True, "idempotency": lambda key: lambda handler: handler}, "Idempotency"),
    ],
)
def test_settings_that_make_no_sense_are_refused(sqlite_sqs: SqsService, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConsumerInvalid, match=said):
        SqsConsumer(sqlite_sqs.client, "http://localhost/queue", ignore, **settings)


def test_only_clients_of_sqs_are_taken(sqlite_sqs: SqsService) -> None:
    dynamodb, resource = SESSION.client("dynamodb"), SESSION.resource("sqs")
    for wrong, said in ((dynamodb, "dynamodb"), (resource, "resource"), (None, "None"), (object(), "object")):
        with pytest.raises(ConsumerInvalid, match=said):
            SqsConsumer(wrong, "http://localhost/queue", ignore)
    with pytest.raises(ConsumerInvalid, match="queue URL"):
        SqsConsumer(sqlite_sqs.client, "", ignore)
    with pytest.raises(ConsumerInvalid, match="handler"):
        SqsConsumer(sqlite_sqs.client, "http://localhost/queue", None)  # type: ignore[arg-type]
    dynamodb.close()
    resource.meta.client.close()


def test_a_client_that_gives_up_before_a_long_poll_ends_is_refused(sqlite_sqs: SqsService) -> None:
    client = sqlite_sqs.new_client(config=ONCE.merge(Config(read_timeout=10)))
    with pytest.raises(ConsumerInvalid, match="read_timeout"):
        SqsConsumer(client, "http://localhost/queue", ignore)
    SqsConsumer(client, "http://localhost/queue", ignore, wait=5)
    client.close()


async def test_a_queue_that_is_missing_is_an_error_at_once(sqs: SqsService) -> None:
    with pytest.raises(QueueUnusable, match="There is no queue"):
        await SqsConsumer(sqs.client, f"{sqs.url}/123456789012/nowhere", ignore).run()


async def test_an_endpoint_that_is_away_is_an_error_at_once(sqlite_sqs: SqsService) -> None:
    client = sqlite_sqs.new_client(config=ONCE)
    client.close()
    client = SESSION.client("sqs", endpoint_url="http://127.0.0.1:1", config=ONCE)
    with pytest.raises(QueueUnusable, match="cannot be reached"):
        await SqsConsumer(client, "http://127.0.0.1:1/000000000000/orders", ignore).run()
    client.close()


async def test_wrong_credentials_are_an_error_at_once() -> None:
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}]}
    key = AccessKey(id="KEY", secret="secret", account="0" * 12, user="ann", policy=parse_user_policy(everything))
    with serve(ServerConfig(port=0, store="memory:", log_level="error", keys=(key,))) as server:

        def client(secret: str) -> Any:
            return SESSION.client(
                "sqs", endpoint_url=server.url, config=ONCE, aws_access_key_id="KEY", aws_secret_access_key=secret
            )

        right, wrong = client("secret"), client("another")
        url = right.create_queue(QueueName="orders")["QueueUrl"]
        right.send_message(QueueUrl=url, MessageBody="a")
        with pytest.raises(QueueUnusable, match="credentials"):
            await SqsConsumer(wrong, url, ignore).run()
        attributes = right.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert attributes["ApproximateNumberOfMessages"] == "1"
        right.close()
        wrong.close()


async def test_a_queue_that_is_deleted_meanwhile_ends_the_consumer(ours: SqsService) -> None:
    url = ours.create("orders")
    consumer = SqsConsumer(ours.client, url, ignore, wait=0)
    running = asyncio.create_task(consumer.run())
    await until(lambda: consumer.counters.polls)
    ours.client.delete_queue(QueueUrl=url)
    with pytest.raises(QueueUnusable, match="There is no queue"):
        await running
