"""Durable queues and jobs for Python, with an SQS-compatible server."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client import errors
    from penstock.client.app import Penstock
    from penstock.client.idempotency.dynamo_effects import DynamoEffects
    from penstock.client.idempotency.dynamo_records import DynamoRecords
    from penstock.client.idempotency.idempotency import Idempotency
    from penstock.client.idempotency.postgres_records import PostgresRecords
    from penstock.client.idempotency.sqlite_records import SQLiteRecords
    from penstock.client.idempotency.verification import Happened
    from penstock.client.requests import Continuation, NewJob, value_of
    from penstock.client.sqs.consumer import SqsConsumer
    from penstock.client.sqs.message import Message
    from penstock.client.task_queue.async_handler import AsyncTaskQueueHandler
    from penstock.client.task_queue.cost import sqs_cost
    from penstock.client.task_queue.handler import TaskQueueHandler
    from penstock.client.tasks.app import Middleware, Next
    from penstock.client.tasks.batch import BatchTask
    from penstock.client.tasks.context import Context, current
    from penstock.client.tasks.flows import Flow, Progress
    from penstock.client.tasks.job import Job
    from penstock.client.tasks.retries import Discard, Retry, RetryAfter, Snooze
    from penstock.client.tasks.task import Call, Task
    from penstock.client.transactions.inbox import Inbox
    from penstock.client.transactions.outbox import Outbox
    from penstock.client.transactions.relay import Relay
    from penstock.client.worker.worker import Worker

__version__ = "0.1.0"
"""Written here because to look it up among installed packages takes longer than to import all of this."""
__all__ = [
    "AsyncTaskQueueHandler",
    "BatchTask",
    "Call",
    "Context",
    "Continuation",
    "Discard",
    "DynamoEffects",
    "DynamoRecords",
    "Flow",
    "Happened",
    "Idempotency",
    "Inbox",
    "Job",
    "Message",
    "Middleware",
    "NewJob",
    "Next",
    "Outbox",
    "Penstock",
    "PostgresRecords",
    "Progress",
    "Relay",
    "Retry",
    "RetryAfter",
    "SQLiteRecords",
    "Snooze",
    "SqsConsumer",
    "Task",
    "TaskQueueHandler",
    "Worker",
    "__version__",
    "current",
    "errors",
    "sqs_cost",
    "value_of",
]

# Whoever imports a part of the server must not pay for the client, so what is exported is loaded when it is asked for.
_HOMES = {
    "AsyncTaskQueueHandler": "task_queue.async_handler",
    "BatchTask": "tasks.batch",
    "Call": "tasks.task",
    "Context": "tasks.context",
    "Continuation": "requests",
    "Discard": "tasks.retries",
    "DynamoEffects": "idempotency.dynamo_effects",
    "DynamoRecords": "idempotency.dynamo_records",
    "Flow": "tasks.flows",
    "Happened": "idempotency.verification",
    "Idempotency": "idempotency.idempotency",
    "Inbox": "transactions.inbox",
    "Job": "tasks.job",
    "Message": "sqs.message",
    "Middleware": "tasks.app",
    "NewJob": "requests",
    "Next": "tasks.app",
    "Outbox": "transactions.outbox",
    "Penstock": "app",
    "PostgresRecords": "idempotency.postgres_records",
    "Progress": "tasks.flows",
    "Relay": "transactions.relay",
    "Retry": "tasks.retries",
    "RetryAfter": "tasks.retries",
    "SQLiteRecords": "idempotency.sqlite_records",
    "Snooze": "tasks.retries",
    "SqsConsumer": "sqs.consumer",
    "Task": "tasks.task",
    "TaskQueueHandler": "task_queue.handler",
    "Worker": "worker.worker",
    "current": "tasks.context",
    "sqs_cost": "task_queue.cost",
    "value_of": "requests",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return import_module("penstock.client.errors")
    if name in _HOMES:
        return getattr(import_module(f"penstock.client.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
