"""Messages as they are shown to people who look into a queue without receiving from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.message import MessageState
from penstock.wire.sqs.messages import sequence_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.domain.message import Attribute, Peeked
    from penstock.domain.queue import QueueName
    from penstock.store.port import Peek

_POSITION_DIGITS_MAX = 19


class PeekedAttribute(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message attribute: its text, or its bytes in base64."""

    data_type: str
    string_value: str | None = None
    binary_value: bytes | None = None


class PeekedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message and what hides it. It has no receipt handle: who only looks may not settle it."""

    message_id: str
    state: MessageState
    visible_at_ms: int
    sent_at_ms: int
    first_received_at_ms: int | None
    receive_count: int
    sender: str
    group: str | None
    deduplication_id: str | None
    sequence_number: str | None
    dead_letter_source: str | None
    trace_header: str | None
    attributes: dict[str, PeekedAttribute]
    body: str


class PeekedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages of a queue; `after` asks for those that follow, if there may be any."""

    name: str
    arn: str
    messages: list[PeekedMessage]
    after: str | None
    """As text, because it may be a larger number than JavaScript can hold."""


def wanted_state(parameters: Mapping[str, str]) -> MessageState | None:
    """Read which messages to show; None means all. Raises `ValueError`."""
    text = parameters.get("state")
    if text is None:
        return None
    if text not in set(MessageState):
        raise ValueError(f"state is none of {', '.join(MessageState)}")
    return MessageState(text)


def start_position(parameters: Mapping[str, str]) -> int:
    """Read where to go on. Raises `ValueError`."""
    text = parameters.get("after", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _POSITION_DIGITS_MAX):
        raise ValueError("after is not what an earlier answer said")
    return int(text)


def peeked_queue(name: QueueName, peek: Peek) -> PeekedQueue:
    """Tell what a peek saw."""
    return PeekedQueue(
        name=name.name,
        arn=name.arn,
        messages=[_told(peeked) for peeked in peek.messages],
        after=None if peek.after is None else str(peek.after),
    )


def _told(peeked: Peeked) -> PeekedMessage:
    message = peeked.message
    return PeekedMessage(
        message_id=message.message_id,
        state=peeked.state,
        visible_at_ms=peeked.visible_at_ms,
        sent_at_ms=message.sent_at_ms,
        first_received_at_ms=message.first_received_at_ms or None,
        receive_count=message.receive_count,
        sender=message.sender,
        group=message.group,
        deduplication_id=message.deduplication_id,
        sequence_number=sequence_number(message.sequence),
        dead_letter_source=message.dead_letter_source,
        trace_header=message.trace_header,
        attributes={name: _attribute(attribute) for name, attribute in message.attributes.items()},
        body=message.body,
    )


def _attribute(attribute: Attribute) -> PeekedAttribute:
    if isinstance(attribute.value, bytes):
        return PeekedAttribute(data_type=attribute.data_type, binary_value=attribute.value)
    return PeekedAttribute(data_type=attribute.data_type, string_value=attribute.value)
