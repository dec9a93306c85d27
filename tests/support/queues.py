"""Queues and messages for tests, made and used in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from penstock.domain.errors import PenstockError
from penstock.domain.ids import OrderedIds
from penstock.domain.limits import Limits
from penstock.domain.message import Draft, Message, Receipt, Sent, VisibilityChange
from penstock.domain.queue import Counts, Queue, QueueAttributes, QueueName, RedrivePolicy
from penstock.store.port import Store

REGION = "eu-central-1"
ACCOUNT = "000000000000"
LEASE_MS = 30_000
GROUP = "g"
_IDS = OrderedIds()

on_both_kinds = pytest.mark.parametrize("name", ["orders", "orders.fifo"], ids=["standard", "fifo"])
"""Run a test that asks for `name` on a standard and on a FIFO queue."""


def with_limits(**limits: int) -> pytest.MarkDecorator:
    """Run a test on a store with these limits."""
    told = ",".join(f"{name}={value}" for name, value in limits.items())
    return pytest.mark.parametrize("limits", [Limits(**limits)], ids=[told])


def queue_name(text: str, *, region: str = REGION, account: str = ACCOUNT) -> QueueName:
    return QueueName(region, account, text)


async def make_queue(
    store: Store, text: str = "orders", *, tags: Mapping[str, str] | None = None, **attributes: Any
) -> Queue:
    queue, created = await store.create_queue(queue_name(text), QueueAttributes(**attributes), tags or {})
    assert created
    return queue


async def change_queue(store: Store, queue: Queue, **attributes: Any) -> Queue:
    """Set some attributes and return the queue as it is then."""
    changed = await store.save_queue(queue, attributes=msgspec.structs.replace(queue.attributes, **attributes))
    assert changed is not None
    return changed


def dead_letters_to(text: str, *, after: int) -> RedrivePolicy:
    return RedrivePolicy(queue_name(text), after)


def draft(body: str = "hello", **fields: Any) -> Draft:
    return Draft(message_id=_IDS.new_id(), body=body, **fields)


async def send(store: Store, queue: Queue, *entries: str | Draft, **fields: Any) -> list[Sent]:
    """Append bodies, each a draft with these fields, or drafts as they are; on FIFO in `GROUP` unless told."""
    if queue.fifo:
        fields.setdefault("group", GROUP)
    drafts = [entry if isinstance(entry, Draft) else draft(entry, **fields) for entry in entries]
    answers = await store.append(queue, drafts)
    assert all(isinstance(answer, Sent) for answer in answers)
    return [answer for answer in answers if isinstance(answer, Sent)]


async def lease(
    store: Store,
    queue: Queue,
    count: int = 10,
    *,
    lease_ms: int = LEASE_MS,
    attempt: bytes | None = None,
    retry: int = 0,
) -> list[Message]:
    leased = await store.lease(queue, count=count, lease_ms=lease_ms, attempt=attempt, retry=retry)
    return leased.messages


async def lease_one(store: Store, queue: Queue, *, lease_ms: int = LEASE_MS) -> Message:
    """Lease the one message that comes when one is asked for."""
    [message] = await lease(store, queue, 1, lease_ms=lease_ms)
    return message


def bodies(messages: Sequence[Message]) -> list[str]:
    return [message.body for message in messages]


async def lease_bodies(store: Store, queue: Queue, count: int = 10, *, lease_ms: int = LEASE_MS) -> list[str]:
    return bodies(await lease(store, queue, count, lease_ms=lease_ms))


def receipt_of(queue: Queue, message: Message) -> Receipt:
    return Receipt(queue.id, message.position, message.receipt)


async def delete(store: Store, queue: Queue, *messages: Message) -> list[type[PenstockError] | None]:
    """Delete by the receipts of these deliveries, and say what kind of answer each gave."""
    return kinds(await store.delete(queue, [receipt_of(queue, message) for message in messages]))


async def hide(store: Store, queue: Queue, *messages: Message, lease_ms: int) -> list[type[PenstockError] | None]:
    """Change the visibility of these deliveries, and say what kind of answer each gave."""
    changes = [VisibilityChange(receipt_of(queue, message), lease_ms) for message in messages]
    return kinds(await store.change_visibility(queue, changes))


async def release(store: Store, queue: Queue, *messages: Message, holder: int = 0) -> None:
    await store.release(queue, [receipt_of(queue, message) for message in messages], holder=holder)


def kinds(answers: Sequence[PenstockError | None]) -> list[type[PenstockError] | None]:
    return [None if answer is None else type(answer) for answer in answers]


async def counts(store: Store, queue: Queue) -> tuple[int, int, int]:
    """Tell how many messages are visible, in flight and delayed."""
    counted: Counts = await store.count_messages(queue)
    return counted.visible, counted.in_flight, counted.delayed


def attempt_key(text: str) -> bytes:
    """Make an attempt key that a reader can tell from others."""
    return text.encode().ljust(16, b".")
