"""Signatures: who makes a request, in whose account, and who does not prove it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.domain.limits import Limits
from penstock.engine.engine import Engine
from penstock.server.access import Access
from penstock.server.sqs import SqsEndpoint
from penstock.testing import ManualClock
from penstock.wire.http import Request, Response
from penstock.wire.sqs.errors import SignatureMismatch
from tests.support.machine import Machine
from tests.support.signing import REGION, presigned, signed
from tests.support.sqs_model import PROTOCOLS, write_request
from tests.unit.server.sqs.access.conftest import KEYS, ORDERS, OWN, As
from tests.unit.server.sqs.conftest import Client, Refusal


async def test_a_signed_request_is_answered_in_the_account_and_region_of_its_key(as_: As) -> None:
    url = await as_("ann").create("orders")
    assert f"/{OWN}/orders" in url
    described = await as_("ann").call("GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn"])
    assert described["Attributes"]["QueueArn"] == ORDERS
    await as_("ann").call("SendMessage", QueueUrl=url, MessageBody="a")
    [message] = await as_("ann").receive(url, AttributeNames=["SenderId"])
    assert message["Attributes"]["SenderId"] == "ann"


async def test_accounts_do_not_see_each_others_queues(as_: As) -> None:
    mine, yours = await as_("ann").create("orders"), await as_("bob").create("orders")
    assert mine != yours
    assert (await as_("ann").call("ListQueues"))["QueueUrls"] == [mine]
    assert (await as_("bob").call("ListQueues"))["QueueUrls"] == [yours]
    await as_("ann").call("SendMessage", QueueUrl="orders", MessageBody="for ann")
    assert await as_("bob").bodies("orders") == []


def tampered(request: Request) -> Request:
    return Request(request.method, request.path, request.query, request.headers, request.body + b" ")


REFUSED: list[tuple[str, Callable[[Request, int], Request], int]] = [
    ("MissingAuthenticationToken", lambda request, _: request, 403),
    ("InvalidClientTokenId", lambda request, now: signed(request, "UNKNOWN", "secret", at_ms=now), 403),
    ("SignatureDoesNotMatch", lambda request, now: signed(request, "KEYANN", "guessed", at_ms=now), 403),
    (
        "SignatureDoesNotMatch",
        lambda request, now: tampered(signed(request, "KEYANN", KEYS["ann"].secret, at_ms=now)),
        403,
    ),
    (
        "SignatureDoesNotMatch",
        lambda request, now: signed(request, "KEYANN", KEYS["ann"].secret, at_ms=now - 901_000),
        403,
    ),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("code", "sign", "status"), REFUSED)
async def test_who_does_not_prove_who_they_are_is_refused_in_both_protocols(
    endpoint: SqsEndpoint,
    clock: ManualClock,
    protocol: str,
    code: str,
    sign: Callable[[Request, int], Request],
    status: int,
) -> None:
    class Sender(Client):
        async def respond(self, operation: str, /, **parameters: Any) -> Response:
            request = write_request(self.protocol, operation, parameters)
            return await self._endpoint.answer(sign(request, clock.now_ms()))

    with pytest.raises(Refusal) as refused:
        await Sender(endpoint, protocol).call("ListQueues")
    assert (refused.value.code, refused.value.status) == (code, status)


async def test_a_request_whose_signature_is_incomplete_is_refused(endpoint: SqsEndpoint) -> None:
    request = write_request("json", "ListQueues", {}, authorization="AWS4-HMAC-SHA256 Credential=KEYANN")
    response = await endpoint.answer(request)
    assert (response.status, json.loads(response.body)["__type"]) == (
        400,
        "com.amazon.coral.service#IncompleteSignatureException",
    )


async def test_a_presigned_url_does_what_it_was_signed_for(endpoint: SqsEndpoint, as_: As, clock: ManualClock) -> None:
    await as_("ann").create("orders")
    ann = KEYS["ann"]
    asked = Request("GET", f"/{OWN}/orders", "Action=SendMessage&MessageBody=tea%20%2B%20milk", {"host": "h"}, b"")
    url = presigned(asked, ann.id, ann.secret, at_ms=clock.now_ms(), expires_s=60)
    assert (await endpoint.answer(url)).status == 200
    await clock.advance(seconds=59)
    assert (await endpoint.answer(url)).status == 200
    await clock.advance(seconds=2)
    late = await endpoint.answer(url)
    assert (late.status, b"<Code>RequestExpired</Code>" in late.body) == (400, True)
    assert await as_("ann").bodies("orders") == ["tea + milk"] * 2


async def test_a_signature_is_checked_before_anything_is_read(endpoint: SqsEndpoint, clock: ManualClock) -> None:
    nonsense = Request("POST", "/", "", {"host": "h", "x-amz-target": "AmazonSQS.Fly"}, b"{")
    response = await endpoint.answer(signed(nonsense, "KEYANN", "guessed", at_ms=clock.now_ms()))
    assert b"InvalidSignatureException" in response.body


def test_secrets_are_not_shown() -> None:
    ann = KEYS["ann"]
    assert ann.secret not in repr(ann)
    assert ann.secret not in str(list(ann.__rich_repr__()))


# -- nonsense -------------------------------------------------------------------------------------

LATIN = st.text(st.characters(codec="latin-1"), max_size=60)
PIECES = st.sampled_from(
    [
        "AWS4-HMAC-SHA256 ",
        "Credential=KEYANN/20231114/eu-west-1/sqs/aws4_request",
        "Credential=KEYANN/20231114/eu-west-1/sqs",
        ", ",
        "SignedHeaders=host",
        "SignedHeaders=host;x-amz-date;\xff",
        "Signature=",
        "Signature=\xe9",
        "X-Amz-Signature=a&",
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&",
        "X-Amz-Credential=KEYANN%2F20231114%2Feu-west-1%2Fsqs%2Faws4_request&",
        "X-Amz-Date=20231114T221320Z&",
        "X-Amz-Expires=60&",
        "X-Amz-SignedHeaders=host&",
        "%",
        "%ff",
        "+",
    ]
)
NOISE = st.lists(PIECES | LATIN, max_size=8).map("".join)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=NOISE,
    path=LATIN,
    headers=st.dictionaries(
        st.sampled_from(["authorization", "x-amz-date", "date", "host", "x-amz-target", "x-amz-content-sha256"]),
        NOISE | st.sampled_from(["20231114T221320Z", "Tue, 14 Nov 2023 22:13:20 GMT", "99999999T999999Z"]),
    ),
)
async def test_noise_is_never_let_in_and_never_a_failure_of_ours(
    endpoint: SqsEndpoint, query: str, path: str, headers: dict[str, str]
) -> None:
    response = await endpoint.answer(Request("POST", path, query, headers, b"Action=ListQueues"))
    assert 400 <= response.status < 500, response.body


@pytest.mark.parametrize("hours", [-1, 1])
async def test_signatures_go_by_the_wall_clock_after_it_was_set(engine: Engine, limits: Limits, hours: int) -> None:
    machine = Machine()
    access = Access(KEYS.values(), engine.queues, machine.clock(), region=REGION, secure_transport=False)
    endpoint = SqsEndpoint(engine, region=REGION, access=access)
    before_ms = machine.wall_ms
    machine.step(hours=hours)
    request = write_request("json", "ListQueues", {})
    # By its head alone, too, as long as nobody has signed like this before.
    with pytest.raises(SignatureMismatch):
        endpoint.recognise(signed(request, "KEYANN", KEYS["ann"].secret, at_ms=before_ms))
    assert endpoint.recognise(signed(request, "KEYANN", KEYS["ann"].secret, at_ms=machine.wall_ms))
    for at_ms, status in ((machine.wall_ms, 200), (before_ms, 403)):
        answer = await endpoint.answer(signed(request, "KEYANN", KEYS["ann"].secret, at_ms=at_ms))
        assert answer.status == status
