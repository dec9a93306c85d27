"""Lease tokens: the text by which a worker names the attempt that it reports on."""

from __future__ import annotations

import hashlib
import hmac
import struct
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from penstock.domain.job import Lease
from penstock.domain.job_errors import LeaseTokenInvalid

_LAYOUT = struct.Struct(">B16sIQ")
_VERSION = 1
_TAG_BYTES = 13
"""With these a token has a length that base64 needs no padding for."""
_PURPOSE = b"lease-token"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")
"""What is not of the URL-safe alphabet becomes what is of none."""


class LeaseTokens:
    """Writes and reads tokens. The tag keeps anybody from making one: whoever has it may report on the job."""

    def __init__(self, secret: bytes) -> None:
        self._keyed = hashlib.blake2b(key=secret, digest_size=_TAG_BYTES, person=_PURPOSE)

    def encode(self, lease: Lease) -> str:
        """Write a token."""
        payload = _LAYOUT.pack(_VERSION, bytes.fromhex(lease.job_id.replace("-", "")), lease.attempt, lease.fence)
        return b2a_base64(payload + self._tag(payload), newline=False).translate(_URL_SAFE).decode()

    def decode(self, token: str) -> Lease:
        """Read a token back; raises `LeaseTokenInvalid` for what `encode` did not write."""
        try:
            raw = a2b_base64(token.encode().translate(_FROM_URL), strict_mode=True)
        except (Base64Error, ValueError):
            raw = b""
        payload, tag = raw[: _LAYOUT.size], raw[_LAYOUT.size :]
        if len(payload) < _LAYOUT.size or not hmac.compare_digest(tag, self._tag(payload)):
            raise LeaseTokenInvalid("This is not a lease token that was given out here.")
        _, job_id, attempt, fence = _LAYOUT.unpack(payload)
        # As UUID writes it, in an eighth of the time.
        digits = job_id.hex()
        text = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        return Lease(text, attempt, fence)

    def _tag(self, payload: bytes) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(payload)
        return keyed.digest()
