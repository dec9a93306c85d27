"""Receipt handles: the text by which a consumer names one delivery of one message."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct

from penstock.domain.errors import ReceiptHandleInvalid
from penstock.domain.message import Receipt

_LAYOUT = struct.Struct(">BIQI")
_VERSION = 1
_TAG_BYTES = 10
"""With these a handle has a length that base64 needs no padding for."""
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
"""The alphabet that handles were written in once. Those that were given out then stay valid."""


class ReceiptHandles:
    """Writes and reads handles. The tag makes one hard to guess and tells ours from any other text.

    They are standard base64, as on AWS: clients split texts with a handle in them at a `-`, which that does not have.
    """

    def __init__(self, secret: bytes) -> None:
        self._keyed = hashlib.blake2b(key=secret, digest_size=_TAG_BYTES)

    def encode(self, receipt: Receipt) -> str:
        """Write a handle."""
        payload = _LAYOUT.pack(_VERSION, receipt.queue_id, receipt.position, receipt.receipt)
        return base64.b64encode(payload + self._tag(payload)).decode()

    def decode(self, handle: str) -> Receipt:
        """Read a handle back; refuse what `encode` did not write."""
        try:
            raw = base64.b64decode(handle.encode().translate(_URL_SAFE), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        payload, tag = raw[: _LAYOUT.size], raw[_LAYOUT.size :]
        if len(payload) < _LAYOUT.size or not hmac.compare_digest(tag, self._tag(payload)):
            message = f'The input receipt handle "{handle}" is not a valid receipt handle.'
            raise ReceiptHandleInvalid(message)
        _, queue_id, position, receipt = _LAYOUT.unpack(payload)
        return Receipt(queue_id, position, receipt)

    def _tag(self, payload: bytes) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(payload)
        return keyed.digest()
