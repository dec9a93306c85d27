"""Permissions: statements of a queue's policy, added and removed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.wire.sqs.permissions import add_permission, remove_permission

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.queues import Queues
    from penstock.domain.queue import QueueName
    from penstock.server.sqs_operations.call import Call, Handler
    from penstock.wire.sqs import shapes

_POLICY = "Policy"


class PermissionOperations:
    """The operations on who may use a queue."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        # Reading a policy and writing it back is two steps of the broker; none of this process's may come in between.
        self._editing = asyncio.Lock()

    def handlers(self) -> dict[str, Handler]:
        """Return the operations by their names."""
        return {"AddPermission": self._add, "RemovePermission": self._remove}

    async def _add(self, call: Call, request: shapes.AddPermissionRequest) -> None:
        name = call.queue(request.queue_url)
        await self._edit(
            name,
            lambda policy: add_permission(
                policy,
                name,
                label=request.label,
                accounts=request.account_ids or (),
                actions=request.actions or (),
            ),
        )

    async def _remove(self, call: Call, request: shapes.RemovePermissionRequest) -> None:
        name = call.queue(request.queue_url)
        await self._edit(name, lambda policy: remove_permission(policy, name, label=request.label))

    async def _edit(self, name: QueueName, change: Callable[[str], str]) -> None:
        async with self._editing:
            queue = await self._queues.find(name)
            await self._queues.set_attributes(name, {_POLICY: change(queue.attributes.policy)})
