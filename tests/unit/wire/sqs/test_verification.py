"""Who signed, when, and whether it is true."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.domain.errors import PenstockError
from penstock.wire.http import Request
from penstock.wire.sqs import verification
from penstock.wire.sqs.errors import (
    AccessKeyUnknown,
    AuthenticationMissing,
    PresignedUrlExpired,
    SignatureMismatch,
)
from penstock.wire.sqs.signature import Scope
from penstock.wire.sqs.verification import SignatureVerifier
from tests.support.signing import presigned, signed

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
NOW_MS = 1_440_938_160_000  # 2015-08-30 12:36:00
MINUTE_MS = 60_000
PLAIN = Request(
    "POST", "/", "", {"host": "localhost", "x-amz-target": "AmazonSQS.ListQueues", "user-agent": "me"}, b"{}"
)
URL = Request("GET", "/queue/orders", "Action=SendMessage&MessageBody=tea%20for%20two", {"host": "localhost"}, b"")


@pytest.fixture
def verifier() -> SignatureVerifier:
    return SignatureVerifier({KEY: SECRET, "OTHER": "another secret"})


def in_header(at_ms: int = NOW_MS, **changes: str) -> Request:
    return signed(PLAIN, KEY, SECRET, at_ms=at_ms, **changes)


def in_query(at_ms: int = NOW_MS, expires_s: int = 3_600) -> Request:
    return presigned(URL, KEY, SECRET, at_ms=at_ms, expires_s=expires_s)


def replaced(request: Request, **changes: object) -> Request:
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    return Request(**{**fields, **changes})


def test_a_signed_request_tells_who_signed_it_and_for_which_region(verifier: SignatureVerifier) -> None:
    expected = Scope(KEY, "20150830", "eu-west-1", "sqs", "aws4_request")
    for _ in range(2):  # The second time with a key that was derived before.
        assert verifier.verify(in_header(), NOW_MS) == expected
        assert verifier.verify(in_query(), NOW_MS) == expected


@pytest.mark.parametrize(
    ("request_", "kind", "reason"),
    [
        (PLAIN, AuthenticationMissing, "Request is missing Authentication Token"),
        (URL, AuthenticationMissing, "Request is missing Authentication Token"),
        (signed(PLAIN, "NOBODY", SECRET, at_ms=NOW_MS), AccessKeyUnknown, "The security token included"),
        (in_header(token="temporary"), AccessKeyUnknown, "The security token included"),
        (signed(PLAIN, KEY, "wrong", at_ms=NOW_MS), SignatureMismatch, "does not match the signature you provided"),
        (signed(PLAIN, "OTHER", SECRET, at_ms=NOW_MS), SignatureMismatch, "does not match"),
        (in_header(service="s3"), SignatureMismatch, "Credential should be scoped to correct service: 'sqs'."),
        (replaced(in_header(), body=b'{"a":1}'), SignatureMismatch, "does not match"),
        (replaced(in_header(), path="/queue/other"), SignatureMismatch, "does not match"),
        (replaced(in_header(), method="GET"), SignatureMismatch, "does not match"),
        (replaced(in_header(), query="Action=DeleteQueue"), SignatureMismatch, "does not match"),
        (replaced(in_query(), query=in_query().query.replace("two", "one")), SignatureMismatch, "does not match"),
        (replaced(in_query(), query=in_query().query + "&DelaySeconds=5"), SignatureMismatch, "does not match"),
        (replaced(in_query(), query=in_query().query.replace("=3600", "=9999")), SignatureMismatch, "does not match"),
        (replaced(in_query(), body=b"MessageBody=another"), SignatureMismatch, "does not match"),
    ],
)
def test_what_is_not_signed_so_by_its_key_is_refused(
    verifier: SignatureVerifier, request_: Request, kind: type[PenstockError], reason: str
) -> None:
    with pytest.raises(kind) as refused:
        verifier.verify(request_, NOW_MS)
    assert reason in refused.value.reason
    assert SECRET not in repr(refused.value)


@pytest.mark.parametrize("header", ["host", "x-amz-target", "x-amz-date"])
def test_a_signed_header_cannot_be_changed(verifier: SignatureVerifier, header: str) -> None:
    request = in_header()
    with pytest.raises(PenstockError):
        verifier.verify(replaced(request, headers={**request.headers, header: "20150830T123601Z"}), NOW_MS)


def test_a_header_that_is_not_signed_may_be_changed_by_proxies(verifier: SignatureVerifier) -> None:
    request = in_header()
    verifier.verify(replaced(request, headers={**request.headers, "user-agent": "a proxy", "via": "1.1 x"}), NOW_MS)


@pytest.mark.parametrize("minutes", [-15, 0, 15])
def test_clocks_may_differ_by_a_quarter_of_an_hour(verifier: SignatureVerifier, minutes: int) -> None:
    verifier.verify(in_header(NOW_MS + minutes * MINUTE_MS), NOW_MS)


@pytest.mark.parametrize(
    ("off_ms", "reason"),
    [
        (
            -15 * MINUTE_MS - 1_000,
            "Signature expired: 20150830T122059Z is now earlier than 20150830T122100Z (20150830T123600Z - 15 min.)",
        ),
        (
            15 * MINUTE_MS + 1_000,
            (
                "Signature not yet current: 20150830T125101Z is still later than 20150830T125100Z "
                "(20150830T123600Z + 15 min.)"
            ),
        ),
    ],
)
def test_but_not_by_more(verifier: SignatureVerifier, off_ms: int, reason: str) -> None:
    with pytest.raises(SignatureMismatch) as refused:
        verifier.verify(in_header(NOW_MS + off_ms), NOW_MS)
    assert refused.value.reason == reason


def test_the_day_of_the_scope_is_that_of_the_request(verifier: SignatureVerifier) -> None:
    request = in_header()
    request.headers["authorization"] = request.headers["authorization"].replace("20150830", "20150829")
    with pytest.raises(SignatureMismatch) as refused:
        verifier.verify(request, NOW_MS)
    assert "'20150829' != '20150830', from '20150830T123600Z'" in refused.value.reason


def test_the_scope_ends_as_it_should(verifier: SignatureVerifier) -> None:
    request = in_header()
    request.headers["authorization"] = request.headers["authorization"].replace("aws4_request", "aws4_req")
    with pytest.raises(SignatureMismatch, match="valid terminator: 'aws4_request', not 'aws4_req'"):
        verifier.verify(request, NOW_MS)


def test_a_presigned_url_is_good_until_it_expires(verifier: SignatureVerifier) -> None:
    verifier.verify(in_query(expires_s=604_800), NOW_MS + 604_800_000)
    verifier.verify(in_query(expires_s=60), NOW_MS + MINUTE_MS)
    with pytest.raises(PresignedUrlExpired):
        verifier.verify(in_query(expires_s=60), NOW_MS + MINUTE_MS + 1)


def test_a_presigned_url_from_the_future_is_refused(verifier: SignatureVerifier) -> None:
    with pytest.raises(SignatureMismatch, match="not yet current"):
        verifier.verify(in_query(NOW_MS + 16 * MINUTE_MS), NOW_MS)


def test_few_signing_keys_are_remembered(verifier: SignatureVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "SIGNING_KEYS_MAX", 3)
    for number in range(10):
        verifier.verify(in_header(region=f"region-{number}"), NOW_MS)
    assert len(verifier._signing_keys) == 3  # noqa: SLF001 - what it remembers shows nowhere else
    assert verifier.verify(in_header(region="region-0"), NOW_MS).region == "region-0"


def test_instants_are_told_in_utc() -> None:
    assert datetime.fromtimestamp(NOW_MS / 1_000, UTC).isoformat() == "2015-08-30T12:36:00+00:00"
