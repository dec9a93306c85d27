"""Peeks: messages are shown in whatever state they are, and nothing about them changes."""

from __future__ import annotations

import pytest

from penstock.domain.errors import QueueDoesNotExist
from penstock.domain.limits import HOUR_MS
from penstock.domain.message import Attribute, MessageState, Peeked
from penstock.domain.queue import Queue
from penstock.store.port import Peek, Store
from penstock.testing import ManualClock
from tests.support.queues import (
    bodies,
    counts,
    dead_letters_to,
    delete,
    draft,
    hide,
    lease,
    lease_bodies,
    lease_one,
    make_queue,
    on_both_kinds,
    release,
    send,
    with_limits,
)
from tests.support.stores import Reopen

VISIBLE, DELAYED, LEASED = MessageState.VISIBLE, MessageState.DELAYED, MessageState.LEASED


def states(peek: Peek) -> dict[str, MessageState]:
    """Tell the state of each message by its body."""
    return {peeked.message.body: peeked.state for peeked in peek.messages}


async def seen(store: Store, queue: Queue, state: MessageState | None = None) -> list[str]:
    """Tell the bodies of all messages in a state."""
    peek = await store.peek(queue, state=state, limit=100)
    assert peek.after is None
    return bodies([peeked.message for peeked in peek.messages])


async def walk(store: Store, queue: Queue, state: MessageState | None = None, *, limit: int) -> list[Peek]:
    """Peek until there is nothing beyond."""
    pages = [await store.peek(queue, state=state, limit=limit)]
    while (after := pages[-1].after) is not None:
        pages.append(await store.peek(queue, state=state, after=after, limit=limit))
    return pages


def shown(pages: list[Peek]) -> list[str]:
    return [peeked.message.body for page in pages for peeked in page.messages]


@on_both_kinds
async def test_an_empty_queue_shows_nothing(store: Store, name: str) -> None:
    assert await store.peek(await make_queue(store, name), limit=10) == Peek([], None)


@on_both_kinds
async def test_each_message_is_shown_in_its_state(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "leased", "returned", "visible", **({"group": "g"} if queue.fifo else {}))
    await send(store, queue, "delayed", delay_ms=60_000)
    _, second = await lease(store, queue, 2)
    await release(store, queue, second)
    peek = await store.peek(queue, limit=10)
    assert states(peek) == {"leased": LEASED, "returned": VISIBLE, "visible": VISIBLE, "delayed": DELAYED}
    until = {peeked.message.body: peeked.visible_at_ms - clock.now_ms() for peeked in peek.messages}
    assert until == {"leased": 30_000, "returned": 0, "visible": 0, "delayed": 60_000}
    assert {peeked.message.body: peeked.message.receive_count for peeked in peek.messages} == {
        "leased": 1,
        "returned": 0,
        "visible": 0,
        "delayed": 0,
    }
    assert await seen(store, queue, LEASED) == ["leased"]
    assert await seen(store, queue, DELAYED) == ["delayed"]
    assert await seen(store, queue, VISIBLE) == ["returned", "visible"]


