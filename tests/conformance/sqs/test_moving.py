"""Message move tasks with access control, on each store: nothing goes where its mover may not send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.domain.limits import Limits
from penstock.domain.policy import parse_user_policy
from penstock.engine.engine import Engine
from penstock.server.access import Access, AccessKey
from penstock.server.sqs import SqsEndpoint
from penstock.testing import ManualClock
from penstock.wire.http import Response
from tests.support.signing import REGION, signed
from tests.support.sqs_client import Client, Refusal
from tests.support.sqs_model import write_request

ACCOUNT = "111122223333"
BASE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:"
ON_THE_SOURCE = ["StartMessageMoveTask", "ReceiveMessage", "DeleteMessage", "GetQueueAttributes"]


def key(user: str, *rules: dict[str, Any]) -> AccessKey:
    return AccessKey(
        id=f"KEY{user.upper()}",
        secret=f"the secret of {user}",
        account=ACCOUNT,
        user=user,
        policy=parse_user_policy({"Statement": list(rules)}),
    )


def allow(actions: list[str], *queues: str) -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Action": [f"sqs:{action}" for action in actions],
        "Resource": [BASE + queue for queue in queues],
    }


ADMIN = key("admin", {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"})
MOVER = key("mover", allow([*ON_THE_SOURCE, "ListMessageMoveTasks"], "dead*"), allow(["SendMessage"], "here*"))


class Signing(Client):
    """A client that signs with a key."""

    def __init__(self, endpoint: SqsEndpoint, clock: ManualClock, signer: AccessKey) -> None:
        super().__init__(endpoint, "json")
        self._clock = clock
        self._signer = signer

    async def respond(self, operation: str, /, **parameters: Any) -> Response:
        request = write_request(self.protocol, operation, parameters)
        now_ms = self._clock.now_ms()
        return await self._endpoint.answer(signed(request, self._signer.id, self._signer.secret, at_ms=now_ms))


@pytest.fixture
def endpoint(engine: Engine, clock: ManualClock, limits: Limits) -> SqsEndpoint:
    guard = Access([ADMIN, MOVER], engine.queues, clock, region=REGION, secure_transport=False)
    return SqsEndpoint(engine, region=REGION, access=guard)


@pytest.fixture
def admin(endpoint: SqsEndpoint, clock: ManualClock) -> Signing:
    return Signing(endpoint, clock, ADMIN)


@pytest.fixture
def mover(endpoint: SqsEndpoint, clock: ManualClock) -> Signing:
    return Signing(endpoint, clock, MOVER)


def fifo(name: str) -> bool:
    return name.endswith(".fifo")


async def die(admin: Signing, queue: str, dead: str, body: str) -> None:
    """Send a message and have it die."""
    redrive = json.dumps({"deadLetterTargetArn": BASE + dead, "maxReceiveCount": 1})
    await admin.call("SetQueueAttributes", QueueUrl=queue, Attributes={"RedrivePolicy": redrive})
    in_group = {"MessageGroupId": "g", "MessageDeduplicationId": body} if fifo(queue) else {}
    await admin.call("SendMessage", QueueUrl=queue, MessageBody=body, **in_group)
    assert await admin.bodies(queue, VisibilityTimeout=0) == [body]
    assert await admin.bodies(queue, VisibilityTimeout=0) == []


async def outcome(client: Signing, clock: ManualClock, dead: str) -> tuple[str, str | None]:
    """Wait for the newest task to end; return its status and why it failed."""
    for _ in range(20):
        await clock.advance(seconds=1)
        [task] = (await client.call("ListMessageMoveTasks", SourceArn=BASE + dead))["Results"]
        if task["Status"] != "RUNNING":
            return task["Status"], task.get("FailureReason")
    raise AssertionError("the task does not end")


@pytest.fixture(params=["", ".fifo"], ids=["standard", "fifo"])
async def names(request: pytest.FixtureRequest, admin: Signing) -> tuple[str, str, str]:
    """A queue that the mover may send to, one where they may not, and the dead-letter queue of both."""
    here, there, dead = (f"{name}{request.param}" for name in ("here", "there", "dead"))
    for name in (here, there, dead):
        await admin.create(name)
    return here, there, dead


async def test_messages_go_back_where_their_mover_may_send(
    admin: Signing, mover: Signing, clock: ManualClock, names: tuple[str, str, str]
) -> None:
    here, _, dead = names
    await die(admin, here, dead, "a")
    await mover.call("StartMessageMoveTask", SourceArn=BASE + dead)
    assert await outcome(mover, clock, dead) == ("COMPLETED", None)
    assert await admin.bodies(here) == ["a"]


async def test_no_message_goes_back_to_a_source_where_its_mover_may_not_send(
    admin: Signing, mover: Signing, names: tuple[str, str, str]
) -> None:
    _, there, dead = names
    await die(admin, there, dead, "a")
    for destination in ({}, {"DestinationArn": BASE + there}):
        with pytest.raises(Refusal, match=f"sqs:sendmessage on resource: {BASE}{there}") as refused:
            await mover.call("StartMessageMoveTask", SourceArn=BASE + dead, **destination)
        assert (refused.value.status, refused.value.code) == (403, "AccessDenied")
    assert await admin.bodies(dead) == ["a"]


async def test_no_message_goes_back_where_its_mover_may_not_send_though_that_is_no_source_any_more(
    admin: Signing, mover: Signing, clock: ManualClock, names: tuple[str, str, str]
) -> None:
    """The message knows where it died, whatever that queue's dead-letter queue is now."""
    here, there, dead = names
    await die(admin, there, dead, "not-there")
    await admin.call("SetQueueAttributes", QueueUrl=there, Attributes={"RedrivePolicy": ""})
    await die(admin, here, dead, "here")
    await mover.call("StartMessageMoveTask", SourceArn=BASE + dead)
    assert await outcome(mover, clock, dead) == ("FAILED", "AccessDenied")
    assert await admin.bodies(there) == []
    assert "not-there" in await admin.bodies(dead, VisibilityTimeout=0)
    # Somebody who may send there moves it.
    await admin.call("StartMessageMoveTask", SourceArn=BASE + dead)
    assert await outcome(admin, clock, dead) == ("COMPLETED", None)
    assert await admin.bodies(there) == ["not-there"]


