"""Extract 42 fields over an SQS FIFO queue with three consumers, each a process of its own, one of which is killed.

    python examples/three_sqs_consumers.py [DOCUMENT]

A Penstock server in memory is started for it. PENSTOCK_URL names another store for that server. The consumers would
work on AWS as they are.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import Any

import boto3

from penstock import TaskQueueHandler

FIELDS = [f"field{number}" for number in range(1, 43)]
HOPELESS = "field7"
CONSUMERS = 3
RECEIVES_MAX = 2
RECORD = "consumers-record.db"


async def extract(entity_id: str, task_name: str, task_config: dict[str, Any], metadata: dict[str, Any]) -> str:
    """Stand in for a model that reads one field. The record takes each once: a killed consumer's are read again."""
    await asyncio.sleep(0.1)
    if task_name == HOPELESS:
        raise ValueError("the page is missing")
    with closing(sqlite3.connect(RECORD, timeout=10)) as db, db:
        db.execute("INSERT OR IGNORE INTO record VALUES (?, ?, ?)", (entity_id, task_name, task_config["unit"]))
    return f"{task_name} of {entity_id} for {metadata['organization']}"


def recorded() -> int:
    with closing(sqlite3.connect(RECORD, timeout=10)) as db, db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS record (entity TEXT, field TEXT, unit TEXT, PRIMARY KEY (entity, field))"
        )
        count: int = db.execute("SELECT count(*) FROM record").fetchone()[0]
    return count


def client() -> Any:  # noqa: ANN401 - boto3 has no types
    return boto3.client("sqs", endpoint_url=os.environ["SQS_ENDPOINT_URL"])


async def consume() -> None:
    """Run tasks until SIGTERM."""
    handler = TaskQueueHandler(client(), os.environ["SQS_TASK_QUEUE_URL"], os.environ["SQS_DLQ_URL"])
    handler.visibility_timeout = 3  # What a killed consumer had comes back after this time. 900 s unless you say so.
    handler.wait_time = 1
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await handler.run(extract, concurrency=4, stop=stop)


def create_queues() -> tuple[str, str]:
    """Create a FIFO queue and its dead-letter queue; return their URLs."""
    sqs = client()
    dead = sqs.create_queue(QueueName="fields-dead.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": RECEIVES_MAX})
    queue = sqs.create_queue(QueueName="fields.fifo", Attributes={"FifoQueue": "true", "RedrivePolicy": policy})
    return queue["QueueUrl"], dead


def main(document: str) -> None:
    os.environ["SQS_TASK_QUEUE_URL"], os.environ["SQS_DLQ_URL"] = queue_url, dead_url = create_queues()
    handler = TaskQueueHandler(client(), queue_url, dead_url)
    tasks = [{"name": field, "config": {"unit": "text"}} for field in FIELDS]
    enqueued = handler.enqueue_tasks(document, tasks, metadata={"organization": "acme"})
    recorded()
    consumers = [subprocess.Popen([sys.executable, __file__, "consumer"]) for _ in range(CONSUMERS)]  # noqa: S603 - this very program
    while not recorded():
        time.sleep(0.02)
    consumers[0].kill()
    while recorded() < enqueued - 1 or not (dead := handler.get_dlq_messages()):
        time.sleep(0.1)
    for consumer in consumers[1:]:
        consumer.terminate()
    for consumer in consumers:
        consumer.wait()
    found = f"{recorded()} of {enqueued} fields of {document}, {CONSUMERS} consumers, one of them killed"
    print(f"{found}; dead letters: {', '.join(letter['task_name'] for letter in dead)}")


def serve_and_run(document: str) -> None:
    """Start a server, run against it, and stop it."""
    store = os.environ.get("PENSTOCK_URL", "memory:")
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--store", store, "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - this project's own
        assert server.stdout is not None
        os.environ["SQS_ENDPOINT_URL"] = server.stdout.readline().split()[-1]
        try:
            main(document)
        finally:
            server.terminate()


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)  # The failures of this example are meant.
    os.environ |= {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1"}
    if sys.argv[1:] == ["consumer"]:
        asyncio.run(consume())
    else:
        serve_and_run(sys.argv[1] if len(sys.argv) > 1 else "doc-123")
