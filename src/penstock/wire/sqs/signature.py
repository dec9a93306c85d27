"""Signature Version 4: what a request's signature says, and the one that a secret makes for it."""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

import msgspec

from penstock.wire.sqs.errors import AuthenticationMissing, SignatureIncomplete

if TYPE_CHECKING:
    from penstock.wire.http import Request

ALGORITHM = "AWS4-HMAC-SHA256"
TERMINATOR = "aws4_request"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
DATE_HEADER = "x-amz-date"
TOKEN_HEADER = "x-amz-security-token"  # noqa: S105 - the name of a header
PRESIGNED_S_MAX = 604_800
AUTHORIZATION_CHARACTERS_MAX = 4_096

_SCOPE_PARTS = 5
_PARSED_MAX = 1_024
_PARAMETERS_MAX = 2_000
_HASH_HEADER = "x-amz-content-sha256"
_SIGNED_IF_PRESENT = (DATE_HEADER, "x-amz-target", TOKEN_HEADER)
"""Headers that change what a request means or how long it is good for, so that nobody may add or alter them."""

_INSTANT = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_EXPIRES = re.compile(r"[0-9]{1,6}")
_EMPTY_HASH = hashlib.sha256(b"").hexdigest()
_PRESIGNED = ("X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature")


class Scope(msgspec.Struct, frozen=True, gc=False):
    """What a signature is for: a key, a day (`YYYYMMDD`), a region and a service."""

    access_key: str
    day: str
    region: str
    service: str
    terminator: str

    @property
    def text(self) -> str:
        """The scope as it is signed."""
        return f"{self.day}/{self.region}/{self.service}/{self.terminator}"


