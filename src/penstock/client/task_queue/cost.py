"""What a queue of tasks costs on AWS, with every kind of request counted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.client.errors import ConsumerInvalid

MONTH_S = 30 * 86_400
CHUNK_KIB = 64
"""AWS bills each 64 KiB of a call as a request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SqsCost:
    """Requests of a month and their price."""

    sends: int
    receives: int
    """That bring messages."""
    empty_receives: int
    deletes: int
    visibility_changes: int
    requests: int
    """As AWS bills them, in chunks of 64 KiB."""
    billed: int
    """Those beyond the free ones."""
    usd: float
    assumptions: tuple[str, ...]
    """What the numbers take for granted."""


def sqs_cost(  # noqa: PLR0913 - each is a number that the cost depends on
    messages: int,
    *,
    consumers: int = 1,
    wait_s: float = 5,
    task_s: float = 0,
    concurrency: int = 1,
    send_batch: int = 10,
    receive_batch: int = 1,
    delete_batch: int = 1,
    receives_per_message: float = 1,
    heartbeat_s: float = 300,
    body_kib: float = 1,
    usd_per_million: float = 0.50,
    free_requests: int = 1_000_000,
) -> SqsCost:
    """Estimate what a month of `messages` tasks costs, empty polls included.

    The prices are those of FIFO queues in us-east-1, which you can replace. Each consumer polls whenever it has room:
    the less it has to do, the more of its polls are empty, one every `wait_s`. `receives_per_message` is 1 and
    the share of retries; `send_batch`, `receive_batch` and `delete_batch` say how many messages share a call.
    """
    for name, value, least in (
        ("messages", messages, 0),
        ("consumers", consumers, 0),
        ("wait_s", wait_s, 0.1),
        ("task_s", task_s, 0),
        ("concurrency", concurrency, 1),
        ("send_batch", send_batch, 1),
        ("receive_batch", receive_batch, 1),
        ("delete_batch", delete_batch, 1),
        ("receives_per_message", receives_per_message, 1),
        ("heartbeat_s", heartbeat_s, 1),
        ("body_kib", body_kib, 0),
        ("usd_per_million", usd_per_million, 0),
        ("free_requests", free_requests, 0),
    ):
        if not math.isfinite(value) or value < least:
            raise ConsumerInvalid(f"{name} is a number of at least {least}, not {value!r}.")
    runs = messages * receives_per_message
    sends = math.ceil(messages / send_batch)
    receives = math.ceil(runs / receive_batch)
    deletes = math.ceil(messages / delete_batch)
    failures = math.ceil(runs - messages)
    changes = failures + math.ceil(runs * (task_s // heartbeat_s))
    busy_s = min(runs * task_s / concurrency, consumers * MONTH_S)
    empty = math.ceil((consumers * MONTH_S - busy_s) / wait_s)
    requests = (
        sends * _chunks(body_kib * send_batch)
        + receives * _chunks(body_kib * receive_batch)
        + empty
        + deletes
        + changes
    )
    billed = max(requests - free_requests, 0)
    return SqsCost(
        sends=sends,
        receives=receives,
        empty_receives=empty,
        deletes=deletes,
        visibility_changes=changes,
        requests=requests,
        billed=billed,
        usd=round(billed * usd_per_million / 1_000_000, 4),
        assumptions=(
            "A month has 30 days, and consumers run all of it.",
            "Calls that bring messages do not wait: messages come when there is room for them.",
            "Batches are full, and sends are spread over the month.",
            "The free requests are the account's, for all of its queues.",
            "Not counted: data leaving the region, KMS, looks at counts, and calls that are tried again.",
        ),
    )


def _chunks(kib: float) -> int:
    return max(math.ceil(kib / CHUNK_KIB), 1)
