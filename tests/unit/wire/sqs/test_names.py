from __future__ import annotations

import pytest

from penstock.domain.queue import QueueName
from penstock.wire.sqs.names import parse_queue_url, queue_url

HERE = ("us-east-1", "000000000000")
LOCAL = "http://localhost:9324"

READ = [
    (f"{LOCAL}/000000000000/orders", QueueName(*HERE, "orders")),
    (f"{LOCAL}/111122223333/orders.fifo", QueueName("us-east-1", "111122223333", "orders.fifo")),
    ("https://any.host.example/000000000000/orders", QueueName(*HERE, "orders")),
    ("HTTPS://[::1]:9324/000000000000/orders", QueueName(*HERE, "orders")),
    (f"{LOCAL}/000000000000/orders/", QueueName(*HERE, "orders")),
    (f"{LOCAL}/000000000000/orders?Action=SendMessage", QueueName(*HERE, "orders")),
    (f"{LOCAL}/queue/orders", QueueName(*HERE, "orders")),
    (f"{LOCAL}/queue/eu-west-1/111122223333/orders", QueueName("eu-west-1", "111122223333", "orders")),
    (f"{LOCAL}/behind/a/proxy/000000000000/orders", QueueName(*HERE, "orders")),
    ("https://sqs.eu-west-1.amazonaws.com/111122223333/orders", QueueName("eu-west-1", "111122223333", "orders")),
    ("https://eu-west-1.queue.amazonaws.com/111122223333/orders", QueueName("eu-west-1", "111122223333", "orders")),
    ("http://sqs.us-gov-west-1.localhost:9324/queue/a", QueueName("us-gov-west-1", "000000000000", "a")),
    ("orders", QueueName(*HERE, "orders")),
    ("orders.fifo", QueueName(*HERE, "orders.fifo")),
    ("queue", QueueName(*HERE, "queue")),
    ("/000000000000/orders", QueueName(*HERE, "orders")),
    ("/queue/orders", QueueName(*HERE, "orders")),
    ("", None),
    ("/", None),
    ("/queue", None),
    (LOCAL, None),
    (f"{LOCAL}/", None),
    ("x" * 1_025, None),
]


@pytest.mark.parametrize(("url", "name"), READ)
def test_queue_urls_are_read_in_all_their_forms(url: str, name: QueueName | None) -> None:
    assert parse_queue_url(url, *HERE) == name


WRITTEN = [
    (QueueName(*HERE, "orders"), LOCAL, f"{LOCAL}/000000000000/orders"),
    (QueueName("eu-west-1", "000000000000", "orders"), LOCAL, f"{LOCAL}/queue/eu-west-1/000000000000/orders"),
    (
        QueueName("eu-west-1", "000000000000", "orders"),
        "https://sqs.eu-west-1.example.com",
        "https://sqs.eu-west-1.example.com/000000000000/orders",
    ),
]


@pytest.mark.parametrize(("name", "base", "url"), WRITTEN)
def test_queue_urls_are_written_and_read_back(name: QueueName, base: str, url: str) -> None:
    assert queue_url(name, base, "us-east-1") == url
    assert parse_queue_url(url, *HERE) == name
