"""The operations of SQS: what each is called, takes and gives."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.wire.sqs import shapes


class Operation(msgspec.Struct, frozen=True):
    """One operation. `result` is None where success is all there is to say."""

    name: str
    request: type[msgspec.Struct]
    result: type[msgspec.Struct] | None
    json_decoder: msgspec.json.Decoder[Any]


def _operation(name: str, request: type[msgspec.Struct], result: type[msgspec.Struct] | None = None) -> Operation:
    return Operation(name, request, result, msgspec.json.Decoder(request))


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        _operation("AddPermission", shapes.AddPermissionRequest),
        _operation("CancelMessageMoveTask", shapes.CancelMessageMoveTaskRequest, shapes.CancelMessageMoveTaskResult),
        _operation("ChangeMessageVisibility", shapes.ChangeMessageVisibilityRequest),
        _operation(
            "ChangeMessageVisibilityBatch",
            shapes.ChangeMessageVisibilityBatchRequest,
            shapes.ChangeMessageVisibilityBatchResult,
        ),
        _operation("CreateQueue", shapes.CreateQueueRequest, shapes.CreateQueueResult),
        _operation("DeleteMessage", shapes.DeleteMessageRequest),
        _operation("DeleteMessageBatch", shapes.DeleteMessageBatchRequest, shapes.DeleteMessageBatchResult),
        _operation("DeleteQueue", shapes.DeleteQueueRequest),
        _operation("GetQueueAttributes", shapes.GetQueueAttributesRequest, shapes.GetQueueAttributesResult),
        _operation("GetQueueUrl", shapes.GetQueueUrlRequest, shapes.GetQueueUrlResult),
        _operation(
            "ListDeadLetterSourceQueues",
            shapes.ListDeadLetterSourceQueuesRequest,
            shapes.ListDeadLetterSourceQueuesResult,
        ),
        _operation("ListMessageMoveTasks", shapes.ListMessageMoveTasksRequest, shapes.ListMessageMoveTasksResult),
        _operation("ListQueueTags", shapes.ListQueueTagsRequest, shapes.ListQueueTagsResult),
        _operation("ListQueues", shapes.ListQueuesRequest, shapes.ListQueuesResult),
        _operation("PurgeQueue", shapes.PurgeQueueRequest),
        _operation("ReceiveMessage", shapes.ReceiveMessageRequest, shapes.ReceiveMessageResult),
        _operation("RemovePermission", shapes.RemovePermissionRequest),
        _operation("SendMessage", shapes.SendMessageRequest, shapes.SendMessageResult),
        _operation("SendMessageBatch", shapes.SendMessageBatchRequest, shapes.SendMessageBatchResult),
        _operation("SetQueueAttributes", shapes.SetQueueAttributesRequest),
        _operation("StartMessageMoveTask", shapes.StartMessageMoveTaskRequest, shapes.StartMessageMoveTaskResult),
        _operation("TagQueue", shapes.TagQueueRequest),
        _operation("UntagQueue", shapes.UntagQueueRequest),
    )
}
