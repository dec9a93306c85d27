"""What identifies a call of the job API, so that its repeat is recognised."""

from __future__ import annotations

import hashlib
from uuid import UUID

_DIGEST_BYTES = 16
_TURN_BITS = 63


def call_key(*parts: str) -> str:
    """Digest what identifies a call into 32 hexadecimal digits. No two lists of parts have the same digest."""
    made = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        text = part.encode(errors="surrogatepass")
        made.update(len(text).to_bytes(8))
        made.update(text)
    return made.hexdigest()


def turn_of(call: str) -> int:
    """Return the number that offers made to this call are stored with: 63 bits of its key."""
    return int(call, 16) >> (8 * _DIGEST_BYTES - _TURN_BITS)


def operation_id_of(call: str) -> str:
    """Return the id of the operation that this call starts."""
    return str(UUID(hex=call))
