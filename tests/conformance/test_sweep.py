"""Sweeping: bounded passes that remove what no verb shows any more, and nothing else."""

from __future__ import annotations

import pytest

from penstock.domain.errors import PurgeInProgress, QueueDeletedRecently
from penstock.domain.limits import HOUR_MS, Limits
from penstock.domain.queue import QueueAttributes
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    GROUP,
    attempt_key,
    bodies,
    counts,
    delete,
    draft,
    hide,
    lease,
    lease_bodies,
    make_queue,
    on_both_kinds,
    queue_name,
    send,
    with_limits,
)

PASSES_MAX = 200


async def sweep_all(store: Store) -> int:
    """Sweep until there is no more to do, and say how many passes that took."""
    for passes in range(1, PASSES_MAX + 1):
        if not await store.sweep():
            return passes
    raise AssertionError(f"still sweeping after {PASSES_MAX} passes")


async def test_a_new_store_has_nothing_to_sweep(store: Store) -> None:
    assert not await store.sweep()


@on_both_kinds
async def test_live_messages_are_left_as_they_are(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "leased", group="1")
    [leased] = await lease(store, queue, lease_ms=HOUR_MS)
    await send(store, queue, "delayed", group="2", delay_ms=600_000)
    await send(store, queue, "visible", group="3")
    await clock.advance(ms=599_999)
    await sweep_all(store)
    assert await counts(store, queue) == (1, 1, 1)
    assert await lease_bodies(store, queue) == ["visible"]
    await clock.advance(ms=1)
    assert await lease_bodies(store, queue) == ["delayed"]
    assert await hide(store, queue, leased, lease_ms=0) == [None]
    assert await lease_bodies(store, queue) == ["leased"]


async def test_windows_that_are_open_are_left_open(store: Store, clock: ManualClock, limits: Limits) -> None:
    queue = await make_queue(store, "orders.fifo")
    send_key, lease_key = attempt_key("send"), attempt_key("lease")
    answer = await store.append(queue, [draft("a", group=GROUP, deduplication_id="1")], attempt=send_key)
    leased = await lease(store, queue, lease_ms=HOUR_MS, attempt=lease_key)
    await clock.advance(ms=min(limits.outcome_window_ms, limits.deduplication_window_ms) - 1)
    await sweep_all(store)
    assert await store.outcome(send_key) == answer
    assert await send(store, queue, "a", deduplication_id="1") == answer
    assert await lease(store, queue, lease_ms=HOUR_MS, attempt=lease_key) == leased


async def test_names_and_purges_are_refused_as_long_as_before(store: Store, clock: ManualClock, limits: Limits) -> None:
    queue = await make_queue(store, "orders")
    await store.purge_queue(queue)
    await store.delete_queue(await make_queue(store, "gone"))
    await clock.advance(ms=min(limits.name_reuse_ms, limits.purge_interval_ms) - 1)
    await sweep_all(store)
    with pytest.raises(PurgeInProgress):
        await store.purge_queue(queue)
    with pytest.raises(QueueDeletedRecently):
        await store.create_queue(queue_name("gone"), QueueAttributes(), {})


@on_both_kinds
@with_limits(sweep_rows_max=10)
async def test_expired_messages_are_swept_in_bounded_passes(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, *(str(number) for number in range(100)), group=GROUP)
    await clock.advance(seconds=60)
    await send(store, queue, "live", group=GROUP)
    assert await sweep_all(store) >= 5
    assert await counts(store, queue) == (1, 0, 0)
    assert await lease_bodies(store, queue) == ["live"]


@on_both_kinds
@with_limits(sweep_rows_max=10)
async def test_expired_messages_are_swept_whatever_hides_them(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name, retention_s=60)
    await send(store, queue, *(str(number) for number in range(30)), group="1")
    await lease(store, queue, 30, lease_ms=HOUR_MS)
    await send(store, queue, *(str(number) for number in range(30)), group="2", delay_ms=900_000)
    await clock.advance(seconds=60)
    await sweep_all(store)
    assert await counts(store, queue) == (0, 0, 0)


