"""Queues that the configuration declares, made or brought up to date at the start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.domain.errors import PenstockError, QueueDoesNotExist
from penstock.domain.queue import QueueName
from penstock.server.config import StartFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.engine.queues import Queues
    from penstock.server.config import DeclaredQueue


async def make_declared_queues(queues: Queues, declared: Iterable[DeclaredQueue]) -> None:
    """Have every declared queue, with what is declared of it. What is not declared of one that exists stays.

    Raises `StartFailure` that names the queue if one cannot be had.
    """
    declared = list(declared)
    # Redrives come last, since they may name queues in any order.
    for step in (_make, _redrive):
        for queue in declared:
            try:
                await step(queues, queue)
            except PenstockError as error:
                raise StartFailure(f"The queue {queue.name} cannot be made as it is declared. {error.reason}") from None


async def _make(queues: Queues, declared: DeclaredQueue) -> None:
    name = QueueName(declared.region, declared.account, declared.name)
    try:
        found = await queues.find(name)
    except QueueDoesNotExist:
        await queues.create(name, declared.attributes, declared.tags)
        return
    await _set(queues, name, declared.attributes)
    if not declared.tags.items() <= found.tags.items():
        await queues.tag(name, declared.tags)


async def _redrive(queues: Queues, declared: DeclaredQueue) -> None:
    if declared.dead_letter_queue is None:
        return
    name = QueueName(declared.region, declared.account, declared.name)
    target = QueueName(declared.region, declared.account, declared.dead_letter_queue)
    policy = {"deadLetterTargetArn": target.arn, "maxReceiveCount": declared.max_receive_count}
    await _set(queues, name, {"RedrivePolicy": json.dumps(policy, separators=(",", ":"))})


async def _set(queues: Queues, name: QueueName, attributes: Mapping[str, str]) -> None:
    """Set attributes, but leave a queue that has them alone: it was not modified."""
    if not attributes.items() <= (await queues.describe(name)).items():
        await queues.set_attributes(name, attributes)
