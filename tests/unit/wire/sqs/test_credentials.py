from __future__ import annotations

import pytest

from penstock.wire.http import Request
from penstock.wire.sqs.credentials import CredentialScope, credential_scope

SIGNED = (
    "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/eu-west-1/sqs/aws4_request, "
    "SignedHeaders=host;x-amz-date, Signature=0"
)
EUROPE = CredentialScope("AKIAEXAMPLE", "eu-west-1")
PRESIGNED = "Action=SendMessage&X-Amz-Credential=AKIAEXAMPLE%2F20260101%2Feu-west-1%2Fsqs%2Faws4_request"

SCOPES = [
    ({"authorization": SIGNED}, "", EUROPE),
    ({}, PRESIGNED, EUROPE),
    ({"authorization": SIGNED.replace("AKIAEXAMPLE", "a/key")}, "", CredentialScope("a/key", "eu-west-1")),
    ({}, "", None),
    ({"authorization": "Bearer token"}, "", None),
    ({"authorization": "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101"}, "", None),
    ({"authorization": SIGNED.replace("eu-west-1", "")}, "", None),
    ({"authorization": SIGNED.replace("AKIAEXAMPLE", "x" * 300)}, "", None),
    ({}, "X-Amz-Credential=", None),
]


@pytest.mark.parametrize(("headers", "query", "scope"), SCOPES)
def test_the_scope_is_read_where_there_is_one(
    headers: dict[str, str], query: str, scope: CredentialScope | None
) -> None:
    assert credential_scope(Request("POST", "/", query, headers, b"")) == scope
