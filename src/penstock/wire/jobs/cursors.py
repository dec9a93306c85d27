"""Cursors: the text by which a client asks for the next page of a list of jobs."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from penstock.domain.job_errors import JobInvalid

_POSITION_BYTES = 8
_TAG_BYTES = 10
"""With these a cursor has a length that base64 needs no padding for."""


class Cursors:
    """Writes and reads cursors. A position counts the jobs of everybody, so a cursor hides it.

    The tag is a keyed digest of the position, and the position is covered by a keyed digest of the tag.
    """

    def __init__(self, secret: bytes) -> None:
        self._tags = hashlib.blake2b(key=secret, digest_size=_TAG_BYTES, person=b"cursor-tag")
        self._pads = hashlib.blake2b(key=secret, digest_size=_POSITION_BYTES, person=b"cursor-pad")

    def encode(self, position: int) -> str:
        """Write a cursor."""
        plain = position.to_bytes(_POSITION_BYTES)
        tag = _digest(self._tags, plain)
        return base64.urlsafe_b64encode(tag + _cover(plain, _digest(self._pads, tag))).decode()

    def decode(self, text: str) -> int:
        """Read a cursor back; raises `JobInvalid` for what `encode` did not write."""
        try:
            raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        tag, covered = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
        if len(covered) == _POSITION_BYTES:
            plain = _cover(covered, _digest(self._pads, tag))
            if hmac.compare_digest(tag, _digest(self._tags, plain)):
                return int.from_bytes(plain)
        raise JobInvalid("This is not a cursor that was given out here.", "cursor")


def _digest(keyed: hashlib.blake2b, text: bytes) -> bytes:
    made = keyed.copy()
    made.update(text)
    return made.digest()


def _cover(text: bytes, pad: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(text, pad, strict=True))
