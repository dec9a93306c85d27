"""Keys, accounts and policies, as clients of the endpoint meet them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.broker.broker import Broker
from penstock.domain.errors import InvalidAttributeValue
from penstock.domain.limits import Limits
from penstock.domain.policy import parse_user_policy
from penstock.server import access
from penstock.server.access import Access, AccessKey
from penstock.server.sqs import SqsEndpoint
from penstock.store.port import Store
from penstock.testing import ManualClock
from penstock.wire.http import Request, Response
from penstock.wire.sqs.operations import OPERATIONS
from tests.support.signing import REGION, presigned, signed
from tests.support.sqs_model import PROTOCOLS, write_request
from tests.unit.server.sqs.conftest import Client, Refusal

OWN, OTHER = "111122223333", "444455556666"
ALL = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}
WORKER = {
    "Effect": "Allow",
    "Action": ["sqs:SendMessage", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"],
    "Resource": ["arn:aws:sqs:*:*:task*.fifo"],
}
ORDERS = f"arn:aws:sqs:{REGION}:{OWN}:orders"


def key(name: str, account: str, *rules: dict[str, Any]) -> AccessKey:
    return AccessKey(
        id=f"KEY{name.upper()}",
        secret=f"the secret of {name}",
        account=account,
        user=name,
        policy=parse_user_policy({"Version": "2012-10-17", "Statement": list(rules)}),
    )


KEYS = {
    "ann": key("ann", OWN, ALL),
    "worker": key("worker", OWN, WORKER),
    "nobody": key("nobody", OWN),
    "bob": key("bob", OTHER, ALL),
    "bobs": key("bobs", OTHER),
}


@pytest.fixture
def endpoint(broker: Broker, clock: ManualClock, limits: Limits) -> SqsEndpoint:
    guard = Access(KEYS.values(), broker.queues, clock, region=REGION, secure_transport=False)
    return SqsEndpoint(broker, limits=limits, region=REGION, access=guard)


class Signing(Client):
    """A client that signs with the key of a user; without a user, it does not sign."""

    def __init__(self, endpoint: SqsEndpoint, protocol: str, clock: ManualClock, user: str | None) -> None:
        super().__init__(endpoint, protocol)
        self._clock = clock
        self._user = user

    async def respond(self, operation: str, /, **parameters: Any) -> Response:
        request = write_request(self.protocol, operation, parameters)
        if self._user is not None:
            signer = KEYS[self._user]
            request = signed(request, signer.id, signer.secret, at_ms=self._clock.now_ms())
        return await self._endpoint.answer(request)

    async def refusal(self, operation: str, /, **parameters: Any) -> Refusal:
        with pytest.raises(Refusal) as refused:
            await self.call(operation, **parameters)
        return refused.value

    async def allow(self, url: str, principal: Any, action: Any = "sqs:*", **more: Any) -> None:
        rule = {"Effect": "Allow", "Principal": principal, "Action": action, "Resource": "*", **more}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [rule]})
        await self.call("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": policy})


As = Callable[[str | None], Signing]


@pytest.fixture(params=PROTOCOLS)
def as_(request: pytest.FixtureRequest, endpoint: SqsEndpoint, clock: ManualClock) -> As:
    return lambda user: Signing(endpoint, request.param, clock, user)


# -- who ------------------------------------------------------------------------------------------


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
    url = presigned(asked, ann.id, ann.secret, at_ms=clock.now_ms(), expires_s=3_600)
    assert (await endpoint.answer(url)).status == 200
    await clock.advance(seconds=3_599)
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


# -- what -----------------------------------------------------------------------------------------


async def test_a_user_does_what_their_policy_allows_and_nothing_else(as_: As) -> None:
    tasks = await as_("ann").create("tasks.fifo", ContentBasedDeduplication="true")
    orders = await as_("ann").create("orders")
    worker = as_("worker")
    entries = [{"Id": "1", "MessageBody": "b", "MessageGroupId": "g"}]
    await worker.call("SendMessage", QueueUrl=tasks, MessageBody="a", MessageGroupId="g")
    assert "Successful" in await worker.call("SendMessageBatch", QueueUrl=tasks, Entries=entries)
    [one, two] = await worker.receive(tasks, MaxNumberOfMessages=10)
    await worker.call("DeleteMessage", QueueUrl=tasks, ReceiptHandle=one["ReceiptHandle"])
    await worker.call(
        "DeleteMessageBatch", QueueUrl=tasks, Entries=[{"Id": "1", "ReceiptHandle": two["ReceiptHandle"]}]
    )
    refused_calls: list[tuple[str, dict[str, Any]]] = [
        ("SendMessage", {"QueueUrl": orders, "MessageBody": "a"}),
        ("SendMessageBatch", {"QueueUrl": orders, "Entries": entries}),
        ("DeleteQueue", {"QueueUrl": tasks}),
        ("PurgeQueue", {"QueueUrl": tasks}),
        ("CreateQueue", {"QueueName": "tasks-2.fifo", "Attributes": {"FifoQueue": "true"}}),
        ("ListQueues", {}),
        ("GetQueueUrl", {"QueueName": "tasks.fifo"}),
    ]
    for operation, parameters in refused_calls:
        refused = await worker.refusal(operation, **parameters)
        assert (refused.code, refused.status) == ("AccessDenied", 403), operation


async def test_a_denial_says_who_may_not_do_what_where_and_why(as_: As) -> None:
    url = await as_("ann").create("orders")
    refused = await as_("worker").refusal("SendMessageBatch", QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "b"}])
    assert refused.message == (
        f"User: arn:aws:iam::{OWN}:user/worker is not authorized to perform: sqs:sendmessage on resource: {ORDERS} "
        "because no identity-based policy allows the sqs:sendmessage action"
    )


SAMPLES: dict[str, dict[str, Any]] = {
    "AddPermission": {"Label": "l", "AWSAccountIds": [OTHER], "Actions": ["SendMessage"]},
    "CancelMessageMoveTask": {"TaskHandle": "eyJ0YXNrSWQiOiIxIiwic291cmNlQXJuIjoiYXJuOmF3czpzcXM6ZXU6MTptb3ZlcyJ9"},
    "ChangeMessageVisibility": {"ReceiptHandle": "r", "VisibilityTimeout": 1},
    "CreateQueue": {"QueueName": "new"},
    "DeleteMessage": {"ReceiptHandle": "r"},
    "GetQueueUrl": {"QueueName": "orders"},
    "ListMessageMoveTasks": {"SourceArn": ORDERS},
    "RemovePermission": {"Label": "l"},
    "SendMessage": {"MessageBody": "a"},
    "SetQueueAttributes": {"Attributes": {"DelaySeconds": "1"}},
    "StartMessageMoveTask": {"SourceArn": ORDERS},
    "TagQueue": {"Tags": {"a": "b"}},
    "UntagQueue": {"TagKeys": ["a"]},
}


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
@pytest.mark.parametrize("user", ["nobody", "bob", None])
async def test_no_operation_is_open_to_those_who_may_nothing(as_: As, operation: str, user: str | None) -> None:
    url = await as_("ann").create("orders")
    given = dict(SAMPLES.get(operation, {}))
    if "queue_url" in OPERATIONS[operation].request.__struct_fields__:
        given["QueueUrl"] = url
    if operation == "GetQueueUrl":
        given["QueueOwnerAWSAccountId"] = OWN
    if operation in {"CreateQueue", "ListQueues"} and user == "bob":
        return  # These are about the caller's own account.
    refused = await as_(user).refusal(operation, **given)
    assert refused.code == ("AccessDenied" if user else "MissingAuthenticationToken")


async def test_a_queue_that_does_not_exist_is_told_from_one_only_to_those_who_may_know(as_: As) -> None:
    refused = await as_("ann").refusal("SendMessage", QueueUrl="absent", MessageBody="a")
    assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"
    url = (await as_("ann").create("orders")).replace("orders", "absent")
    for user in ("worker", "bob"):
        assert (await as_(user).refusal("SendMessage", QueueUrl=url, MessageBody="a")).code == "AccessDenied"


async def test_a_retry_is_answered_after_its_queue_is_gone(endpoint: SqsEndpoint, as_: As, clock: ManualClock) -> None:
    url = await as_("ann").create("orders")
    request = write_request("json", "SendMessage", {"QueueUrl": url, "MessageBody": "a"}, amz_sdk_invocation_id="i-1")
    ann = KEYS["ann"]
    first = await endpoint.answer(signed(request, ann.id, ann.secret, at_ms=clock.now_ms()))
    await as_("ann").call("DeleteQueue", QueueUrl=url)
    again = await endpoint.answer(signed(request, ann.id, ann.secret, at_ms=clock.now_ms() + 1_000))
    assert (again.status, again.body) == (200, first.body)


# -- between accounts -----------------------------------------------------------------------------


async def test_a_permission_lets_another_account_in_until_it_is_removed(as_: As) -> None:
    url = await as_("ann").create("orders")
    send = {"QueueUrl": url, "MessageBody": "from bob"}
    refused = await as_("bob").refusal("SendMessage", **send)
    assert refused.message.endswith("because no resource-based policy allows the sqs:sendmessage action")
    await as_("ann").call(
        "AddPermission", QueueUrl=url, Label="share", AWSAccountIds=[OTHER], Actions=["SendMessage", "GetQueueUrl"]
    )
    await as_("bob").call("SendMessage", **send)
    found = await as_("bob").call("GetQueueUrl", QueueName="orders", QueueOwnerAWSAccountId=OWN)
    assert found["QueueUrl"] == url
    assert (await as_("bob").refusal("ReceiveMessage", QueueUrl=url)).code == "AccessDenied"
    assert (await as_("bobs").refusal("SendMessage", **send)).code == "AccessDenied"
    await as_("ann").call("RemovePermission", QueueUrl=url, Label="share")
    assert (await as_("bob").refusal("SendMessage", **send)).code == "AccessDenied"
    assert await as_("ann").bodies(url) == ["from bob"]


async def test_what_concerns_the_queue_itself_is_its_accounts_alone(as_: As) -> None:
    url = await as_("ann").create("orders")
    await as_("ann").allow(url, "*")
    for operation in ("DeleteQueue", "ListQueueTags"):
        assert (await as_("bob").refusal(operation, QueueUrl=url)).code == "AccessDenied"
    grab = {"Policy": ""}
    assert (await as_("bob").refusal("SetQueueAttributes", QueueUrl=url, Attributes=grab)).code == "AccessDenied"
    await as_("bob").call("PurgeQueue", QueueUrl=url)


async def test_a_queue_for_everybody_takes_requests_that_nobody_signed(as_: As) -> None:
    url = await as_("ann").create("orders")
    await as_("ann").allow(url, "*", "sqs:SendMessage")
    await as_(None).call("SendMessage", QueueUrl=url, MessageBody="a")
    assert (await as_(None).refusal("ReceiveMessage", QueueUrl=url)).code == "MissingAuthenticationToken"
    [message] = await as_("ann").receive(url, AttributeNames=["SenderId"])
    assert message["Attributes"]["SenderId"] == "anonymous"


async def test_a_queues_policy_may_deny_its_own_account(as_: As) -> None:
    url = await as_("ann").create("orders")
    await as_("ann").allow(url, "*", "sqs:SendMessage", Effect="Deny")
    refused = await as_("ann").refusal("SendMessage", QueueUrl=url, MessageBody="a")
    assert refused.message.endswith("with an explicit deny in a resource-based policy")


async def test_conditions_of_a_queues_policy_hold(as_: As) -> None:
    url = await as_("ann").create("orders")
    await as_("ann").allow(url, "*", Condition={"StringEquals": {"aws:PrincipalAccount": OTHER}})
    await as_("bob").call("SendMessage", QueueUrl=url, MessageBody="a")
    assert (await as_(None).refusal("SendMessage", QueueUrl=url, MessageBody="a")).code == "MissingAuthenticationToken"
    await as_("ann").allow(url, "*", Condition={"Bool": {"aws:SecureTransport": "true"}})
    assert (await as_("bob").refusal("SendMessage", QueueUrl=url, MessageBody="a")).code == "AccessDenied"


async def test_a_policy_that_would_not_be_enforced_cannot_be_set(as_: As) -> None:
    url = await as_("ann").create("orders")
    with pytest.raises(Refusal) as refused:
        await as_("ann").allow(url, "*", Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}})
    assert refused.value.code == InvalidAttributeValue.__name__
    assert "'IpAddress' is not supported" in refused.value.message


async def test_a_policy_from_before_it_was_checked_lets_nobody_in_until_it_is_replaced(as_: As, store: Store) -> None:
    url = await as_("ann").create("orders")
    await as_("ann").call("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": ""})
    [queue] = await store.list_queues(REGION, OWN, limit=1)
    fields = {name: getattr(queue.attributes, name) for name in queue.attributes.__struct_fields__}
    await store.save_queue(queue, attributes=type(queue.attributes)(**{**fields, "policy": '{"Statement":["?"]}'}))
    refused = await as_("ann").refusal("SendMessage", QueueUrl=url, MessageBody="a")
    assert "cannot be enforced" in refused.message
    await as_("ann").call("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": ""})
    await as_("ann").call("SendMessage", QueueUrl=url, MessageBody="a")


# -- moves ----------------------------------------------------------------------------------------


async def test_to_move_messages_takes_the_right_to_receive_them_here_and_send_them_there(
    broker: Broker, clock: ManualClock, limits: Limits
) -> None:
    mover = key(
        "mover",
        OWN,
        {"Effect": "Allow", "Action": ["sqs:*MessageMoveTask*", "sqs:ReceiveMessage"], "Resource": "*"},
        {"Effect": "Allow", "Action": ["sqs:DeleteMessage"], "Resource": "arn:aws:sqs:*:*:dead"},
        {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "arn:aws:sqs:*:*:there"},
    )
    guard = Access([KEYS["ann"], mover], broker.queues, clock, region=REGION, secure_transport=False)
    endpoint = SqsEndpoint(broker, limits=limits, region=REGION, access=guard)
    ann = Signing(endpoint, "json", clock, "ann")
    base = f"arn:aws:sqs:{REGION}:{OWN}:"
    await ann.create("dead")
    await ann.create("there")
    redrive = json.dumps({"deadLetterTargetArn": f"{base}dead", "maxReceiveCount": 1})
    await ann.create("origin", RedrivePolicy=redrive)

    async def start(**parameters: str) -> str:
        request = write_request("json", "StartMessageMoveTask", {"SourceArn": f"{base}dead", **parameters})
        response = await endpoint.answer(signed(request, mover.id, mover.secret, at_ms=clock.now_ms()))
        return response.body.decode() if response.status != 200 else ""

    assert f"sqs:sendmessage on resource: {base}origin" in await start()
    assert f"sqs:sendmessage on resource: {base}origin" in await start(DestinationArn=f"{base}origin")
    assert f"sqs:deletemessage on resource: {base}origin" in await start(SourceArn=f"{base}origin")
    assert await start(DestinationArn=f"{base}there") == ""


# -- what is remembered ---------------------------------------------------------------------------


async def test_what_was_allowed_before_is_judged_again_once_the_queue_has_a_policy(as_: As) -> None:
    url = await as_("ann").create("orders")
    for _ in range(2):
        await as_("ann").call("SendMessage", QueueUrl=url, MessageBody="a")
    await as_("ann").allow(url, "*", "sqs:SendMessage", Effect="Deny")
    assert (await as_("ann").refusal("SendMessage", QueueUrl=url, MessageBody="a")).code == "AccessDenied"
    await as_("ann").call("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": ""})
    await as_("ann").call("SendMessage", QueueUrl=url, MessageBody="a")
    assert (await as_("worker").refusal("SendMessage", QueueUrl=url, MessageBody="a")).code == "AccessDenied"


async def test_little_is_remembered(as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "ALLOWED_REMEMBERED_MAX", 2)
    urls = [await as_("ann").create(f"q{number}") for number in range(5)]
    for url in urls * 2:
        await as_("ann").call("SendMessage", QueueUrl=url, MessageBody="a")


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