@on_both_kinds
@with_limits(sweep_rows_max=10)
async def test_what_a_purge_leaves_behind_is_swept_in_bounded_passes(store: Store, name: str) -> None:
    """That there is something left to sweep is how a purge costs the same however many messages there are."""
    queue = await make_queue(store, name)
    await send(store, queue, *(str(number) for number in range(100)), group=GROUP)
    await store.purge_queue(queue)
    await send(store, queue, "live", group=GROUP)
    assert await sweep_all(store) >= 5
    assert await lease_bodies(store, queue) == ["live"]


@on_both_kinds
@with_limits(sweep_rows_max=10)
async def test_what_a_deleted_queue_leaves_behind_is_swept_in_bounded_passes(store: Store, name: str) -> None:
    queue, other = await make_queue(store, name), await make_queue(store, "other")
    await send(store, queue, *(str(number) for number in range(100)), group=GROUP)
    await send(store, other, "live")
    await store.delete_queue(queue)
    assert await sweep_all(store) >= 5
    assert await lease_bodies(store, other) == ["live"]


@with_limits(sweep_rows_max=10)
async def test_outcomes_past_their_window_are_swept_in_bounded_passes(
    store: Store, clock: ManualClock, limits: Limits
) -> None:
    queue = await make_queue(store)
    keys = [attempt_key(str(number)) for number in range(100)]
    for key in keys:
        await store.append(queue, [draft("a")], attempt=key)
    await clock.advance(ms=limits.outcome_window_ms)
    late = attempt_key("late")
    await store.append(queue, [draft("a")], attempt=late)
    assert await sweep_all(store) >= 5
    assert await store.outcome(keys[0]) is None
    assert await store.outcome(late) is not None


@with_limits(sweep_rows_max=10)
async def test_deduplication_past_its_window_is_swept_in_bounded_passes(
    store: Store, clock: ManualClock, limits: Limits
) -> None:
    queue = await make_queue(store, "orders.fifo")
    ids = [draft("a", group=GROUP, deduplication_id=str(number)) for number in range(100)]
    await send(store, queue, *ids)
    await clock.advance(ms=limits.deduplication_window_ms)
    late = await send(store, queue, "a", deduplication_id="late")
    assert await sweep_all(store) >= 5
    assert await send(store, queue, "a", deduplication_id="late") == late


@on_both_kinds
async def test_a_sweep_in_the_midst_of_work_disturbs_nobody(store: Store, clock: ManualClock, name: str) -> None:
    queue = await make_queue(store, name, retention_s=60)
    for number in range(12):
        await send(store, queue, str(number), group=str(number))
        leased = await lease(store, queue, 1, lease_ms=20_000)
        await sweep_all(store)
        if number % 3 == 0:
            assert await delete(store, queue, *leased) == [None]
        await clock.advance(seconds=10)
    await sweep_all(store)
    oldest_ms = clock.now_ms() - 60_000
    remaining = await lease(store, queue, 20, lease_ms=0)
    assert remaining
    assert all(message.sent_at_ms > oldest_ms for message in remaining)
    visible, in_flight, delayed = await counts(store, queue)
    assert (visible + in_flight + delayed, delayed) == (len(remaining) + in_flight, 0)
    assert len(bodies(remaining)) == len(set(bodies(remaining)))


@with_limits(sweep_rows_max=5)
@on_both_kinds
async def test_what_is_half_swept_comes_back_in_no_other_queue(store: Store, name: str) -> None:
    purged = await make_queue(store, name)
    other = await make_queue(store, f"other-{name}")
    await send(store, purged, *(str(number) for number in range(20)), group="old")
    await store.purge_queue(purged)
    assert await store.sweep()
    await send(store, other, "a", "b", group="new")
    assert await lease_bodies(store, other) == ["a", "b"]
    assert await counts(store, other) == (0, 2, 0)
    await sweep_all(store)
    assert await counts(store, other) == (0, 2, 0)
