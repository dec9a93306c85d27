"""Messages: send, receive, delete and change visibility, one by one and in batches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.domain.errors import (
    BatchEmpty,
    InvalidParameter,
    MessageDoesNotExist,
    MessageTooLong,
    MissingParameter,
    PenstockError,
    ReceiptHandleExpired,
)
from penstock.domain.limits import SECOND_MS
from penstock.domain.message import Refused, Sent, check_token
from penstock.domain.sending import check_entry_ids
from penstock.wire.sqs import shapes
from penstock.wire.sqs.attempts import receive_attempt, retry_number
from penstock.wire.sqs.digests import attributes_digest, body_digest
from penstock.wire.sqs.errors import sqs_error, sqs_error_named
from penstock.wire.sqs.messages import delivered, outgoing, sequence_number
from penstock.wire.sqs.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.limits import Limits
    from penstock.domain.message import Attribute, SendResult
    from penstock.domain.queue import QueueName
    from penstock.domain.sending import Outgoing
    from penstock.engine.messages import Delivery, Messages
    from penstock.engine.queues import Queues
    from penstock.server.sqs_operations.call import Beginning, Call, Ended, Handler

_TRACE_ID_HEADER = "x-amzn-trace-id"
_NO_BODY = "The request must contain the parameter MessageBody."
_NO_GROUP = "The request must contain the parameter MessageGroupId."
_NOTHING = Selection()


class MessageOperations:
    """The operations on messages."""

    def __init__(self, messages: Messages, queues: Queues, limits: Limits) -> None:
        self._messages = messages
        self._queues = queues
        self._limits = limits

    def handlers(self) -> dict[str, Handler]:
        """Return the operations by their names."""
        return {
            "SendMessage": self._send,
            "SendMessageBatch": self._send_batch,
            "ReceiveMessage": self._receive,
            "DeleteMessage": self._delete,
            "DeleteMessageBatch": self._delete_batch,
            "ChangeMessageVisibility": self._change_visibility,
            "ChangeMessageVisibilityBatch": self._change_visibility_batch,
        }

    def beginnings(self) -> dict[str, Beginning]:
        """Return those that can be begun without a coroutine: frequent ones, whose way is a good part of their cost.

        They do what the handlers of the same names do.
        """
        return {
            "SendMessage": self._begin_send,
            "SendMessageBatch": self._begin_send_batch,
            "ReceiveMessage": self._begin_receive,
            "DeleteMessage": self._begin_delete,
        }

    # -- send -------------------------------------------------------------------------------------

    async def _send(self, call: Call, request: shapes.SendMessageRequest) -> shapes.SendMessageResult:
        name = call.queue(request.queue_url)
        if not request.message_body:
            raise MissingParameter(_NO_BODY)
        message, system = outgoing(request, call.request.headers.get(_TRACE_ID_HEADER))
        sent = await self._messages.send(name, message, sender=call.caller.sender, attempt=call.attempt)
        return _sent(sent, message, system)

    def _begin_send(self, call: Call, request: shapes.SendMessageRequest, ended: Ended) -> bool:
        name = call.queue(request.queue_url)
        if not request.message_body:
            return False
        message, system = outgoing(request, call.request.headers.get(_TRACE_ID_HEADER))
        attempt = call.attempt

        def done(results: list[SendResult] | None, error: BaseException | None) -> None:
            sent = results[0] if results else None
            if isinstance(sent, Sent):
                ended(_sent(sent, message, system))
            else:
                # What failed may be stored all the same. With an attempt key that can be found out, or else not.
                ended(None, error, again=attempt is not None)

        return self._messages.begin_send(name, [message], sender=call.caller.sender, attempt=attempt, done=done)

    async def _send_batch(self, call: Call, request: shapes.SendMessageBatchRequest) -> shapes.SendMessageBatchResult:
        name = call.queue(request.queue_url)
        batch = self._read_batch(call, name, request)
        if batch.messages:
            batch.settle(
                await self._messages.send_batch(name, batch.messages, sender=call.caller.sender, attempt=call.attempt)
            )
        else:
            await self._queues.find(name)
        return batch.result()

    def _begin_send_batch(self, call: Call, request: shapes.SendMessageBatchRequest, ended: Ended) -> bool:
        name = call.queue(request.queue_url)
        batch = self._read_batch(call, name, request)
        if not batch.messages:
            return False
        attempt = call.attempt

        def done(results: list[SendResult] | None, error: BaseException | None) -> None:
            if results is None:
                ended(None, error, again=attempt is not None)  # As for a single one.
            else:
                batch.settle(results)
                ended(batch.result())

        return self._messages.begin_send(name, batch.messages, sender=call.caller.sender, attempt=attempt, done=done)

    def _read_batch(self, call: Call, name: QueueName, request: shapes.SendMessageBatchRequest) -> _Batch:
        entries = request.entries or []
        self._check_ids([entry.id for entry in entries], "SendMessageBatchRequestEntry")
        if name.fifo and any(entry.message_group_id is None for entry in entries):
            raise InvalidParameter(_NO_GROUP)
        return _Batch(entries, call.request.headers.get(_TRACE_ID_HEADER))

    # -- receive ----------------------------------------------------------------------------------

    async def _receive(self, call: Call, request: shapes.ReceiveMessageRequest) -> shapes.ReceiveMessageResult:
        name = call.queue(request.queue_url)
        attempt, retry = _receive_attempt(call, name, request.receive_request_attempt_id)
        deliveries = await self._messages.receive(
            name,
            count=1 if request.max_number_of_messages is None else request.max_number_of_messages,
            lease_ms=_ms(request.visibility_timeout),
            wait_ms=_ms(request.wait_time_seconds),
            attempt=attempt,
            retry=retry,
        )
        return self._received(call, name, request, deliveries)

    def _begin_receive(self, call: Call, request: shapes.ReceiveMessageRequest, ended: Ended) -> bool:
        name = call.queue(request.queue_url)
        attempt, retry = _receive_attempt(call, name, request.receive_request_attempt_id)

        def done(deliveries: list[Delivery] | None, error: BaseException | None) -> None:
            if deliveries is None:
                ended(None, error, again=True)
            else:
                ended(self._received(call, name, request, deliveries))

        return self._messages.begin_receive(
            name,
            count=1 if request.max_number_of_messages is None else request.max_number_of_messages,
            lease_ms=_ms(request.visibility_timeout),
            wait_ms=_ms(request.wait_time_seconds),
            attempt=attempt,
            retry=retry,
            done=done,
        )

    def _received(
        self, call: Call, name: QueueName, request: shapes.ReceiveMessageRequest, deliveries: Sequence[Delivery]
    ) -> shapes.ReceiveMessageResult:
        if not deliveries:
            return shapes.ReceiveMessageResult()
        call.undelivered = partial(self._messages.release, name, deliveries)
        system_names = [*(request.attribute_names or ()), *(request.message_system_attribute_names or ())]
        system = Selection.of(system_names) if system_names else _NOTHING
        user = Selection.of(request.message_attribute_names) if request.message_attribute_names else _NOTHING
        return shapes.ReceiveMessageResult(
            messages=[delivered(delivery.message, delivery.handle, system, user) for delivery in deliveries]
        )

    # -- settle -----------------------------------------------------------------------------------

    async def _delete(self, call: Call, request: shapes.DeleteMessageRequest) -> None:
        handle = request.receipt_handle
        (error,) = await self._messages.delete(call.queue(request.queue_url), [handle])
        if error is not None:
            raise _about(error, handle)

    def _begin_delete(self, call: Call, request: shapes.DeleteMessageRequest, ended: Ended) -> bool:
        def done(errors: list[PenstockError | None] | None, error: BaseException | None) -> None:
            if errors is not None and errors[0] is None:
                ended(None)
            else:
                ended(None, error, again=True)

        return self._messages.begin_delete(call.queue(request.queue_url), request.receipt_handle, done=done)

    async def _delete_batch(
        self, call: Call, request: shapes.DeleteMessageBatchRequest
    ) -> shapes.DeleteMessageBatchResult:
        name = call.queue(request.queue_url)
        entries = request.entries or []
        self._check_ids([entry.id for entry in entries], "DeleteMessageBatchRequestEntry")
        handles = [entry.receipt_handle or "" for entry in entries]
        results = await self._messages.delete(name, handles)
        successful: list[shapes.DeleteMessageBatchResultEntry] = []
        failed: list[shapes.BatchResultErrorEntry] = []
        for entry, handle, error in zip(entries, handles, results, strict=True):
            if error is None:
                successful.append(shapes.DeleteMessageBatchResultEntry(entry.id))
            else:
                failed.append(_failure(entry.id, _about(error, handle)))
        return shapes.DeleteMessageBatchResult(successful=successful or None, failed=failed or None)

    async def _change_visibility(self, call: Call, request: shapes.ChangeMessageVisibilityRequest) -> None:
        handle = request.receipt_handle
        name = call.queue(request.queue_url)
        (error,) = await self._messages.change_visibility(name, [(handle, request.visibility_timeout * SECOND_MS)])
        if error is not None:
            raise _about(error, handle)

    async def _change_visibility_batch(
        self, call: Call, request: shapes.ChangeMessageVisibilityBatchRequest
    ) -> shapes.ChangeMessageVisibilityBatchResult:
        name = call.queue(request.queue_url)
        entries = request.entries or []
        self._check_ids([entry.id for entry in entries], "ChangeMessageVisibilityBatchRequestEntry")
        changes = [(entry.receipt_handle or "", _ms(entry.visibility_timeout)) for entry in entries]
        timed = [(handle, lease_ms) for handle, lease_ms in changes if lease_ms is not None]
        results = iter(await self._messages.change_visibility(name, timed))
        successful: list[shapes.ChangeMessageVisibilityBatchResultEntry] = []
        failed: list[shapes.BatchResultErrorEntry] = []
        for entry, (handle, lease_ms) in zip(entries, changes, strict=True):
            error = (
                MissingParameter("The request must contain the parameter VisibilityTimeout.")
                if lease_ms is None
                else next(results)
            )
            if error is None:
                successful.append(shapes.ChangeMessageVisibilityBatchResultEntry(entry.id))
            else:
                failed.append(_failure(entry.id, _about(error, handle)))
        return shapes.ChangeMessageVisibilityBatchResult(successful=successful or None, failed=failed or None)

    def _check_ids(self, ids: Sequence[str], entry: str) -> None:
        if not ids:
            raise BatchEmpty(f"There should be at least one {entry} in the request.")
        check_entry_ids(ids, self._limits)


def _sent(sent: Sent, message: Outgoing, system: dict[str, Attribute]) -> shapes.SendMessageResult:
    return shapes.SendMessageResult(
        md5_of_message_body=body_digest(message.body),
        md5_of_message_attributes=attributes_digest(message.attributes) if message.attributes else None,
        md5_of_message_system_attributes=attributes_digest(system) if system else None,
        message_id=sent.message_id,
        sequence_number=None if sent.sequence is None else sequence_number(sent.sequence),
    )


class _Batch:
    """A batch of messages to send: what can be read goes to the engine, what cannot has failed already."""

    def __init__(self, entries: Sequence[shapes.SendMessageBatchRequestEntry], trace_header: str | None) -> None:
        self.messages: list[Outgoing] = []
        self.successful: list[shapes.SendMessageBatchResultEntry] = []
        self.failed: list[shapes.BatchResultErrorEntry] = []
        self._read: list[tuple[str, Outgoing, dict[str, Attribute]]] = []
        for entry in entries:
            try:
                message, system = outgoing(entry, trace_header)
            except PenstockError as error:
                self.failed.append(_failure(entry.id, error))
            else:
                self.messages.append(message)
                self._read.append((entry.id, message, system))

    def settle(self, results: Sequence[Sent | Refused]) -> None:
        """Take in what became of each message."""
        for (entry_id, message, system), result in zip(self._read, results, strict=True):
            if isinstance(result, Refused):
                self.failed.append(_refusal(entry_id, result))
                continue
            attributes = message.attributes
            self.successful.append(
                shapes.SendMessageBatchResultEntry(
                    id=entry_id,
                    message_id=result.message_id,
                    md5_of_message_body=body_digest(message.body),
                    md5_of_message_attributes=attributes_digest(attributes) if attributes else None,
                    md5_of_message_system_attributes=attributes_digest(system) if system else None,
                    sequence_number=None if result.sequence is None else sequence_number(result.sequence),
                )
            )

    def result(self) -> shapes.SendMessageBatchResult:
        """Make the answer."""
        return shapes.SendMessageBatchResult(successful=self.successful or None, failed=self.failed or None)


def _ms(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * SECOND_MS


def _receive_attempt(call: Call, name: QueueName, attempt_id: str | None) -> tuple[bytes | None, int]:
    """Return what identifies a retried receive, and the number of the retry.

    That is the client's own id on a FIFO queue, which says nothing about the order of its retries, or else the SDK's.
    """
    if attempt_id is None or not name.fifo:
        return call.attempt, retry_number(call.request)
    check_token("ReceiveRequestAttemptId", attempt_id)
    return receive_attempt(call.caller.identity, name, attempt_id), 0


def _about(error: PenstockError, handle: str) -> PenstockError:
    """Name the handle where SQS does; the store that refused it knows only what was inside."""
    if isinstance(error, ReceiptHandleExpired):
        return ReceiptHandleExpired(
            f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
        )
    if isinstance(error, MessageDoesNotExist):
        return MessageDoesNotExist(
            f"Value {handle} for parameter ReceiptHandle is invalid. "
            "Reason: Message does not exist or is not available for visibility timeout change."
        )
    return error


def _failure(entry_id: str, error: PenstockError) -> shapes.BatchResultErrorEntry:
    told = sqs_error(error)
    return shapes.BatchResultErrorEntry(
        id=entry_id, sender_fault=told.sender_fault, code=told.code, message=error.reason
    )


def _refusal(entry_id: str, refused: Refused) -> shapes.BatchResultErrorEntry:
    told = sqs_error_named(refused.error)
    reason = refused.reason
    if refused.error == MessageTooLong.__name__:
        # SQS has one sentence for a message by itself, and another for one in a batch.
        reason = reason.replace("parameters are invalid", "parameters cannot be validated")
    return shapes.BatchResultErrorEntry(id=entry_id, sender_fault=told.sender_fault, code=told.code, message=reason)
