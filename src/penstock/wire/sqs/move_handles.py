"""Task handles: the text by which a client names a message move task."""

from __future__ import annotations

import base64
import binascii

import msgspec

from penstock.domain.errors import InvalidParameter


class MoveHandle(msgspec.Struct, frozen=True, rename={"task_id": "taskId", "source_arn": "sourceArn"}):
    """What is inside a handle."""

    task_id: str
    source_arn: str


_decode = msgspec.json.Decoder(MoveHandle).decode


def encode_move_handle(handle: MoveHandle) -> str:
    """Write a handle."""
    return base64.b64encode(msgspec.json.encode(handle)).decode()


def decode_move_handle(text: str) -> MoveHandle:
    """Read a handle back; refuse what is none."""
    try:
        return _decode(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise InvalidParameter("Value for parameter TaskHandle is invalid.") from None
