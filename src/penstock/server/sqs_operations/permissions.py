"""Permissions: statements of a queue's policy, added and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.wire.sqs.permissions import add_permission, remove_permission

if TYPE_CHECKING:
    from penstock.engine.queues import Queues
    from penstock.server.sqs_operations.call import Call, Handler
    from penstock.wire.sqs import shapes


class PermissionOperations:
    """The operations on who may use a queue."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def handlers(self) -> dict[str, Handler]:
        """Return the operations by their names."""
        return {"AddPermission": self._add, "RemovePermission": self._remove}

    async def _add(self, call: Call, request: shapes.AddPermissionRequest) -> None:
        name = call.queue(request.queue_url)
        await self._queues.edit_policy(
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
        await self._queues.edit_policy(name, lambda policy: remove_permission(policy, name, label=request.label))