async def test_no_message_goes_back_to_a_queue_that_was_denied_by_its_own_policy(
    admin: Signing, mover: Signing, clock: ManualClock, names: tuple[str, str, str]
) -> None:
    here, _, dead = names
    denied = here.replace("here", "here-too")
    await admin.create(denied)
    await die(admin, denied, dead, "denied")
    await admin.call("SetQueueAttributes", QueueUrl=denied, Attributes={"RedrivePolicy": ""})
    await die(admin, here, dead, "here")
    rule = {"Effect": "Deny", "Principal": {"AWS": MOVER.principal.arn}, "Action": "sqs:SendMessage", "Resource": "*"}
    policy = json.dumps({"Statement": [rule]})
    await admin.call("SetQueueAttributes", QueueUrl=denied, Attributes={"Policy": policy})
    await mover.call("StartMessageMoveTask", SourceArn=BASE + dead)
    assert await outcome(mover, clock, dead) == ("FAILED", "AccessDenied")
    assert await admin.bodies(denied) == []


async def test_a_queue_that_is_made_later_gets_nothing_from_a_running_task(
    admin: Signing, mover: Signing, clock: ManualClock, names: tuple[str, str, str]
) -> None:
    """Nobody asked whether the mover may send to it."""
    here, _, dead = names
    for body in ("a", "b"):
        await die(admin, here, dead, body)
    late = here.replace("here", "here-later")
    await mover.call("StartMessageMoveTask", SourceArn=BASE + dead, MaxNumberOfMessagesPerSecond=1)
    await admin.create(late)
    await die(admin, late, dead, "late")
    assert await outcome(mover, clock, dead) == ("FAILED", "AccessDenied")
    assert sorted(await admin.bodies(here)) == ["a", "b"]
    assert await admin.bodies(late) == []


@pytest.mark.parametrize("action", ON_THE_SOURCE)
async def test_a_move_takes_every_right_on_the_source(
    engine: Engine, clock: ManualClock, limits: Limits, admin: Signing, action: str
) -> None:
    for name in ("here", "dead"):
        await admin.create(name)
    await die(admin, "here", "dead", "a")
    lacking = key("lacking", allow([each for each in ON_THE_SOURCE if each != action], "dead"), allow(["*"], "here"))
    guard = Access([lacking], engine.queues, clock, region=REGION, secure_transport=False)
    client = Signing(SqsEndpoint(engine, region=REGION, access=guard), clock, lacking)
    with pytest.raises(Refusal, match=f"sqs:{action.lower()} on resource: {BASE}dead"):
        await client.call("StartMessageMoveTask", SourceArn=f"{BASE}dead")
