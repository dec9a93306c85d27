"""Calls at the same time: each is whole, and what one of them raises stays with that one."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest

from penstock.domain.errors import PenstockError, QueueDoesNotExist, StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.message import SendResult
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    LEASE_MS,
    attempt_key,
    bodies,
    counts,
    delete,
    draft,
    lease,
    lease_bodies,
    make_queue,
    on_both_kinds,
    send,
    with_limits,
)


@on_both_kinds
async def test_every_one_of_many_appends_is_stored_once(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    texts = [f"{number:03}" for number in range(200)]
    await asyncio.gather(*(send(store, queue, text, group=text) for text in texts))
    assert sorted(await lease_bodies(store, queue, 200)) == texts


@on_both_kinds
async def test_no_message_is_given_to_two_of_many_leases(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    texts = [f"{number:03}" for number in range(100)]
    await send(store, queue, *(draft(text, group=text) for text in texts))
    given = await asyncio.gather(*(lease(store, queue, 3) for _ in range(40)))
    assert sorted(bodies(list(itertools.chain(*given)))) == texts


@on_both_kinds
async def test_leases_are_served_in_the_order_in_which_they_came_whatever_they_ask_for(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, draft("1", group="a"), draft("2", group="b"))
    times_ms = [LEASE_MS, LEASE_MS + 1, LEASE_MS]
    given = await asyncio.gather(*(lease(store, queue, 1, lease_ms=lease_ms) for lease_ms in times_ms))
    assert [len(messages) for messages in given] == [1, 1, 0]


@on_both_kinds
async def test_leases_with_keys_share_nothing_and_each_finds_its_own_again(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    texts = [f"{number:03}" for number in range(100)]
    await send(store, queue, *(draft(text, group=text) for text in texts))
    keys = [attempt_key(str(number)) for number in range(40)]
    given = await asyncio.gather(*(lease(store, queue, 3, attempt=key) for key in keys))
    assert sorted(bodies(list(itertools.chain(*given)))) == texts
    assert max(map(len, given)) == 3
    # Some are retries and some are not, all at once.
    others = [attempt_key(f"other {number}") for number in range(10)]
    again = await asyncio.gather(*(lease(store, queue, 3, attempt=key) for key in [*others, *keys]))
    assert again[:10] == [[]] * 10
    assert [message for message in again[10:] if message] == [message for message in given if message]


async def test_only_one_of_many_leases_has_the_group(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    await send(store, queue, "a", "b", "c")
    given = await asyncio.gather(*(lease_bodies(store, queue, 2) for _ in range(10)))
    assert sorted(given, reverse=True) == [["a", "b"]] + [[]] * 9


async def test_appends_at_the_same_time_have_sequences_in_the_order_of_delivery(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    answers = await asyncio.gather(*(send(store, queue, str(number)) for number in range(50)))
    by_sequence = sorted((answer.sequence or 0, body) for body, [answer] in enumerate(answers))
    assert await lease_bodies(store, queue, 50) == [str(body) for _, body in by_sequence]
    assert len({sequence for sequence, _ in by_sequence}) == 50


async def test_what_one_call_raises_stays_with_that_one(store: Store) -> None:
    live, gone = await make_queue(store, "live"), await make_queue(store, "gone")
    await store.delete_queue(gone)
    queues = [live, gone] * 10
    calls = (store.append(queue, [draft(str(number))]) for number, queue in enumerate(queues))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, QueueDoesNotExist] * 10
    assert sorted(await lease_bodies(store, live, 20)) == sorted(str(number) for number in range(0, 20, 2))


@on_both_kinds
async def test_of_deletes_at_the_same_time_every_message_goes_once(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, *(draft(str(number), group=str(number)) for number in range(20)))
    leased = await lease(store, queue, 20)
    answers = await asyncio.gather(*(delete(store, queue, message) for message in leased * 2))
    assert Counter(answer for [answer] in answers) == {None: 40}
    assert await counts(store, queue) == (0, 0, 0)


@on_both_kinds
async def test_many_consumers_empty_a_queue_while_it_fills(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    texts = [f"{number:03}" for number in range(120)]
    received: list[str] = []

    async def produce(number: int) -> None:
        for text in texts[number::4]:
            await send(store, queue, text, group=text[-1])

    async def consume() -> None:
        while len(received) < len(texts):
            leased = await lease(store, queue, 5)
            received.extend(bodies(leased))
            assert await delete(store, queue, *leased) == [None] * len(leased)

    await asyncio.gather(*(produce(number) for number in range(4)), *(consume() for _ in range(4)))
    assert sorted(received) == texts
    assert await counts(store, queue) == (0, 0, 0)


@on_both_kinds
@pytest.mark.parametrize("place", ["append.begun", "append.committed"])
async def test_a_cancelled_append_can_be_tried_again_and_is_stored_once(
    store: Store, failpoints: Failpoints, name: str, place: str
) -> None:
    queue = await make_queue(store, name)
    key = attempt_key("send")
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        reached.set()
        await go_on.wait()

    failpoints.arm(place, pause)
    call = asyncio.create_task(store.append(queue, [draft("a", group="g")], attempt=key))
    async with asyncio.timeout(30):
        await reached.wait()
    call.cancel()
    await asyncio.wait([call], timeout=1)
    go_on.set()
    await asyncio.gather(call, return_exceptions=True)
    await store.append(queue, [draft("b", group="g")], attempt=key)
    assert await counts(store, queue) == (1, 0, 0)


async def test_cancelled_calls_do_not_disturb_their_neighbours(store: Store) -> None:
    queue = await make_queue(store)
    calls: list[asyncio.Task[list[SendResult]]] = [
        asyncio.create_task(store.append(queue, [draft(str(number))])) for number in range(40)
    ]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert not any(isinstance(answer, BaseException) for answer in answers[1::2])
    stored = await lease_bodies(store, queue, 40)
    assert {str(number) for number in range(1, 40, 2)} <= set(stored)
    assert len(stored) == len(set(stored))


@with_limits(pending_operations_max=8)
async def test_what_would_wait_beyond_the_limit_is_turned_away(store: Store) -> None:
    queue = await make_queue(store)
    calls = (store.append(queue, [draft(str(number))]) for number in range(200))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert {type(error) for error in refused} == {StoreUnavailable}
    assert await counts(store, queue) == (200 - len(refused), 0, 0)
    await send(store, queue, "later")


@pytest.mark.parametrize(
    "error", [StoreUnavailable("pretended"), RuntimeError("pretended")], ids=lambda error: type(error).__name__
)
async def test_an_error_before_the_transaction_leaves_no_trace(
    store: Store, failpoints: Failpoints, error: PenstockError
) -> None:
    queue = await make_queue(store)

    def fail() -> None:
        raise error

    failpoints.arm("append.begun", fail)
    with pytest.raises(type(error)):
        await store.append(queue, [draft("a")], attempt=attempt_key("send"))
    assert await store.outcome(attempt_key("send")) is None
    assert await counts(store, queue) == (0, 0, 0)


@with_limits(sweep_rows_max=10)
async def test_leases_at_once_that_find_nothing_say_that_more_came_due(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await send(store, queue, *(str(number) for number in range(40)), delay_ms=1_000)
    await clock.advance(seconds=1)
    leases = await asyncio.gather(*(store.lease(queue, count=10, lease_ms=LEASE_MS) for _ in range(4)))
    assert any(leased.messages for leased in leases)
    # Nobody who got nothing may be told to wait for the end of another's lease.
    if sum(len(leased.messages) for leased in leases) < 40:
        assert {leased.next_in_ms for leased in leases if not leased.messages} <= {0}
