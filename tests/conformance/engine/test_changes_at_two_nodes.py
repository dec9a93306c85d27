"""Changes of one queue at two nodes: what comes between another's reading and its writing is not lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from penstock.domain.errors import InvalidParameter, StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.limits import Limits
from penstock.domain.queue import Queue, QueueName
from penstock.engine import queues as changing
from penstock.engine.engine import Engine
from penstock.engine.queues import Queues
from penstock.testing import CountedIds, ManualClock
from penstock.wire.sqs.permissions import add_permission, remove_permission
from tests.support.queues import queue_name
from tests.support.stores import Home, on_postgres

pytestmark = on_postgres

ORDERS = queue_name("orders")
PARTNER = "111111111111"

Change = Callable[[Queues, QueueName], Awaitable[Queue]]


def permit(label: str) -> Change:
    return lambda queues, name: queues.edit_policy(
        name,
        lambda policy: add_permission(policy, name, label=label, accounts=[PARTNER], actions=["SendMessage"]),
    )


def forbid(label: str) -> Change:
    return lambda queues, name: queues.edit_policy(name, lambda policy: remove_permission(policy, name, label=label))


def assign(**attributes: str) -> Change:
    return lambda queues, name: queues.set_attributes(name, attributes)


def tag(key: str) -> Change:
    return lambda queues, name: queues.tag(name, {key: "v"})


def untag(key: str) -> Change:
    return lambda queues, name: queues.untag(name, [key])


def settings(queue: Queue) -> dict[str, Any]:
    """What changes come to: all but the queue's own name, which its policy repeats."""
    policy = queue.attributes.policy.replace(queue.name.arn, "ARN")
    return {"tags": queue.tags, **msgspec.structs.asdict(queue.attributes), "policy": policy}


def permitted(queue: Queue) -> set[str]:
    return {statement["Sid"] for statement in msgspec.json.decode(queue.attributes.policy)["Statement"]}


@pytest.fixture
async def other(home: Home, engine: Engine, clock: ManualClock, ids: CountedIds, limits: Limits) -> Queues:
    """The queues at another node, which passes the failpoints of this one unharmed."""
    store = await home.open(failpoints=Failpoints())
    return Engine(store, clock=clock, ids=ids, limits=limits).queues


async def make(queues: Queues, name: QueueName) -> None:
    await queues.create(name, tags={"old": "v"})
    await permit("old")(queues, name)


@pytest.mark.parametrize(
    ("late", "early"),
    [
        (permit("a"), permit("b")),
        (permit("a"), forbid("old")),
        (forbid("old"), permit("a")),
        (permit("a"), assign(DelaySeconds="1")),
        (assign(DelaySeconds="1"), permit("a")),
        (assign(DelaySeconds="1"), assign(VisibilityTimeout="2")),
        (assign(DelaySeconds="1"), tag("a")),
        (tag("a"), tag("b")),
        (tag("a"), untag("old")),
        (untag("old"), permit("a")),
    ],
    ids=[
        "permit-permit",
        "permit-forbid",
        "forbid-permit",
        "permit-assign",
        "assign-permit",
        "assign-assign",
        "assign-tag",
        "tag-tag",
        "tag-untag",
        "untag-permit",
    ],
)
async def test_a_change_that_comes_in_between_is_kept(
    queues: Queues, other: Queues, failpoints: Failpoints, late: Change, early: Change
) -> None:
    await make(queues, ORDERS)

    async def come_in_between() -> None:
        await early(other, ORDERS)

    # Here the late one has read the queue and is about to write it.
    failpoints.arm("save_queue.begun", come_in_between)
    changed = await late(queues, ORDERS)
    assert not failpoints.armed("save_queue.begun")

    in_order = queue_name("in-order")
    await make(queues, in_order)
    await early(queues, in_order)
    await late(queues, in_order)
    assert settings(changed) == settings(await queues.find(in_order))


async def test_a_label_that_another_node_took_in_between_is_taken(
    queues: Queues, other: Queues, failpoints: Failpoints
) -> None:
    await make(queues, ORDERS)

    async def take() -> None:
        await permit("a")(other, ORDERS)

    failpoints.arm("save_queue.begun", take)
    with pytest.raises(InvalidParameter, match="Already exists"):
        await permit("a")(queues, ORDERS)
    assert permitted(await other.find(ORDERS)) == {"old", "a"}


async def test_a_change_is_given_up_when_others_are_always_quicker(
    queues: Queues, other: Queues, failpoints: Failpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing, "SAVES_MAX", 3)
    await make(queues, ORDERS)

    async def be_quicker() -> None:
        await tag("quick")(other, ORDERS)

    for _ in range(3):
        failpoints.arm("save_queue.begun", be_quicker)
    with pytest.raises(StoreUnavailable):
        await tag("slow")(queues, ORDERS)
    assert set((await tag("slow")(queues, ORDERS)).tags) == {"old", "quick", "slow"}
