"""Who says to be asking: the access key and region that stand in a request's signature, not yet verified."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec

if TYPE_CHECKING:
    from penstock.wire.http import Request

CREDENTIAL_MARK = "Credential="
_SCOPE_PARTS = 5
_CREDENTIAL_CHARACTERS_MAX = 256


class CredentialScope(msgspec.Struct, frozen=True, gc=False):
    """The access key and the region that a signature is for."""

    access_key: str
    region: str


def credential_scope(request: Request) -> CredentialScope | None:
    """Read the scope from the `Authorization` header, or from a presigned URL's query; None if neither has one."""
    authorization = request.headers.get("authorization")
    if authorization is not None:
        _, found, rest = authorization.partition(CREDENTIAL_MARK)
        credential = rest.partition(",")[0].strip() if found else ""
    elif "X-Amz-Credential=" in request.query:
        credential = parse_qs(request.query).get("X-Amz-Credential", [""])[0]
    else:
        return None
    return _parse(credential) if len(credential) <= _CREDENTIAL_CHARACTERS_MAX else None


def _parse(credential: str) -> CredentialScope | None:
    """Read `KEY/DATE/REGION/SERVICE/aws4_request`; the key itself may hold slashes."""
    parts = credential.rsplit("/", _SCOPE_PARTS - 1)
    if len(parts) != _SCOPE_PARTS or not parts[0] or not parts[2]:
        return None
    return CredentialScope(parts[0], parts[2])
