"""Appending messages: order, what comes back out, and what is stored when."""

from __future__ import annotations

import pytest

from penstock.domain.message import Attribute, Refused, Sent
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    GROUP,
    counts,
    draft,
    lease,
    lease_bodies,
    lease_one,
    make_queue,
    on_both_kinds,
    queue_name,
    send,
)

REFUSED = Refused("MessageTooLong", "One or more parameters are invalid.")


@on_both_kinds
async def test_messages_come_out_in_the_order_of_their_batch(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b", "c", group=GROUP)
    assert await lease_bodies(store, queue) == ["a", "b", "c"]


async def test_a_standard_answer_names_the_message_and_has_no_sequence(store: Store) -> None:
    queue = await make_queue(store)
    first, second = draft("a"), draft("b")
    assert await store.append(queue, [first, second]) == [Sent(first.message_id), Sent(second.message_id)]


async def test_a_fifo_answer_has_the_sequence_that_the_message_is_delivered_with(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    answers = await send(store, queue, "a", "b")
    delivered = await lease(store, queue)
    assert answers == [Sent(message.message_id, message.sequence) for message in delivered]
    assert all(answer.sequence is not None for answer in answers)


async def test_a_message_is_delivered_as_it_was_drafted(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    sent = draft(
        "body",
        attributes={
            "text": Attribute("String", "grün"),
            "number": Attribute("Number.int", "7"),
            "bytes": Attribute("Binary.png", b"\x00\xff"),
        },
        trace_header="Root=1-5759e988-bd862e3fe1be46a994272793",
        sender="AIDAEXAMPLE",
        group="tenant",
    )
    await store.append(queue, [sent])
    got = await lease_one(store, queue)
    assert (got.message_id, got.body, got.attributes) == (sent.message_id, sent.body, sent.attributes)
    assert (got.trace_header, got.sender, got.group) == (sent.trace_header, sent.sender, sent.group)
    assert (got.sent_at_ms, got.sequence, got.dead_letter_source) == (clock.now_ms(), None, None)


async def test_a_fifo_message_is_delivered_with_its_group_and_deduplication_id(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", group="customer-1", deduplication_id="order-1")
    got = await lease_one(store, queue)
    assert (got.group, got.deduplication_id) == ("customer-1", "order-1")


@pytest.mark.parametrize(
    "body",
    ["\t\n\r ", "\ud7ff\ue000\ufffd", "\U0001f600\U0010ffff", "'; --", "x" * 1_048_576],
    ids=["whitespace", "edges-of-the-basic-plane", "beyond-it", "quotes", "largest"],
)
async def test_any_allowed_body_comes_back_unchanged(store: Store, body: str) -> None:
    queue = await make_queue(store)
    await send(store, queue, body)
    assert (await lease_one(store, queue)).body == body


@on_both_kinds
async def test_what_is_refused_stays_so_and_the_rest_of_the_batch_is_stored(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    good, better = draft("good", group=GROUP), draft("better", group=GROUP)
    answers = await store.append(queue, [good, REFUSED, better])
    assert answers[1] == REFUSED
    assert [answer.message_id for answer in answers if isinstance(answer, Sent)] == [
        good.message_id,
        better.message_id,
    ]
    assert await lease_bodies(store, queue) == ["good", "better"]


async def test_a_batch_of_refusals_stores_nothing(store: Store) -> None:
    queue = await make_queue(store)
    assert await store.append(queue, [REFUSED, REFUSED]) == [REFUSED, REFUSED]
    assert await counts(store, queue) == (0, 0, 0)


@on_both_kinds
async def test_a_delayed_message_is_visible_once_its_delay_is_over(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "later", delay_ms=5_000)
    await clock.advance(ms=4_999)
    assert await lease_bodies(store, queue) == []
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == ["later"]


async def test_the_delay_is_the_drafts_and_not_the_queues(store: Store) -> None:
    """Whether the queue's delay applies is decided before, by whoever makes the draft."""
    queue = await make_queue(store, delay_s=60)
    await send(store, queue, "now", delay_ms=0)
    assert await lease_bodies(store, queue) == ["now"]


async def test_queues_keep_their_messages_apart(store: Store) -> None:
    orders, invoices = await make_queue(store, "orders"), await make_queue(store, "invoices")
    await send(store, orders, "an order")
    await send(store, invoices, "an invoice")
    assert await lease_bodies(store, orders) == ["an order"]
    assert await lease_bodies(store, invoices) == ["an invoice"]


async def test_an_append_to_the_queue_as_found_is_to_the_queue_as_made(store: Store) -> None:
    made = await make_queue(store)
    await send(store, await store.find_queue(queue_name("orders")), "a")
    assert await lease_bodies(store, made) == ["a"]
