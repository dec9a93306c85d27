"""An endpoint that lets nobody in without a key, and clients with the keys of several users."""

from __future__ import annotations

import json
from collections.abc import Callable
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
def endpoint(engine: Engine, clock: ManualClock, limits: Limits) -> SqsEndpoint:
    guard = Access(KEYS.values(), engine.queues, clock, region=REGION, secure_transport=False)
    return SqsEndpoint(engine, region=REGION, access=guard)


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
