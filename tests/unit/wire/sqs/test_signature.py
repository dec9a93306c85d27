"""Signatures: against the vectors that Amazon publishes, and against botocore's own signer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.http import Request
from penstock.wire.sqs.errors import AuthenticationMissing, SignatureIncomplete
from penstock.wire.sqs.signature import (
    Scope,
    Signature,
    canonical_request,
    make_signing_key,
    read_signature,
    sign,
    string_to_sign,
)

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEY = "AKIDEXAMPLE"
INSTANT = "20150830T123600Z"
SCOPE = Scope(KEY, "20150830", "us-east-1", "service", "aws4_request")
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def signature(*signed_headers: str, scope: Scope = SCOPE) -> Signature:
    return Signature(scope=scope, instant=INSTANT, signed_headers=signed_headers, hex="")


# Amazon's published suite: request, canonical request but for its constant parts, signature.
HEADERS = {"host": "example.amazonaws.com", "x-amz-date": INSTANT}
VECTORS = [
    pytest.param("GET", "/", "", "/", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31", id="get"),
    pytest.param(
        "POST", "/", "", "/", "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b", id="post"
    ),
    pytest.param(
        "GET",
        "/",
        "Param2=value2&Param1=value1",
        "/",
        "Param1=value1&Param2=value2",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        id="get-vanilla-query-order-key-case",
    ),
    pytest.param(
        "GET",
        "/",
        "Param1=value2&Param1=Value1",
        "/",
        "Param1=Value1&Param1=value2",
        "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1",
        id="get-vanilla-query-order-value",
    ),
    pytest.param(
        "GET",
        "/",
        "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz="
        "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        "/",
        "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz="
        "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
        id="get-vanilla-query-unreserved",
    ),
    pytest.param(
        "GET",
        "/example/..",
        "",
        "/",
        "",
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        id="get-relative",
    ),
    pytest.param(
        "GET",
        "/./",
        "",
        "/",
        "",
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        id="slash-dot",
    ),
    pytest.param(
        "GET",
        "//example//",
        "",
        "/example/",
        "",
        "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
        id="get-slashes",
    ),
    pytest.param(
        "GET",
        "/example space/",
        "",
        "/example%20space/",
        "",
        "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
        id="get-space",
    ),
    pytest.param(
        "GET",
        "/\u1234".encode().decode("latin-1"),
        "",
        "/%E1%88%B4",
        "",
        "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        id="get-utf8",
    ),
]


@pytest.mark.parametrize(("method", "path", "query", "canonical_path", "canonical_query", "expected"), VECTORS)
def test_amazons_vectors(
    method: str, path: str, query: str, canonical_path: str, canonical_query: str, expected: str
) -> None:
    request = Request(method, path, query, HEADERS, b"")
    signed = signature("host", "x-amz-date")
    assert canonical_request(request, signed).decode() == (
        f"{method}\n{canonical_path}\n{canonical_query}\nhost:example.amazonaws.com\nx-amz-date:{INSTANT}\n\n"
        f"host;x-amz-date\n{EMPTY}"
    )
    assert sign(make_signing_key(SECRET, SCOPE), signed, request) == expected


def test_a_string_to_sign_and_a_signing_key_are_amazons() -> None:
    canonical = canonical_request(Request("GET", "/", "", HEADERS, b""), signature("host", "x-amz-date"))
    assert string_to_sign(signature("host", "x-amz-date"), canonical).decode() == (
        "AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/us-east-1/service/aws4_request\n"
        "bb579772317eb040ac9ed261061d46c1f17a8133879d6129b6e1c25292927e63"
    )
    iam = Scope(KEY, "20150830", "us-east-1", "iam", "aws4_request")
    assert make_signing_key(SECRET, iam).hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"


def test_white_space_in_headers_is_one_space() -> None:
    request = Request("GET", "/", "", {**HEADERS, "my-header1": "value4,value1", "my-header2": ' "a   b   c" '}, b"")
    lines = canonical_request(request, signature("host", "my-header1", "my-header2")).decode().split("\n")
    assert lines[4:6] == ["my-header1:value4,value1", 'my-header2:"a b c"']


@pytest.mark.parametrize(
    ("stated", "line"),
    [
        ("UNSIGNED-PAYLOAD", "UNSIGNED-PAYLOAD"),
        ("0" * 64, "3608bca1e44ea6c4d268eb6db02260269892c0b42b86bbf1e77a6fa16c3c9282"),
        (EMPTY, "3608bca1e44ea6c4d268eb6db02260269892c0b42b86bbf1e77a6fa16c3c9282"),
    ],
)
def test_a_hash_that_is_stated_is_made_again_unless_the_body_is_unsigned(stated: str, line: str) -> None:
    request = Request("POST", "/", "", {**HEADERS, "x-amz-content-sha256": stated}, b"xyz")
    assert canonical_request(request, signature("host")).decode().split("\n")[-1] == line


# -- against botocore -----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _frozen() -> Iterator[None]:
    """Have botocore sign at one instant."""
    moment = dt.datetime(2015, 8, 30, 12, 36, tzinfo=dt.UTC)
    with mock.patch("botocore.auth.get_current_datetime", return_value=moment.replace(tzinfo=None)):
        yield


def as_sent(signed: AWSRequest) -> Request:
    """Take a request as it goes over the wire."""
    prepared = signed.prepare()
    parts = urlsplit(prepared.url)
    headers = {name.lower(): str(value) for name, value in prepared.headers.items()}
    headers.setdefault("host", parts.netloc)
    return Request(prepared.method, parts.path or "/", parts.query, headers, prepared.body or b"")


def recomputed(request: Request) -> tuple[str, str]:
    """Return the signature of a request and the one that it should have."""
    read = read_signature(request)
    return read.hex, sign(make_signing_key(SECRET, read.scope), read, request)


URLS = [
    "http://localhost:9324/",
    "http://localhost:9324/000000000000/orders",
    "http://localhost:9324/queue/eu-west-1/000000000000/orders.fifo",
    "http://localhost/000000000000/orders?Action=SendMessage&MessageBody=a%20b%2Bc%2F%C3%A9&Version=2012-11-05",
    "https://sqs.eu-west-1.example.com/queue/a%20b?Action=ListQueues",
]
SIGNERS = {"header": auth.SigV4Auth, "query": auth.SigV4QueryAuth}


@pytest.mark.parametrize("signer", SIGNERS)
@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(("method", "body"), [("GET", b""), ("POST", b'{"QueueUrl":"\xc3\xa9"}')])
def test_what_botocore_signs_is_signed_alike(signer: str, url: str, method: str, body: bytes) -> None:
    headers = {"X-Amz-Target": "AmazonSQS.SendMessage"} if method == "POST" and signer == "header" else {}
    request = AWSRequest(method=method, url=url, data=body, headers={"Content-Type": "text/plain", **headers})
    SIGNERS[signer](Credentials(KEY, SECRET), "sqs", "eu-west-1").add_auth(request)
    sent = as_sent(request)
    found, expected = recomputed(sent)
    assert found == expected
    assert read_signature(sent).expires_s == (3_600 if signer == "query" else None)


@given(
    parameters=st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8),
        st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12),
        max_size=5,
    )
)
def test_any_parameters_are_signed_as_botocore_does(parameters: dict[str, str]) -> None:
    request = AWSRequest(method="GET", url="http://localhost:9324/", params=parameters)
    auth.SigV4Auth(Credentials(KEY, SECRET), "sqs", "eu-west-1").add_auth(request)
    found, expected = recomputed(as_sent(request))
    assert found == expected


# -- reading --------------------------------------------------------------------------------------

AUTHORIZATION = (
    f"AWS4-HMAC-SHA256 Credential={KEY}/20150830/us-east-1/sqs/aws4_request, "
    "SignedHeaders=host;x-amz-date, Signature=abc123"
)


def headed(authorization: str = AUTHORIZATION, **changes: str | None) -> Request:
    headers: dict[str, Any] = {**HEADERS, "authorization": authorization}
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    return Request("POST", "/", "", {name: value for name, value in headers.items() if value is not None}, b"")


def test_parts_may_stand_in_any_order_and_without_spaces() -> None:
    turned = (
        f"AWS4-HMAC-SHA256 Signature=abc123,SignedHeaders=host;x-amz-date,Credential={KEY}/20150830/us-east-1/sqs/"
        "aws4_request"
    )
    assert read_signature(headed(turned)) == read_signature(headed())
    assert read_signature(headed()).hex == "abc123"


def test_the_date_header_stands_in_for_amazons_own() -> None:
    read = read_signature(headed(x_amz_date=None, date="Sun, 30 Aug 2015 12:36:00 GMT"))
    assert read.instant == INSTANT
    assert read.signed_at_ms == 1_440_938_160_000


UNREADABLE = [
    ("Bearer token", {}, "Unsupported AWS 'algorithm': 'Bearer'."),
    ("AWS4-HMAC-SHA256", {}, "requires 'Credential' parameter. Authorization header requires 'Signature'"),
    (AUTHORIZATION.replace("SignedHeaders", "Headers"), {}, "requires 'SignedHeaders' parameter."),
    (AUTHORIZATION.replace("/sqs/", "/"), {}, "5 slash-delimited elements"),
    (AUTHORIZATION.replace("us-east-1", ""), {}, "5 slash-delimited elements"),
    (AUTHORIZATION.replace("host;", ""), {}, "'Host' must be a 'SignedHeader'"),
    (AUTHORIZATION, {"x_amz_target": "AmazonSQS.DeleteQueue"}, "'x-amz-target' must be a 'SignedHeader'"),
    (AUTHORIZATION, {"x_amz_date": None}, "either a 'X-Amz-Date' or a 'Date' header"),
    (AUTHORIZATION, {"x_amz_date": "2015-08-30"}, "ISO-8601 'basic format'"),
    (AUTHORIZATION, {"x_amz_date": None, "date": "yesterday"}, "cannot be read"),
    (AUTHORIZATION + "0" * 5_000, {}, "too long"),
]


@pytest.mark.parametrize(("authorization", "changes", "reason"), UNREADABLE)
def test_a_signature_that_is_not_whole_is_refused(authorization: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(SignatureIncomplete) as refused:
        read_signature(headed(authorization, **changes))
    assert reason in refused.value.reason


def test_an_instant_that_never_was_is_refused() -> None:
    with pytest.raises(SignatureIncomplete):
        _ = read_signature(headed(x_amz_date="20151399T990000Z")).signed_at_ms


PRESIGNED = (
    "Action=ListQueues&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20150830%2Fus-east-1%2Fsqs%2F"
    "aws4_request&X-Amz-Date=20150830T123600Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=abc"
)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (PRESIGNED.replace("&X-Amz-Expires=60", ""), "must include X-Amz-Expires"),
        (PRESIGNED.replace("=60", "=0"), "from 1 to 604800"),
        (PRESIGNED.replace("=60", "=604801"), "from 1 to 604800"),
        (PRESIGNED.replace("=60", "=soon"), "from 1 to 604800"),
        (PRESIGNED.replace("AWS4-HMAC-SHA256", "MD5"), "Unsupported AWS 'algorithm': 'MD5'"),
        (PRESIGNED.replace("=20150830T", "=20150830"), "ISO-8601"),
        (PRESIGNED.replace("SignedHeaders=host", "SignedHeaders=date"), "'Host' must be"),
        (PRESIGNED + "&X-Amz-Expires=600", "repeated"),
        ("&".join(["a"] * 3_000) + "&X-Amz-Signature=a", "more than 2000"),
    ],
)
def test_a_presigned_url_that_is_not_whole_is_refused(query: str, reason: str) -> None:
    with pytest.raises(SignatureIncomplete) as refused:
        read_signature(Request("GET", "/", query, {"host": "h"}, b""))
    assert reason in refused.value.reason


def test_a_request_without_a_signature_has_none() -> None:
    with pytest.raises(AuthenticationMissing):
        read_signature(Request("GET", "/", "Action=ListQueues", {"host": "h"}, b""))
