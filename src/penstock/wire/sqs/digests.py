"""MD5 digests as SQS makes them, with which clients check what they sent and got."""

from __future__ import annotations

import struct
from hashlib import md5
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.domain.message import Attribute

_LENGTH = struct.Struct(">I")
_TEXT = b"\x01"
_BINARY = b"\x02"


def body_digest(body: str) -> str:
    """Digest a body."""
    return md5(body.encode(), usedforsecurity=False).hexdigest()


def attributes_digest(attributes: Mapping[str, Attribute]) -> str | None:
    """Digest attributes in the order of their names, or None if there are none.

    Each name, type (with its label) and value stands behind its length; a byte tells text (strings and numbers) from
    bytes.
    """
    if not attributes:
        return None
    digest = md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        value = attribute.value
        parts = (_sized(name.encode()), _sized(attribute.data_type.encode()))
        tail = _BINARY + _sized(value) if isinstance(value, bytes) else _TEXT + _sized(value.encode())
        digest.update(b"".join((*parts, tail)))
    return digest.hexdigest()


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data
