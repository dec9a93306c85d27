"""Calls of an SQS client: boto3's run in threads, aiobotocore's are awaited."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from penstock.client.errors import ConsumerInvalid

if TYPE_CHECKING:
    from penstock.client.worker.threads import Threads

BATCH_MAX = 10
"""How many entries SQS takes in one call."""
CALLS_MAX = 6
"""Calls at once besides the receive. botocore keeps ten connections unless told otherwise."""


def check_client(client: Any) -> None:  # noqa: ANN401 - boto3 has no types for its clients
    """Raise `ConsumerInvalid` unless this is an SQS client."""
    meta = getattr(client, "meta", None)
    service = getattr(getattr(meta, "service_model", None), "service_name", None)
    if service == "sqs":
        return
    if hasattr(meta, "client"):
        raise ConsumerInvalid("This is a boto3 resource. Pass its client: resource.meta.client.")
    given = repr(client) if service is None else f"one of {service}"
    raise ConsumerInvalid(f"An SQS client is needed, such as boto3.client('sqs'), not {given}.")


def is_async(client: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether the client's methods are awaited, as aiobotocore's are."""
    return inspect.iscoroutinefunction(getattr(client, "_make_api_call", None))


def read_timeout_s(client: Any) -> float | None:  # noqa: ANN401 - as above
    """Return how long the client waits for an answer, as far as that is known."""
    timeout = getattr(getattr(client.meta, "config", None), "read_timeout", None)
    return float(timeout) if isinstance(timeout, int | float) else None


class SqsApi:
    """Calls operations of a client without blocking the event loop."""

    def __init__(self, client: Any, threads: Threads) -> None:  # noqa: ANN401 - as above
        self.client = client
        self.is_async = is_async(client)
        self._threads = threads
        self._room = asyncio.Semaphore(CALLS_MAX)

    async def call(self, operation: str, /, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON holds anything
        """Call an operation by its name in Python, as `delete_message_batch`."""
        async with self._room:
            return await self.start(operation, **parameters)

    def start(self, operation: str, /, **parameters: Any) -> asyncio.Future[dict[str, Any]]:  # noqa: ANN401 - as above
        """Begin a call, however many there are. Cancelling it abandons a thread, and what it returns is dropped."""
        method = getattr(self.client, operation)
        if self.is_async:
            awaited: asyncio.Future[dict[str, Any]] = asyncio.ensure_future(method(**parameters))
            return awaited
        return self._threads.run(method, **parameters)