@on_both_kinds
async def test_a_message_is_shown_whole(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    attributes = {"colour": Attribute("String", "blau"), "picture": Attribute("Binary.png", b"\x00\xff")}
    sent_at_ms = clock.now_ms()
    entry = draft(
        "hällo",
        attributes=attributes,
        trace_header="Root=1",
        sender="AIDA",
        group="g",
        deduplication_id="once" if queue.fifo else None,
    )
    await send(store, queue, entry)
    [fresh] = (await store.peek(queue, limit=1)).messages
    assert fresh.message.first_received_at_ms == 0
    await clock.advance(seconds=1)
    leased = await lease_one(store, queue)
    await clock.advance(seconds=1)
    [peeked] = (await store.peek(queue, limit=1)).messages
    assert peeked == Peeked(message=leased, state=LEASED, visible_at_ms=sent_at_ms + 31_000)
    assert (leased.attributes, leased.trace_header, leased.sender, leased.group) == (attributes, "Root=1", "AIDA", "g")


@on_both_kinds
async def test_a_peek_changes_nothing(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    await send(store, queue, "c", delay_ms=1_000)
    leased = await lease_one(store, queue, lease_ms=1_000)
    for _ in range(3):
        assert len(await seen(store, queue)) == 3
    assert await counts(store, queue) == (1, 1, 1)
    assert await hide(store, queue, leased, lease_ms=2_000) == [None]
    await clock.advance(seconds=2)
    assert await seen(store, queue, VISIBLE) == ["a", "b", "c"]
    again = await lease(store, queue)
    assert {message.body: message.receive_count for message in again} == {"a": 2, "b": 1, "c": 1}
    assert set(await delete(store, queue, *again)) == {None}
    assert await seen(store, queue) == []


@on_both_kinds
async def test_time_alone_changes_what_is_shown(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    await send(store, queue, "b", delay_ms=20_000)
    await lease_one(store, queue)
    await clock.advance(ms=19_999)
    assert states(await store.peek(queue, limit=10)) == {"a": LEASED, "b": DELAYED}
    await clock.advance(ms=1)
    assert states(await store.peek(queue, limit=10)) == {"a": LEASED, "b": VISIBLE}
    await clock.advance(ms=10_000)
    assert states(await store.peek(queue, limit=10)) == {"a": VISIBLE, "b": VISIBLE}
    assert await seen(store, queue, LEASED) == await seen(store, queue, DELAYED) == []


@on_both_kinds
async def test_expired_messages_are_not_shown_even_if_they_are_not_swept(
    store: Store, clock: ManualClock, name: str
) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, "visible", "too")
    await send(store, queue, "delayed", delay_ms=900_000)
    await lease(store, queue, 1, lease_ms=HOUR_MS)
    await clock.advance(ms=59_999)
    assert len(await seen(store, queue)) == 3
    await clock.advance(ms=1)
    await send(store, queue, "young")
    assert await seen(store, queue) == ["young"]
    assert await seen(store, queue, LEASED) == await seen(store, queue, DELAYED) == []


@on_both_kinds
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
async def test_pages_show_every_message_once_and_in_order(store: Store, name: str, limit: int) -> None:
    queue = await make_queue(store, name)
    sent = list("abcdefg")
    await send(store, queue, *sent)
    pages = await walk(store, queue, limit=limit)
    assert shown(pages) == sent
    assert all(len(page.messages) <= limit for page in pages)
    positions = [peeked.message.position for page in pages for peeked in page.messages]
    assert positions == sorted(set(positions))


async def test_pages_show_messages_with_and_without_group_and_delay_once(store: Store) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a", "d")
    await send(store, queue, "b", group="tenant")
    await send(store, queue, "c", delay_ms=1_000)
    assert sorted(shown(await walk(store, queue, limit=1))) == list("abcd")


@on_both_kinds
async def test_pages_go_on_where_they_were_after_a_restart(store: Store, reopen: Reopen, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, *"abcd")
    first = await store.peek(queue, limit=2)
    assert first.after is not None
    store = await reopen()
    rest = await store.peek(queue, after=first.after, limit=10)
    assert shown([first, rest]) == list("abcd")


@on_both_kinds
async def test_pages_go_on_with_what_came_since_and_without_what_went(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, *"abcd")
    leased = await lease(store, queue, 3)
    first = await store.peek(queue, limit=2)
    assert first.after is not None
    await delete(store, queue, *leased)
    await send(store, queue, "e")
    rest = await store.peek(queue, after=first.after, limit=10)
    assert shown([rest]) == ["d", "e"]


@on_both_kinds
async def test_a_purge_in_between_shows_what_came_after_it(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, *"abc")
    first = await store.peek(queue, limit=2)
    assert first.after is not None
    await store.purge_queue(queue)
    assert await store.peek(queue, after=first.after, limit=10) == Peek([], None)
    await send(store, queue, "d")
    assert shown([await store.peek(queue, after=first.after, limit=10)]) == ["d"]


@on_both_kinds
@with_limits(peek_rows_max=3)
async def test_one_peek_looks_at_so_many_messages_only_and_tells_where_to_go_on(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, *"abcdefgh")
    leased = await lease(store, queue, 7)
    await delete(store, queue, leased[5])
    first = await store.peek(queue, state=VISIBLE, limit=10)
    assert (first.messages, first.after is None) == ([], False)
    assert shown(await walk(store, queue, VISIBLE, limit=10)) == ["h"]
    assert shown(await walk(store, queue, LEASED, limit=10)) == list("abcdeg")
    assert shown(await walk(store, queue, LEASED, limit=2)) == list("abcdeg")


@on_both_kinds
@with_limits(peek_bytes_max=10)
async def test_one_peek_shows_so_many_bytes_only_and_one_message_at_least(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    sent = ["x" * 50, "small", "ééééé", "tiny", "y" * 50]
    await send(store, queue, *sent)
    pages = await walk(store, queue, limit=4)
    assert [len(page.messages) for page in pages if page.messages] == [1, 2, 2]
    assert shown(pages) == sent


@on_both_kinds
async def test_only_messages_of_the_queue_are_shown(store: Store, name: str) -> None:
    before, queue, after = [await make_queue(store, f"{text}-{name}") for text in "abc"]
    for each in (before, queue, after):
        await send(store, each, f"of {each.name.name}", delay_ms=0)
        await send(store, each, f"later of {each.name.name}", delay_ms=1_000)
    assert await seen(store, queue) == [f"of b-{name}", f"later of b-{name}"]
    assert await store.peek(queue, after=2**63 - 1, limit=10) == Peek([], None)
    assert await store.peek(queue, state=DELAYED, after=2**62, limit=10) == Peek([], None)


@on_both_kinds
async def test_a_dead_letter_is_shown_where_it_went(store: Store, clock: ManualClock, name: str) -> None:
    dead = await make_queue(store, f"dead-{name}")
    queue = await make_queue(store, name, redrive=dead_letters_to(dead.name.name, after=1))
    await send(store, queue, "a")
    await lease(store, queue)
    await clock.advance(seconds=30)
    assert await lease_bodies(store, queue) == []
    assert await seen(store, queue) == []
    [peeked] = (await store.peek(dead, limit=10)).messages
    assert (peeked.state, peeked.visible_at_ms, peeked.message.receive_count) == (VISIBLE, clock.now_ms(), 1)
    assert peeked.message.dead_letter_source == queue.name.arn


@on_both_kinds
async def test_a_message_that_waits_to_die_is_still_shown_where_it_is(
    store: Store, clock: ManualClock, name: str
) -> None:
    dead = await make_queue(store, f"dead-{name}")
    queue = await make_queue(store, name, redrive=dead_letters_to(dead.name.name, after=1))
    await send(store, queue, "a")
    await lease(store, queue)
    await clock.advance(seconds=30)
    assert await seen(store, queue, VISIBLE) == ["a"]
    assert await seen(store, dead) == []


@on_both_kinds
async def test_a_queue_that_is_gone_cannot_be_looked_into(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    await store.delete_queue(queue)
    with pytest.raises(QueueDoesNotExist):
        await store.peek(queue, limit=10)
