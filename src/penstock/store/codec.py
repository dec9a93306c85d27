"""Bytes at rest: how message attributes, answers and queue settings are written, the same on every store.

Whatever is written here is read back by later versions, so shapes may only grow at their ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.message import Attribute, Refused, SendResult, Sent
from penstock.domain.queue import QueueAttributes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SentRow = tuple[str, int | None]
"""A stored entry: message id and sequence number."""

_RefusedRow = tuple[None, str, str]
"""A refused entry: nothing, the error's name and the reason."""

_Extras = tuple[dict[str, tuple[str, Any]], str | None]
"""What few messages carry: attributes (type and value, which is text or bytes) and trace header."""

_encode = msgspec.msgpack.Encoder().encode
_decode_extras = msgspec.msgpack.Decoder(_Extras).decode
_decode_rows = msgspec.msgpack.Decoder(list[list[str | int | None]]).decode
_decode_deliveries = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
_decode_outcomes = msgspec.msgpack.Decoder(list[tuple[bytes, msgspec.Raw]]).decode
_decode_queue_attributes = msgspec.json.Decoder(QueueAttributes).decode
_decode_tags = msgspec.json.Decoder(dict[str, str]).decode


def encode_attributes(attributes: dict[str, Attribute], trace_header: str | None) -> bytes | None:
    """Write a message's attributes and trace header; None, the common case, when it has neither."""
    if not attributes and trace_header is None:
        return None
    return _encode((attributes, trace_header))


def decode_attributes(data: bytes | None) -> tuple[dict[str, Attribute], str | None]:
    """Read attributes and trace header back."""
    if data is None:
        return {}, None
    attributes, trace_header = _decode_extras(data)
    return {name: Attribute(*attribute) for name, attribute in attributes.items()}, trace_header


def encode_results(results: Sequence[SendResult]) -> bytes:
    """Write the answer to an append."""
    return _encode(result_rows(results))


def result_rows(results: Sequence[SendResult]) -> list[_SentRow | _RefusedRow]:
    """Give the answer to an append as the plain values that are written."""
    return [
        (result.message_id, result.sequence) if isinstance(result, Sent) else (None, result.error, result.reason)
        for result in results
    ]


def encode_outcomes(outcomes: Sequence[tuple[bytes, object]]) -> bytes:
    """Write keys and their answers, which are plain values, together."""
    return _encode(outcomes)


def decode_outcomes(data: bytes) -> list[tuple[bytes, bytes]]:
    """Read keys back, and their answers as they would have been written by themselves."""
    return [(key, bytes(answer)) for key, answer in _decode_outcomes(data)]


def decode_results(data: bytes) -> list[SendResult]:
    """Read the answer to an append back."""
    return [_result(row) for row in _decode_rows(data)]


def _result(row: list[str | int | None]) -> SendResult:
    match row:
        case [str(message_id), int() | None as sequence]:
            return Sent(message_id, sequence)
        case [None, str(error), str(reason)]:
            return Refused(error, reason)
        case _:
            message = f"not an answer to an append: {row}"
            raise AssertionError(message)


def decode_deliveries(data: bytes) -> list[tuple[int, int]]:
    """Read back what a lease gave: the position and the receipt of each message."""
    return _decode_deliveries(data)


def encode_queue_attributes(attributes: QueueAttributes) -> str:
    """Write a queue's attributes as JSON, which an operator can read in the database."""
    return msgspec.json.encode(attributes).decode()


def decode_queue_attributes(text: str) -> QueueAttributes:
    """Read a queue's attributes back."""
    return _decode_queue_attributes(text)


def encode_tags(tags: Mapping[str, str]) -> str:
    """Write a queue's tags as JSON."""
    return msgspec.json.encode(dict(tags)).decode()


def decode_tags(text: str) -> dict[str, str]:
    """Read a queue's tags back."""
    return _decode_tags(text)
