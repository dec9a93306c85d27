"""Messages between the wire and the domain: what a sender's entry means, and how a delivery is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.errors import InvalidParameter, UnsupportedOperation
from penstock.domain.message import Attribute
from penstock.domain.sending import Outgoing, check_text
from penstock.wire.sqs import shapes
from penstock.wire.sqs.digests import attributes_digest, body_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.domain.message import Message
    from penstock.wire.sqs.selection import Selection

TRACE_HEADER = "AWSTraceHeader"
_SEQUENCE_DIGITS = 20


def outgoing(
    entry: shapes.SendMessageRequest | shapes.SendMessageBatchRequestEntry, trace_header: str | None = None
) -> tuple[Outgoing, dict[str, Attribute]]:
    """Read a message that is to be sent, and the system attributes that were given with it.

    `trace_header` stands in where the message has none of its own. Nothing is judged that the domain judges.
    """
    given, system_given = entry.message_attributes, entry.message_system_attributes
    system = _attributes(system_given) if system_given else {}
    message = Outgoing(
        body=entry.message_body or "",
        attributes=_attributes(given) if given else {},
        trace_header=(_trace_header(system) if system else None) or trace_header,
        delay_s=entry.delay_seconds,
        group=entry.message_group_id,
        deduplication_id=entry.message_deduplication_id,
    )
    return message, system


def _attributes(given: Mapping[str, shapes.MessageAttributeValue]) -> dict[str, Attribute]:
    return {name: _attribute(value) for name, value in given.items()}


def _attribute(given: shapes.MessageAttributeValue) -> Attribute:
    if given.string_list_values or given.binary_list_values:
        raise UnsupportedOperation("Message attribute list values in SendMessage operation are not supported.")
    text, data = given.string_value, given.binary_value
    # The value of the other field is passed on where the type's own is missing: the domain says what is wrong then.
    value = (data if data is not None else text) if given.data_type.startswith("Binary") else (text or data)
    return Attribute(given.data_type, value if value is not None else "")


def _trace_header(system: Mapping[str, Attribute]) -> str | None:
    for name, attribute in system.items():
        if name != TRACE_HEADER:
            raise InvalidParameter(f"Message system attribute name '{name}' is invalid.")
        if attribute.data_type != "String" or not attribute.value or not isinstance(attribute.value, str):
            raise InvalidParameter(
                f"Message (system) attribute '{name}' must contain a non-empty value of type 'String'."
            )
        check_text(attribute.value)
        return attribute.value
    return None


def delivered(message: Message, handle: str, system: Selection, user: Selection) -> shapes.Message:
    """Tell a delivery, with the system and the user's attributes that its receiver asked for."""
    chosen = user.choose(message.attributes) if message.attributes and user else {}
    return shapes.Message(
        message_id=message.message_id,
        receipt_handle=handle,
        md5_of_body=body_digest(message.body),
        body=message.body,
        attributes=_system_attributes(message, system) if system else None,
        md5_of_message_attributes=attributes_digest(chosen),
        message_attributes={name: _told(attribute) for name, attribute in chosen.items()} or None,
    )


def _told(attribute: Attribute) -> shapes.MessageAttributeValue:
    if isinstance(attribute.value, bytes):
        return shapes.MessageAttributeValue(data_type=attribute.data_type, binary_value=attribute.value)
    return shapes.MessageAttributeValue(data_type=attribute.data_type, string_value=attribute.value)


def _system_attributes(message: Message, system: Selection) -> dict[str, str] | None:
    every = {
        "SenderId": message.sender,
        "SentTimestamp": str(message.sent_at_ms),
        "ApproximateReceiveCount": str(message.receive_count),
        "ApproximateFirstReceiveTimestamp": str(message.first_received_at_ms),
        "SequenceNumber": sequence_number(message.sequence),
        "MessageDeduplicationId": message.deduplication_id,
        "MessageGroupId": message.group,
        TRACE_HEADER: message.trace_header,
        "DeadLetterQueueSourceArn": message.dead_letter_source,
    }
    return {name: value for name, value in every.items() if value is not None and name in system} or None


def sequence_number(sequence: int | None) -> str | None:
    """Write a sequence number with as many digits as SQS, so that they sort as text too."""
    return None if sequence is None else f"{sequence:0{_SEQUENCE_DIGITS}d}"
