"""Queue attributes as users write them: names, ranges and defaults, to and from their text form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.errors import (
    InvalidAttributeName,
    InvalidAttributeValue,
    InvalidParameter,
    PolicyInvalid,
)
from penstock.domain.policy import parse_queue_policy
from penstock.domain.queue import (
    DeduplicationScope,
    QueueAttributes,
    QueueName,
    RedriveAllowPolicy,
    RedrivePermission,
    RedrivePolicy,
    ThroughputLimit,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_RECEIVE_COUNT_MAX = 1_000
REDRIVE_SOURCES_MAX = 10
KMS_KEY_ID_CHARACTERS_MAX = 2_048
_REDRIVE = "RedrivePolicy"
_REDRIVE_FIELDS = 2
_WHOLE_NUMBER = re.compile(r"[0-9]{1,10}")


def _refuse(name: str, reason: str = "") -> InvalidAttributeValue:
    return InvalidAttributeValue(f"Invalid value for the parameter {name}." + (f" Reason: {reason}" if reason else ""))


def _whole_number(low: int, high: int) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(text) or not low <= int(text) <= high:
            raise _refuse(name)
        return int(text)

    return parse


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _refuse(name)
    return text.lower() == "true"


def _scope(name: str, text: str) -> DeduplicationScope:
    try:
        return DeduplicationScope(text)
    except ValueError:
        raise _refuse(name) from None


def _throughput(name: str, text: str) -> ThroughputLimit:
    try:
        return ThroughputLimit(text)
    except ValueError:
        raise _refuse(name) from None


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        raise _refuse(name, "it is not JSON.") from None
    if not isinstance(value, dict):
        raise _refuse(name, "it is not a JSON object.")
    return value


def _queue_name(name: str, arn: object) -> QueueName:
    try:
        return QueueName.from_arn(arn if isinstance(arn, str) else "")
    except InvalidParameter:
        raise _refuse(name, "the queue's ARN is invalid.") from None


def _policy(name: str, text: str) -> str:
    try:
        parse_queue_policy(text)
    except PolicyInvalid as invalid:
        raise _refuse(name, invalid.reason) from None
    return text


def refuse_redrive(policy: str, reason: str) -> InvalidParameter:
    """Make the error for a redrive policy, which SQS calls a bad parameter and not a bad attribute."""
    return InvalidParameter(f"Value {policy} for parameter RedrivePolicy is invalid. Reason: {reason}")


def _redrive(_name: str, text: str) -> RedrivePolicy | None:
    if not text:
        return None
    try:
        value = _json_object(_REDRIVE, text)
    except InvalidAttributeValue:
        raise refuse_redrive(text, "Redrive policy is not a valid JSON map.") from None
    for mandatory in ("maxReceiveCount", "deadLetterTargetArn"):
        if mandatory not in value:
            raise refuse_redrive(text, f"Redrive policy does not contain mandatory attribute: {mandatory}.")
    if len(value) > _REDRIVE_FIELDS:
        raise refuse_redrive(text, "Redrive policy holds more than deadLetterTargetArn and maxReceiveCount.")
    count = value["maxReceiveCount"]
    text_count = str(count) if isinstance(count, int | str) and not isinstance(count, bool) else ""
    if not _WHOLE_NUMBER.fullmatch(text_count) or not 1 <= int(text_count) <= MAX_RECEIVE_COUNT_MAX:
        raise refuse_redrive(
            text,
            f"Invalid value for maxReceiveCount: {count}, "
            f"valid values are from 1 to {MAX_RECEIVE_COUNT_MAX} both inclusive.",
        )
    try:
        return RedrivePolicy(_queue_name(_REDRIVE, value["deadLetterTargetArn"]), int(text_count))
    except InvalidAttributeValue:
        raise refuse_redrive(text, "Invalid value for deadLetterTargetArn.") from None


def _redrive_allow(name: str, text: str) -> RedriveAllowPolicy | None:
    if not text:
        return None
    value = _json_object(name, text)
    try:
        permission = RedrivePermission(str(value.get("redrivePermission")))
    except ValueError:
        raise _refuse(name, "redrivePermission is allowAll, denyAll or byQueue.") from None
    arns = value.get("sourceQueueArns", [])
    by_queue = permission is RedrivePermission.BY_QUEUE
    if not isinstance(arns, list) or bool(arns) != by_queue or len(arns) > REDRIVE_SOURCES_MAX:
        raise _refuse(
            name,
            f"sourceQueueArns holds 1 to {REDRIVE_SOURCES_MAX} ARNs with byQueue, and is absent otherwise.",
        )
    return RedriveAllowPolicy(permission, tuple(_queue_name(name, arn) for arn in arns))


def _key_id(name: str, text: str) -> str:
    if len(text) > KMS_KEY_ID_CHARACTERS_MAX or not text.isprintable():
        raise _refuse(name)
    return text


class _Attribute(msgspec.Struct, frozen=True):
    """How one attribute is read, and on which queues it may be set."""

    field: str
    parse: Callable[[str, str], object]
    fifo_only: bool = False


_SETTABLE: dict[str, _Attribute] = {
    "DelaySeconds": _Attribute("delay_s", _whole_number(0, 900)),
    "MaximumMessageSize": _Attribute("maximum_message_bytes", _whole_number(1_024, 1_048_576)),
    "MessageRetentionPeriod": _Attribute("retention_s", _whole_number(60, 1_209_600)),
    "ReceiveMessageWaitTimeSeconds": _Attribute("receive_wait_s", _whole_number(0, 20)),
    "VisibilityTimeout": _Attribute("visibility_timeout_s", _whole_number(0, 43_200)),
    "Policy": _Attribute("policy", _policy),
    _REDRIVE: _Attribute("redrive", _redrive),
    "RedriveAllowPolicy": _Attribute("redrive_allow", _redrive_allow),
    "ContentBasedDeduplication": _Attribute("content_based_deduplication", _boolean, fifo_only=True),
    "DeduplicationScope": _Attribute("deduplication_scope", _scope, fifo_only=True),
    "FifoThroughputLimit": _Attribute("throughput_limit", _throughput, fifo_only=True),
    "KmsMasterKeyId": _Attribute("kms_key_id", _key_id),
    "KmsDataKeyReusePeriodSeconds": _Attribute("kms_reuse_s", _whole_number(60, 86_400)),
    "SqsManagedSseEnabled": _Attribute("managed_sse", _boolean),
}

SETTABLE_NAMES = frozenset(_SETTABLE)
_HIGH_THROUGHPUT = ("DeduplicationScope", "FifoThroughputLimit")


def parse_attributes(name: QueueName, given: Mapping[str, str], base: QueueAttributes) -> QueueAttributes:
    """Read the attributes that a user gave and lay them over `base`."""
    changes: dict[str, object] = {}
    for key, text in given.items():
        attribute = _SETTABLE.get(key)
        if attribute is None or (attribute.fifo_only and not name.fifo):
            message = f"Unknown Attribute {key}."
            if key in _HIGH_THROUGHPUT:
                message = f"You can specify the {key} only when FifoQueue is set to true."
            raise InvalidAttributeName(message)
        changes[attribute.field] = attribute.parse(key, text)
    if changes.get("kms_key_id") and "managed_sse" not in changes:
        changes["managed_sse"] = False
    # A struct of this type with checked values; msgspec's `replace` is typed as Any.
    attributes: QueueAttributes = msgspec.structs.replace(base, **changes)
    _check_together(attributes)
    if given.get(_REDRIVE):
        _check_target(name, attributes, given[_REDRIVE])
    return attributes


def _check_together(attributes: QueueAttributes) -> None:
    """Refuse attributes that are each in range but do not fit each other."""
    if (
        attributes.throughput_limit is ThroughputLimit.PER_MESSAGE_GROUP_ID
        and attributes.deduplication_scope is not DeduplicationScope.MESSAGE_GROUP
    ):
        raise _refuse(
            "FifoThroughputLimit",
            "perMessageGroupId needs DeduplicationScope messageGroup.",
        )
    if attributes.kms_key_id and attributes.managed_sse:
        message = (
            "You can use one type of server-side encryption (SSE) at one time. "
            "You can either enable KMS SSE or SQS SSE."
        )
        raise InvalidAttributeName(message)


def _check_target(name: QueueName, attributes: QueueAttributes, policy: str) -> None:
    """Refuse a dead-letter queue that this queue can never have."""
    assert attributes.redrive is not None
    target = attributes.redrive.dead_letter_queue
    if target.fifo != name.fifo:
        raise refuse_redrive(policy, "The dead-letter queue must be of the same type as the source queue.")
    if target.account != name.account:
        raise refuse_redrive(policy, "Dead-letter target owner should be same as the source.")
    if target.region != name.region:
        raise refuse_redrive(policy, "The dead-letter queue must be in the same region as the source queue.")


def render_attributes(name: QueueName, attributes: QueueAttributes) -> dict[str, str]:
    """Write the attributes in the form in which users read them; what is unset is left out."""
    rendered = {
        "DelaySeconds": str(attributes.delay_s),
        "MaximumMessageSize": str(attributes.maximum_message_bytes),
        "MessageRetentionPeriod": str(attributes.retention_s),
        "ReceiveMessageWaitTimeSeconds": str(attributes.receive_wait_s),
        "VisibilityTimeout": str(attributes.visibility_timeout_s),
        "SqsManagedSseEnabled": _truth(attributes.managed_sse),
    }
    if attributes.policy:
        rendered["Policy"] = attributes.policy
    if attributes.redrive is not None:
        rendered[_REDRIVE] = json.dumps(
            {
                "deadLetterTargetArn": attributes.redrive.dead_letter_queue.arn,
                "maxReceiveCount": attributes.redrive.max_receive_count,
            },
            separators=(",", ":"),
        )
    if attributes.redrive_allow is not None:
        allow: dict[str, object] = {"redrivePermission": attributes.redrive_allow.permission.value}
        if attributes.redrive_allow.sources:
            allow["sourceQueueArns"] = [source.arn for source in attributes.redrive_allow.sources]
        rendered["RedriveAllowPolicy"] = json.dumps(allow, separators=(",", ":"))
    if attributes.kms_key_id:
        rendered["KmsMasterKeyId"] = attributes.kms_key_id
        rendered["KmsDataKeyReusePeriodSeconds"] = str(attributes.kms_reuse_s)
    if name.fifo:
        rendered["FifoQueue"] = "true"
        rendered["ContentBasedDeduplication"] = _truth(attributes.content_based_deduplication)
        rendered["DeduplicationScope"] = attributes.deduplication_scope.value
        rendered["FifoThroughputLimit"] = attributes.throughput_limit.value
    return rendered


def _truth(value: bool) -> str:  # noqa: FBT001 - a boolean is what is rendered
    return "true" if value else "false"