class Signature(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a signed request says about its signature, none of it verified.

    `expires_s` is set where the request was signed in advance and carries its signature in the query.
    """

    scope: Scope
    instant: str
    signed_headers: tuple[str, ...]
    hex: str
    expires_s: int | None = None
    token: str | None = None

    @property
    def signed_at_ms(self) -> int:
        """When the request was signed, as its signer says."""
        return _milliseconds(self.instant)


def read_signature(request: Request) -> Signature:
    """Read the signature of a request, from its `Authorization` header or its query.

    Raises `AuthenticationMissing` if there is none, and `SignatureIncomplete` if it is not of the form.
    """
    authorization = request.headers.get("authorization")
    if authorization is not None:
        signature = _in_header(authorization, request)
    elif "X-Amz-Signature=" in request.query or "X-Amz-Algorithm=" in request.query:
        signature = _in_query(request)
    else:
        raise AuthenticationMissing("Request is missing Authentication Token")
    if "host" not in signature.signed_headers:
        raise SignatureIncomplete("'Host' must be a 'SignedHeader' in the AWS Authorization.")
    for name in _SIGNED_IF_PRESENT:
        if name in request.headers and name not in signature.signed_headers:
            raise SignatureIncomplete(f"'{name}' must be a 'SignedHeader' in the AWS Authorization.")
    return signature


def sign(signing_key: bytes, signature: Signature, request: Request) -> str:
    """Make the signature that this request should have, in hexadecimal digits."""
    canonical = canonical_request(request, signature)
    return hmac.digest(signing_key, string_to_sign(signature, canonical), "sha256").hex()


def make_signing_key(secret: str, scope: Scope) -> bytes:
    """Derive the key that signs for one day, region and service."""
    key = f"AWS4{secret}".encode()
    for part in (scope.day, scope.region, scope.service, TERMINATOR):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def string_to_sign(signature: Signature, canonical: bytes) -> bytes:
    """Put together what the signing key signs."""
    digest = hashlib.sha256(canonical).hexdigest()
    return f"{ALGORITHM}\n{signature.instant}\n{signature.scope.text}\n{digest}".encode("latin-1")


def canonical_request(request: Request, signature: Signature) -> bytes:
    """Write a request in the one form in which client and server both sign it."""
    headers = request.headers
    lines = [
        request.method,
        _canonical_path(request.path),
        _canonical_query(request.query) if request.query else "",
        *[f"{name}:{' '.join(headers.get(name, '').split())}" for name in signature.signed_headers],
        "",
        ";".join(signature.signed_headers),
        _payload_hash(request),
    ]
    # Headers and paths were read as latin-1, byte for byte, and so they are given back.
    return "\n".join(lines).encode("latin-1")


# -- where a signature stands ---------------------------------------------------------------------


def _in_header(authorization: str, request: Request) -> Signature:
    if len(authorization) > AUTHORIZATION_CHARACTERS_MAX:
        raise SignatureIncomplete("The Authorization header is too long.")
    fixed, separator, digits = authorization.rpartition("Signature=")
    if separator and "," not in digits:
        scope, signed_headers = _parse_fixed(fixed)
    else:
        scope, signed_headers, digits = _parse_anyhow(authorization)
    instant = request.headers.get(DATE_HEADER)
    if instant is None:
        instant = _from_date_header(request.headers.get("date"))
    elif not _INSTANT.fullmatch(instant):
        raise SignatureIncomplete(f"Date must be in ISO-8601 'basic format'. Got '{instant}'.")
    return Signature(
        scope=scope,
        instant=instant,
        signed_headers=signed_headers,
        hex=digits.strip(),
        token=request.headers.get(TOKEN_HEADER),
    )


@functools.lru_cache(maxsize=_PARSED_MAX)
def _parse_fixed(fixed: str) -> tuple[Scope, tuple[str, ...]]:
    """Read all of an `Authorization` header but the signature: a client writes the same all day long."""
    scope, signed_headers, _ = _parse_anyhow(f"{fixed}Signature=-")
    return scope, signed_headers


def _parse_anyhow(authorization: str) -> tuple[Scope, tuple[str, ...], str]:
    """Read an `Authorization` header whose parts may stand in any order."""
    algorithm, _, rest = authorization.strip().partition(" ")
    if algorithm != ALGORITHM:
        raise SignatureIncomplete(f"Unsupported AWS 'algorithm': '{algorithm}'.")
    parts: dict[str, str] = {}
    for part in rest.split(","):
        name, _, value = part.strip().partition("=")
        parts[name] = value.strip()
    missing = [name for name in ("Credential", "Signature", "SignedHeaders") if not parts.get(name)]
    if missing:
        raise SignatureIncomplete(" ".join(f"Authorization header requires '{name}' parameter." for name in missing))
    return _scope(parts["Credential"]), _names(parts["SignedHeaders"]), parts["Signature"]


def _in_query(request: Request) -> Signature:
    given: dict[str, str] = {}
    for name, value in _pairs(request.query):
        if name.startswith("X-Amz-"):
            if name in given:
                raise SignatureIncomplete(f"AWS query-string parameter '{name}' is repeated.")
            given[name] = value
    if given.get("X-Amz-Algorithm") != ALGORITHM:
        raise SignatureIncomplete(f"Unsupported AWS 'algorithm': '{given.get('X-Amz-Algorithm', '')}'.")
    missing = [name for name in _PRESIGNED if not given.get(name)]
    if missing:
        raise SignatureIncomplete("AWS query-string parameters must include " + ", ".join(missing) + ".")
    expires = given["X-Amz-Expires"]
    if not _EXPIRES.fullmatch(expires) or not 1 <= int(expires) <= PRESIGNED_S_MAX:
        raise SignatureIncomplete(f"X-Amz-Expires must be a number of seconds from 1 to {PRESIGNED_S_MAX}.")
    if not _INSTANT.fullmatch(given["X-Amz-Date"]):
        raise SignatureIncomplete(f"Date must be in ISO-8601 'basic format'. Got '{given['X-Amz-Date']}'.")
    return Signature(
        scope=_scope(given["X-Amz-Credential"]),
        instant=given["X-Amz-Date"],
        signed_headers=_names(given["X-Amz-SignedHeaders"]),
        hex=given["X-Amz-Signature"],
        expires_s=int(expires),
        token=given.get("X-Amz-Security-Token"),
    )


def _scope(credential: str) -> Scope:
    parts = credential.rsplit("/", _SCOPE_PARTS - 1)
    if len(parts) != _SCOPE_PARTS or not all(parts):
        raise SignatureIncomplete("Credential must have exactly 5 slash-delimited elements.")
    return Scope(*parts)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.lower().split(";"))


def _from_date_header(date: str | None) -> str:
    if date is None:
        raise SignatureIncomplete(
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        )
    if _INSTANT.fullmatch(date):
        return date
    try:
        return parsedate_to_datetime(date).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    except (ValueError, OverflowError):
        raise SignatureIncomplete(f"The date '{date}' cannot be read.") from None


@functools.lru_cache(maxsize=_PARSED_MAX)
def _milliseconds(instant: str) -> int:
    try:
        read = datetime.strptime(instant, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise SignatureIncomplete(f"Date must be in ISO-8601 'basic format'. Got '{instant}'.") from None
    return int(read.timestamp()) * 1_000


# -- canonical forms ------------------------------------------------------------------------------


def _canonical_path(path: str) -> str:
    """Resolve dots, drop doubled slashes, and encode what was sent once more (a path is signed as it was encoded)."""
    if path == "/":
        return path
    steps: list[str] = []
    for step in path.split("/"):
        if step == "..":
            del steps[-1:]
        elif step not in {"", "."}:
            steps.append(step)
    plain = "/" + "/".join(steps) + ("/" if steps and path.endswith("/") else "")
    return quote(plain, safe="/~", encoding="latin-1")


def _canonical_query(query: str) -> str:
    """Encode every name and value in one way and sort them; a signature that stands among them is not signed."""
    pairs = [
        (quote(name, safe="~", encoding="latin-1"), quote(value, safe="~", encoding="latin-1"))
        for name, value in _pairs(query)
    ]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs) if name != "X-Amz-Signature")


def _pairs(query: str) -> list[tuple[str, str]]:
    """Take a query apart, bytes read as latin-1. A plus sign is a space, as it is when parameters are read."""
    if query.count("&") >= _PARAMETERS_MAX:
        raise SignatureIncomplete(f"The request holds more than {_PARAMETERS_MAX} parameters.")
    pairs = []
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if pair:
            pairs.append((_decoded(name), _decoded(value)))
    return pairs


def _decoded(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ").encode("latin-1")).decode("latin-1")


def _payload_hash(request: Request) -> str:
    """Hash the body, unless the signer says that it did not. A hash that a header states is not believed."""
    if request.headers.get(_HASH_HEADER) == UNSIGNED_PAYLOAD:
        return UNSIGNED_PAYLOAD
    return hashlib.sha256(request.body).hexdigest() if request.body else _EMPTY_HASH
