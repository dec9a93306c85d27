"""What goes over the wire, shape by shape, named as in Amazon's own model of SQS.

Whatever a request may leave out is None here, since a client may also say `null`. What is None or missing in an answer
is not written. What every request of a kind must have stands first, without a default.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Integer = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class Flat(msgspec.Struct, frozen=True):
    """How a list or a map is written in the Query protocol: item by item, as `name.1`, `name.2` or as elements `name`.

    An entry of a map has a `key` and a `value` beneath.
    """

    name: str
    key: str = "Name"
    value: str = "Value"


class _Request(msgspec.Struct, gc=False, rename="pascal"):
    """What a client asks for."""


class _Result(msgspec.Struct, gc=False, rename="pascal", omit_defaults=True):
    """What it is answered."""


class _Part(msgspec.Struct, gc=False, rename="pascal", omit_defaults=True):
    """What stands inside requests or results."""


# -- parts ----------------------------------------------------------------------------------------


class MessageAttributeValue(_Part):
    """A typed value that travels beside a body. The lists are in the model, but SQS has never accepted them."""

    data_type: str = ""
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: Annotated[list[str] | None, Flat("StringListValue")] = None
    binary_list_values: Annotated[list[bytes] | None, Flat("BinaryListValue")] = None


QueueAttributes = Annotated[dict[str, str] | None, Flat("Attribute")]
Tags = Annotated[dict[str, str] | None, Flat("Tag", key="Key")]
AttributeNames = Annotated[list[str] | None, Flat("AttributeName")]
MessageAttributes = Annotated[dict[str, MessageAttributeValue] | None, Flat("MessageAttribute")]
MessageSystemAttributes = Annotated[dict[str, MessageAttributeValue] | None, Flat("MessageSystemAttribute")]


class BatchResultErrorEntry(_Part):
    """Why one entry of a batch was refused."""

    id: str
    sender_fault: bool
    code: str
    message: str | None = None


Failed = Annotated[list[BatchResultErrorEntry] | None, Flat("BatchResultErrorEntry")]


# -- queues ---------------------------------------------------------------------------------------


class CreateQueueRequest(_Request):
    """Asks for a queue."""

    queue_name: str | None = None
    attributes: QueueAttributes = None
    tags: Tags = msgspec.field(default=None, name="tags")


class CreateQueueResult(_Result):
    """Names the queue."""

    queue_url: str


class GetQueueUrlRequest(_Request):
    """Asks how a queue is named."""

    queue_name: str | None = None
    queue_owner_account: str | None = msgspec.field(default=None, name="QueueOwnerAWSAccountId")


class GetQueueUrlResult(_Result):
    """Names the queue."""

    queue_url: str


class DeleteQueueRequest(_Request):
    """Asks that a queue be deleted."""

    queue_url: str | None = None


class PurgeQueueRequest(_Request):
    """Asks that a queue be emptied."""

    queue_url: str | None = None


class ListQueuesRequest(_Request):
    """Asks for a page of an account's queues."""

    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: Integer | None = None


class ListQueuesResult(_Result):
    """A page of queues."""

    queue_urls: Annotated[list[str] | None, Flat("QueueUrl")] = None
    next_token: str | None = None


class ListDeadLetterSourceQueuesRequest(_Request):
    """Asks for a page of the queues that send their dead letters here."""

    queue_url: str | None = None
    next_token: str | None = None
    max_results: Integer | None = None


class ListDeadLetterSourceQueuesResult(_Result):
    """A page of queues."""

    queue_urls: Annotated[list[str] | None, Flat("QueueUrl")] = msgspec.field(default=None, name="queueUrls")
    next_token: str | None = None


class GetQueueAttributesRequest(_Request):
    """Asks how a queue is set and what it holds."""

    queue_url: str | None = None
    attribute_names: AttributeNames = None


class GetQueueAttributesResult(_Result):
    """The attributes that were asked for."""

    attributes: QueueAttributes = None


class SetQueueAttributesRequest(_Request):
    """Asks that a queue be set otherwise."""

    attributes: QueueAttributes
    queue_url: str | None = None


class TagQueueRequest(_Request):
    """Asks for tags on a queue."""

    tags: Tags
    queue_url: str | None = None


class UntagQueueRequest(_Request):
    """Asks that tags be taken off a queue."""

    tag_keys: Annotated[list[str] | None, Flat("TagKey")]
    queue_url: str | None = None


class ListQueueTagsRequest(_Request):
    """Asks for the tags of a queue."""

    queue_url: str | None = None


class ListQueueTagsResult(_Result):
    """The tags of a queue."""

    tags: Tags = None


class AddPermissionRequest(_Request):
    """Asks that other accounts may use a queue."""

    label: str
    account_ids: Annotated[list[str] | None, Flat("AWSAccountId")] = msgspec.field(name="AWSAccountIds")
    actions: Annotated[list[str] | None, Flat("ActionName")]
    queue_url: str | None = None


class RemovePermissionRequest(_Request):
    """Asks that a permission be taken back."""

    label: str
    queue_url: str | None = None


# -- messages -------------------------------------------------------------------------------------


