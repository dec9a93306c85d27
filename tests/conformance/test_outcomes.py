"""Attempt keys: an append that is tried again, on purpose or not, is the first one again."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.limits import Limits
from penstock.domain.message import Refused, Sent
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    GROUP,
    attempt_key,
    counts,
    draft,
    lease_bodies,
    make_queue,
    on_both_kinds,
    send,
    with_limits,
)
from tests.support.stores import Reopen

KEY = attempt_key("first")
OTHER = attempt_key("other")
REFUSED = Refused("MessageTooLong", "too long")


@on_both_kinds
async def test_a_repeated_append_answers_as_the_first_and_stores_nothing(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    first = await store.append(queue, [draft("a", group=GROUP), REFUSED], attempt=KEY)
    again = await store.append(queue, [draft("a", group=GROUP), draft("b", group=GROUP)], attempt=KEY)
    assert again == first
    assert await lease_bodies(store, queue) == ["a"]


async def test_appends_with_other_keys_are_appends_of_their_own(store: Store) -> None:
    queue = await make_queue(store)
    await store.append(queue, [draft("a")], attempt=KEY)
    await store.append(queue, [draft("b")], attempt=OTHER)
    await store.append(queue, [draft("c")])
    await store.append(queue, [draft("c")])
    assert await lease_bodies(store, queue) == ["a", "b", "c", "c"]


@pytest.mark.parametrize("length", [16, 32])
async def test_keys_are_16_to_32_bytes_of_any_value(store: Store, length: int) -> None:
    key = bytes(range(256 - length, 256))
    queue = await make_queue(store)
    answer = await store.append(queue, [draft("a")], attempt=key)
    assert await store.outcome(key) == answer
    assert await store.outcome(bytes(length)) is None


@on_both_kinds
async def test_an_outcome_is_kept_to_the_end_of_its_window(
    store: Store, clock: ManualClock, limits: Limits, name: str
) -> None:
    queue = await make_queue(store, name)
    first = await store.append(queue, [draft("a", group=GROUP)], attempt=KEY)
    await clock.advance(ms=limits.outcome_window_ms - 1)
    assert await store.outcome(KEY) == first
    assert await store.append(queue, [draft("b", group=GROUP)], attempt=KEY) == first
    await clock.advance(ms=1)
    assert await store.outcome(KEY) is None
    assert await store.append(queue, [draft("c", group=GROUP)], attempt=KEY) != first
    assert await lease_bodies(store, queue) == ["a", "c"]


@with_limits(outcome_window_ms=1_000)
async def test_a_key_used_again_after_its_window_has_a_window_of_its_own(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await store.append(queue, [draft("a")], attempt=KEY)
    await clock.advance(ms=1_000)
    second = await store.append(queue, [draft("b")], attempt=KEY)
    await clock.advance(ms=999)
    await store.sweep()
    assert await store.append(queue, [draft("c")], attempt=KEY) == second
    assert await lease_bodies(store, queue) == ["a", "b"]


async def test_an_outcome_tells_all_of_the_answer(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    answer = await store.append(queue, [draft("a", group=GROUP), REFUSED], attempt=KEY)
    assert isinstance(answer[0], Sent)
    assert answer[0].sequence is not None
    assert await store.outcome(KEY) == answer


async def test_an_unknown_key_has_no_outcome(store: Store) -> None:
    assert await store.outcome(KEY) is None


async def test_an_append_of_nothing_but_refusals_keeps_nothing(store: Store) -> None:
    queue = await make_queue(store)
    await store.append(queue, [REFUSED], attempt=KEY)
    assert await store.outcome(KEY) is None
    [answer] = await store.append(queue, [draft("a")], attempt=KEY)
    assert isinstance(answer, Sent)
    assert await counts(store, queue) == (1, 0, 0)


async def test_an_outcome_outlives_its_queue(store: Store) -> None:
    queue = await make_queue(store)
    answer = await store.append(queue, [draft("a")], attempt=KEY)
    await store.delete_queue(queue)
    await store.sweep()
    assert await store.outcome(KEY) == answer


@on_both_kinds
async def test_appends_with_one_key_at_the_same_time_are_one(store: Store, name: str) -> None:
    queue = await make_queue(store, name)
    drafts = [draft(str(number), group=GROUP) for number in range(20)]
    answers = await asyncio.gather(*(store.append(queue, [one], attempt=KEY) for one in drafts))
    assert answers == [answers[0]] * len(drafts)
    assert await counts(store, queue) == (1, 0, 0)


async def test_a_failed_append_keeps_no_outcome(store: Store) -> None:
    queue, gone = await make_queue(store, "orders"), await make_queue(store, "gone")
    await store.delete_queue(gone)
    await asyncio.gather(store.append(gone, [draft("a")], attempt=KEY), return_exceptions=True)
    assert await store.outcome(KEY) is None
    await store.append(queue, [draft("a")], attempt=KEY)
    assert await lease_bodies(store, queue) == ["a"]


async def test_an_outcome_survives_a_restart(store: Store, reopen: Reopen) -> None:
    queue = await make_queue(store)
    answer = await store.append(queue, [draft("a"), REFUSED], attempt=KEY)
    store = await reopen()
    assert await store.outcome(KEY) == answer
    assert await store.append(queue, [draft("b"), REFUSED], attempt=KEY) == answer
    assert await lease_bodies(store, queue) == ["a"]


async def test_a_duplicate_has_an_outcome_too(store: Store) -> None:
    queue = await make_queue(store, "orders.fifo")
    [first] = await send(store, queue, "a", deduplication_id="1")
    again = draft("a", group=GROUP, deduplication_id="1")
    assert await store.append(queue, [again], attempt=KEY) == [first]
    assert await store.outcome(KEY) == [first]
