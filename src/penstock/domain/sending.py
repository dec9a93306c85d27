"""What makes a message acceptable to a queue: the rules between a sender's request and a draft."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import (
    BatchEmpty,
    BatchEntryIdInvalid,
    BatchEntryIdsNotDistinct,
    BatchTooManyEntries,
    DeduplicationIdMissing,
    InvalidMessageContents,
    InvalidParameter,
    MessageTooLong,
    MissingParameter,
)
from penstock.domain.limits import SECOND_MS
from penstock.domain.message import Attribute, Draft, check_body, check_token, fits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.limits import Limits
    from penstock.domain.queue import Queue

_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
# Letters and digits of any script: the documentation speaks of alphanumeric characters, and SQS takes "ø" for one.
_ATTRIBUTE_NAME = re.compile(r"(?!\.)(?!.*\.\.)[\w.-]{1,256}(?<!\.)")
_ATTRIBUTE_NAME_RESERVED = ("aws.", "amazon.")
_ATTRIBUTE_TYPE = re.compile(r"(String|Number|Binary)(\..{1,249})?")
# Each digit has one place only, or a long number that is none would take time in the square of its length.
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Outgoing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message as its sender gave it, not yet looked at."""

    body: str
    attributes: dict[str, Attribute] = {}
    trace_header: str | None = None
    delay_s: int | None = None
    group: str | None = None
    deduplication_id: str | None = None


def accept(queue: Queue, outgoing: Outgoing, *, message_id: str, sender: str, limits: Limits) -> Draft:
    """Turn a sender's message into a draft for this queue, or raise what is wrong with it."""
    check_body(outgoing.body)
    # Most messages are plain, and each of these conditions spares them a call.
    if outgoing.attributes:
        check_attributes(outgoing.attributes, limits)
    if not fits(outgoing.body, outgoing.attributes, queue.attributes.maximum_message_bytes):
        message = (
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{queue.attributes.maximum_message_bytes} bytes."
        )
        raise MessageTooLong(message)
    group, deduplication_id = outgoing.group, outgoing.deduplication_id
    if queue.fifo or group is not None or deduplication_id is not None:
        group, deduplication_id = _group_and_deduplication(queue, outgoing)
    delay_s = outgoing.delay_s
    return Draft(
        message_id=message_id,
        body=outgoing.body,
        attributes=outgoing.attributes,
        trace_header=outgoing.trace_header,
        sender=sender,
        delay_ms=queue.attributes.delay_s * SECOND_MS if delay_s is None else _delay_ms(queue, delay_s, limits),
        group=group,
        deduplication_id=deduplication_id,
    )


def _delay_ms(queue: Queue, delay_s: int, limits: Limits) -> int:
    # On a FIFO queue only the queue has a delay; SQS takes a message's zero for no word about it.
    if queue.fifo and delay_s == 0:
        return queue.attributes.delay_s * SECOND_MS
    if not 0 <= delay_s * SECOND_MS <= limits.delay_ms_max:
        message = (
            f"Value {delay_s} for parameter DelaySeconds is invalid. "
            f"Reason: DelaySeconds must be >= 0 and <= {limits.delay_ms_max // SECOND_MS}."
        )
        raise InvalidParameter(message)
    if queue.fifo and delay_s * SECOND_MS != queue.attributes.delay_s * SECOND_MS:
        message = (
            f"Value {delay_s} for parameter DelaySeconds is invalid. "
            "Reason: The request include parameter that is not valid for this queue type."
        )
        raise InvalidParameter(message)
    return delay_s * SECOND_MS


def _group_and_deduplication(queue: Queue, outgoing: Outgoing) -> tuple[str | None, str | None]:
    if outgoing.group is not None:
        check_token("MessageGroupId", outgoing.group)
    if outgoing.deduplication_id is not None:
        check_token("MessageDeduplicationId", outgoing.deduplication_id)
    if not queue.fifo:
        if outgoing.deduplication_id is not None:
            message = (
                f"Value {outgoing.deduplication_id} for parameter MessageDeduplicationId is invalid. "
                "Reason: The request includes a parameter that is not valid for this queue type."
            )
            raise InvalidParameter(message)
        return outgoing.group, None
    if outgoing.group is None:
        message = "The request must contain the parameter MessageGroupId."
        raise MissingParameter(message)
    if outgoing.deduplication_id is not None:
        return outgoing.group, outgoing.deduplication_id
    if not queue.attributes.content_based_deduplication:
        message = (
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly"
        )
        raise DeduplicationIdMissing(message)
    return outgoing.group, hashlib.sha256(outgoing.body.encode()).hexdigest()


def check_attributes(attributes: dict[str, Attribute], limits: Limits) -> None:
    """Refuse message attributes that are too many, badly named, or not of their type."""
    if len(attributes) > limits.message_attributes_max:
        message = (
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{limits.message_attributes_max}]."
        )
        raise InvalidParameter(message)
    for name, attribute in attributes.items():
        if not _ATTRIBUTE_NAME.fullmatch(name) or name.lower().startswith(_ATTRIBUTE_NAME_RESERVED):
            message = (
                f"Message (user) attribute name '{name}' is invalid. Reason: it holds 1 to 256 letters, digits, "
                "underscores, hyphens and single periods, and starts with neither AWS. nor Amazon."
            )
            raise InvalidParameter(message)
        _check_value(name, attribute)


def _check_value(name: str, attribute: Attribute) -> None:
    if not _ATTRIBUTE_TYPE.fullmatch(attribute.data_type):
        message = (
            f"The type of message (user) attribute '{name}' is invalid. You must use only the following supported type "
            "prefixes: Binary, Number, String."
        )
        raise InvalidParameter(message)
    if not attribute.value:
        message = f"Message (user) attribute '{name}' must contain a non-empty value of type '{attribute.data_type}'."
        raise InvalidParameter(message)
    if isinstance(attribute.value, bytes) != attribute.data_type.startswith("Binary"):
        message = f"The message attribute '{name}' with type '{attribute.data_type}' must use the field of that type."
        raise InvalidParameter(message)
    if attribute.data_type.startswith("Number") and not _NUMBER.fullmatch(str(attribute.value)):
        message = f"Can't cast the value of message (user) attribute '{name}' to a number."
        raise InvalidParameter(message)
    check_text(attribute.data_type)
    if isinstance(attribute.value, str):
        check_text(attribute.value)


def check_text(text: str) -> None:
    """Refuse text that is no body but travels with one, for the characters that a body cannot hold."""
    try:
        check_body(text)
    except InvalidMessageContents as invalid:
        # SQS keeps that name for bodies.
        raise InvalidParameter(invalid.reason) from None


def check_entry_ids(ids: Sequence[str], limits: Limits) -> None:
    """Refuse a batch whose entries are none, too many, or not told apart by well-formed ids."""
    if not ids:
        message = "There should be at least one entry in the request."
        raise BatchEmpty(message)
    if len(ids) > limits.batch_entries_max:
        message = f"Maximum number of entries per request are {limits.batch_entries_max}. You have sent {len(ids)}."
        raise BatchTooManyEntries(message)
    for entry_id in ids:
        if not _ENTRY_ID.fullmatch(entry_id):
            message = (
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                "It can be at most 80 letters long."
            )
            raise BatchEntryIdInvalid(message)
    if len(set(ids)) < len(ids):
        repeated = next(entry_id for entry_id in ids if ids.count(entry_id) > 1)
        message = f"Id {repeated} repeated."
        raise BatchEntryIdsNotDistinct(message)