class SendMessageRequest(_Request):
    """One message to send."""

    message_body: str
    queue_url: str | None = None
    delay_seconds: Integer | None = None
    message_attributes: MessageAttributes = None
    message_system_attributes: MessageSystemAttributes = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageResult(_Result):
    """What became of it."""

    md5_of_message_body: str | None = msgspec.field(default=None, name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = msgspec.field(default=None, name="MD5OfMessageAttributes")
    md5_of_message_system_attributes: str | None = msgspec.field(default=None, name="MD5OfMessageSystemAttributes")
    message_id: str | None = None
    sequence_number: str | None = None


class SendMessageBatchRequestEntry(_Part):
    """One message among several."""

    id: str = ""
    message_body: str | None = None
    delay_seconds: Integer | None = None
    message_attributes: MessageAttributes = None
    message_system_attributes: MessageSystemAttributes = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageBatchRequest(_Request):
    """Messages to send."""

    queue_url: str | None = None
    entries: Annotated[list[SendMessageBatchRequestEntry] | None, Flat("SendMessageBatchRequestEntry")] = None


class SendMessageBatchResultEntry(_Part):
    """What became of one of them."""

    id: str
    message_id: str
    md5_of_message_body: str = msgspec.field(name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = msgspec.field(default=None, name="MD5OfMessageAttributes")
    md5_of_message_system_attributes: str | None = msgspec.field(default=None, name="MD5OfMessageSystemAttributes")
    sequence_number: str | None = None


class SendMessageBatchResult(_Result):
    """What became of each."""

    successful: Annotated[list[SendMessageBatchResultEntry] | None, Flat("SendMessageBatchResultEntry")] = None
    failed: Failed = None


class ReceiveMessageRequest(_Request):
    """Asks for messages. `attribute_names` is the older name of `message_system_attribute_names`."""

    queue_url: str | None = None
    attribute_names: AttributeNames = None
    message_system_attribute_names: Annotated[list[str] | None, Flat("MessageSystemAttributeName")] = None
    message_attribute_names: Annotated[list[str] | None, Flat("MessageAttributeName")] = None
    max_number_of_messages: Integer | None = None
    visibility_timeout: Integer | None = None
    wait_time_seconds: Integer | None = None
    receive_request_attempt_id: str | None = None


class Message(_Part):
    """A message as it is delivered."""

    message_id: str
    receipt_handle: str
    md5_of_body: str = msgspec.field(name="MD5OfBody")
    body: str
    attributes: QueueAttributes = None
    md5_of_message_attributes: str | None = msgspec.field(default=None, name="MD5OfMessageAttributes")
    message_attributes: MessageAttributes = None


class ReceiveMessageResult(_Result):
    """The messages, if there were any."""

    messages: Annotated[list[Message] | None, Flat("Message")] = None


class DeleteMessageRequest(_Request):
    """Says that a message is done with."""

    receipt_handle: str
    queue_url: str | None = None


class DeleteMessageBatchRequestEntry(_Part):
    """One message among several."""

    id: str = ""
    receipt_handle: str | None = None


class DeleteMessageBatchRequest(_Request):
    """Says that messages are done with."""

    queue_url: str | None = None
    entries: Annotated[list[DeleteMessageBatchRequestEntry] | None, Flat("DeleteMessageBatchRequestEntry")] = None


class DeleteMessageBatchResultEntry(_Part):
    """A message that is gone."""

    id: str


class DeleteMessageBatchResult(_Result):
    """What became of each."""

    successful: Annotated[list[DeleteMessageBatchResultEntry] | None, Flat("DeleteMessageBatchResultEntry")] = None
    failed: Failed = None


class ChangeMessageVisibilityRequest(_Request):
    """Asks that a message stay hidden for another time."""

    receipt_handle: str
    visibility_timeout: Integer
    queue_url: str | None = None


class ChangeMessageVisibilityBatchRequestEntry(_Part):
    """One message among several."""

    id: str = ""
    receipt_handle: str | None = None
    visibility_timeout: Integer | None = None


class ChangeMessageVisibilityBatchRequest(_Request):
    """Asks that messages stay hidden for another time each."""

    queue_url: str | None = None
    entries: Annotated[
        list[ChangeMessageVisibilityBatchRequestEntry] | None, Flat("ChangeMessageVisibilityBatchRequestEntry")
    ] = None


class ChangeMessageVisibilityBatchResultEntry(_Part):
    """A message whose visibility was changed."""

    id: str


class ChangeMessageVisibilityBatchResult(_Result):
    """What became of each."""

    successful: Annotated[
        list[ChangeMessageVisibilityBatchResultEntry] | None, Flat("ChangeMessageVisibilityBatchResultEntry")
    ] = None
    failed: Failed = None


# -- message move tasks ---------------------------------------------------------------------------


class StartMessageMoveTaskRequest(_Request):
    """Asks that dead letters be moved."""

    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: Integer | None = None


class StartMessageMoveTaskResult(_Result):
    """Names the task."""

    task_handle: str


class CancelMessageMoveTaskRequest(_Request):
    """Asks that a task be stopped."""

    task_handle: str


class CancelMessageMoveTaskResult(_Result):
    """How far it had come."""

    # No default: zero is an answer too.
    approximate_number_of_messages_moved: int


class ListMessageMoveTasksRequest(_Request):
    """Asks for the tasks of a dead-letter queue."""

    source_arn: str
    max_results: Integer | None = None


class ListMessageMoveTasksResultEntry(_Part):
    """One task."""

    status: str
    source_arn: str
    approximate_number_of_messages_moved: int
    started_timestamp: int
    task_handle: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None


class ListMessageMoveTasksResult(_Result):
    """The tasks, newest first."""

    results: Annotated[list[ListMessageMoveTasksResultEntry] | None, Flat("ListMessageMoveTasksResultEntry")] = None
