"""Verification of signatures: by known keys, for now, and for this service."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.wire.sqs.errors import AccessKeyUnknown, PresignedUrlExpired, SignatureMismatch
from penstock.wire.sqs.signature import TERMINATOR, make_signing_key, read_signature, sign

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.wire.http import Request
    from penstock.wire.sqs.signature import Scope, Signature

SERVICE = "sqs"
SKEW_MINUTES = 15
SKEW_MS = SKEW_MINUTES * 60_000
SIGNING_KEYS_MAX = 1_024

_MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key "
    "and signing method. Consult the service documentation for details."
)
_UNKNOWN_KEY = "The security token included in the request is invalid."


class SignatureVerifier:
    """Verifies requests against secrets by the ids of their keys. It remembers the signing keys that it derived."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = dict(secrets)
        self._signing_keys: OrderedDict[Scope, bytes] = OrderedDict()

    def verify(self, request: Request, now_ms: int) -> Scope:
        """Return what a request is signed for; refuse one that is not signed, by nobody we know, wrongly or too late.

        Whether a key exists is told before anything else about it, as Amazon does.
        """
        signature = self.check_head(request, now_ms)
        scope = signature.scope
        expected = sign(self._signing_key(scope), signature, request)
        if not hmac.compare_digest(expected.encode(), signature.hex.encode("utf-8", "replace")):
            raise SignatureMismatch(_MISMATCH)
        return scope

    def check_head(self, request: Request, now_ms: int) -> Signature:
        """Return the signature of a request, of which everything is in order but for what its body decides."""
        signature = read_signature(request)
        # A token belongs to a temporary key, of which we have none.
        if signature.scope.access_key not in self._secrets or signature.token is not None:
            raise AccessKeyUnknown(_UNKNOWN_KEY)
        _check_scope(signature)
        _check_time(signature, now_ms)
        return signature

    def _signing_key(self, scope: Scope) -> bytes:
        keys = self._signing_keys
        key = keys.get(scope)
        if key is None:
            key = keys[scope] = make_signing_key(self._secrets[scope.access_key], scope)
            if len(keys) > SIGNING_KEYS_MAX:
                keys.popitem(last=False)
        return key


def _check_scope(signature: Signature) -> None:
    scope = signature.scope
    if scope.terminator != TERMINATOR:
        raise SignatureMismatch(
            f"Credential should be scoped with a valid terminator: '{TERMINATOR}', not '{scope.terminator}'."
        )
    if scope.service != SERVICE:
        raise SignatureMismatch(f"Credential should be scoped to correct service: '{SERVICE}'.")
    if not signature.instant.startswith(scope.day + "T"):
        raise SignatureMismatch(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: "
            f"'{scope.day}' != '{signature.instant[:8]}', from '{signature.instant}'."
        )


def _check_time(signature: Signature, now_ms: int) -> None:
    signed_at_ms = signature.signed_at_ms
    if signed_at_ms > now_ms + SKEW_MS:
        raise SignatureMismatch(
            f"Signature not yet current: {signature.instant} is still later than "
            f"{_instant(now_ms + SKEW_MS)} ({_instant(now_ms)} + {SKEW_MINUTES} min.)"
        )
    if signature.expires_s is not None:
        if now_ms > signed_at_ms + signature.expires_s * 1_000:
            raise PresignedUrlExpired("Request has expired.")
    elif signed_at_ms < now_ms - SKEW_MS:
        raise SignatureMismatch(
            f"Signature expired: {signature.instant} is now earlier than "
            f"{_instant(now_ms - SKEW_MS)} ({_instant(now_ms)} - {SKEW_MINUTES} min.)"
        )


def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1_000, UTC).strftime("%Y%m%dT%H%M%SZ")
