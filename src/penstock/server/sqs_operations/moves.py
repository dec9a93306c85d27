"""Message move tasks: start, cancel and list them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.errors import (
    InvalidParameter,
    MoveTaskDoesNotExist,
    QueueDoesNotExist,
    UnsupportedOperation,
)
from penstock.domain.move import MoveFailure, MoveStatus
from penstock.domain.queue import QueueName
from penstock.wire.sqs import shapes
from penstock.wire.sqs.errors import ResourceDoesNotExist
from penstock.wire.sqs.move_handles import MoveHandle, decode_move_handle, encode_move_handle

if TYPE_CHECKING:
    from penstock.domain.limits import Limits
    from penstock.domain.move import MoveTask
    from penstock.engine.moves import Moves
    from penstock.engine.queues import Queues
    from penstock.server.sqs_operations.call import Call, Handler

_FAILURES = {
    MoveFailure.DESTINATION_DOES_NOT_EXIST: "AWS.SimpleQueueService.NonExistentQueue",
    MoveFailure.SOURCE_UNKNOWN: "CouldNotDetermineMessageSource",
    MoveFailure.DESTINATION_NOT_PERMITTED: "AccessDenied",
}


class MoveOperations:
    """The operations on message move tasks."""

    def __init__(self, moves: Moves, queues: Queues, limits: Limits) -> None:
        self._moves = moves
        self._queues = queues
        self._limits = limits

    def handlers(self) -> dict[str, Handler]:
        """Return the operations by their names."""
        return {
            "StartMessageMoveTask": self._start,
            "CancelMessageMoveTask": self._cancel,
            "ListMessageMoveTasks": self._list,
        }

    async def _start(
        self, call: Call, request: shapes.StartMessageMoveTaskRequest
    ) -> shapes.StartMessageMoveTaskResult:
        source = await self._existing("SourceArn", request.source_arn)
        destination = (
            await self._existing("DestinationArn", request.destination_arn) if request.destination_arn else None
        )
        try:
            task = await self._moves.start(
                source,
                destination=destination,
                rate=request.max_number_of_messages_per_second,
                permitted=call.destinations,
            )
        except UnsupportedOperation:
            raise InvalidParameter(
                "There is already a task running. "
                "Only one active task is allowed for a source queue arn at a given time."
            ) from None
        return shapes.StartMessageMoveTaskResult(task_handle=_handle(task))

    async def _cancel(
        self, _call: Call, request: shapes.CancelMessageMoveTaskRequest
    ) -> shapes.CancelMessageMoveTaskResult:
        handle = decode_move_handle(request.task_handle)
        source = await self._existing("SourceArn", handle.source_arn)
        tasks = await self._moves.list_tasks(source, limit=self._limits.moves_listed_max)
        # The handle is not signed, so that a task is cancelled only by way of the queue that it belongs to.
        if not any(task.id == handle.task_id and task.status is MoveStatus.RUNNING for task in tasks):
            raise MoveTaskDoesNotExist("Task does not exist.")
        task = await self._moves.cancel(handle.task_id)
        return shapes.CancelMessageMoveTaskResult(approximate_number_of_messages_moved=task.moved)

    async def _list(
        self, _call: Call, request: shapes.ListMessageMoveTasksRequest
    ) -> shapes.ListMessageMoveTasksResult:
        source = await self._existing("SourceArn", request.source_arn)
        tasks = await self._moves.list_tasks(source, limit=1 if request.max_results is None else request.max_results)
        return shapes.ListMessageMoveTasksResult(results=[_entry(task) for task in tasks] or None)

    async def _existing(self, parameter: str, arn: str) -> QueueName:
        """Read the ARN of a queue that exists."""
        try:
            return (await self._queues.find(queue_of_arn(parameter, arn))).name
        except QueueDoesNotExist:
            raise ResourceDoesNotExist(
                f"The resource that you specified for the {parameter} parameter doesn't exist."
            ) from None


def queue_of_arn(parameter: str, arn: str) -> QueueName:
    """Read the ARN of a queue, given as this parameter."""
    try:
        return QueueName.from_arn(arn)
    except InvalidParameter:
        raise InvalidParameter(
            f"You must use this format to specify the {parameter}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        ) from None


def _handle(task: MoveTask) -> str:
    return encode_move_handle(MoveHandle(task.id, task.source.arn))


def _entry(task: MoveTask) -> shapes.ListMessageMoveTasksResultEntry:
    return shapes.ListMessageMoveTasksResultEntry(
        # A task that has ended can no longer be cancelled, and so has no handle.
        task_handle=_handle(task) if task.status is MoveStatus.RUNNING else None,
        status=task.status.value,
        source_arn=task.source.arn,
        destination_arn=None if task.destination is None else task.destination.arn,
        max_number_of_messages_per_second=task.rate,
        approximate_number_of_messages_moved=task.moved,
        approximate_number_of_messages_to_move=task.to_move,
        failure_reason=None if task.failure is None else _FAILURES[task.failure],
        started_timestamp=task.started_at_ms,
    )
