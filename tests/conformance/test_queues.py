"""Queues: made, found, listed, changed and deleted."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.errors import QueueDeletedRecently, QueueDoesNotExist
from penstock.domain.limits import Limits
from penstock.domain.queue import (
    DeduplicationScope,
    QueueAttributes,
    QueueName,
    RedriveAllowPolicy,
    RedrivePermission,
    ThroughputLimit,
)
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import (
    ACCOUNT,
    REGION,
    change_queue,
    counts,
    dead_letters_to,
    lease_bodies,
    lease_one,
    make_queue,
    on_both_kinds,
    queue_name,
    send,
    with_limits,
)
from tests.support.stores import Reopen

EVERYTHING_SET = QueueAttributes(
    delay_s=1,
    maximum_message_bytes=2_048,
    retention_s=60,
    receive_wait_s=20,
    visibility_timeout_s=43_200,
    policy='{"Version":"2012-10-17"}',
    redrive=dead_letters_to("dead.fifo", after=1_000),
    redrive_allow=RedriveAllowPolicy(RedrivePermission.BY_QUEUE, (queue_name("a.fifo"), queue_name("b.fifo"))),
    content_based_deduplication=True,
    deduplication_scope=DeduplicationScope.MESSAGE_GROUP,
    throughput_limit=ThroughputLimit.PER_MESSAGE_GROUP_ID,
    kms_key_id="alias/key",
    kms_reuse_s=60,
    managed_sse=False,
)
ORDERS = queue_name("orders")


# -- create and find ------------------------------------------------------------------------------


async def test_a_created_queue_is_what_was_asked_for(store: Store, clock: ManualClock) -> None:
    queue, created = await store.create_queue(queue_name("orders.fifo"), EVERYTHING_SET, {"team": "blue", "é": "ü"})
    assert created
    assert (queue.name, queue.attributes, queue.tags) == (
        queue_name("orders.fifo"),
        EVERYTHING_SET,
        {"team": "blue", "é": "ü"},
    )
    assert (queue.created_at_ms, queue.modified_at_ms) == (clock.now_ms(), clock.now_ms())
    assert await store.find_queue(queue.name) == queue


async def test_a_queue_is_found_as_it_was_after_a_restart(store: Store, reopen: Reopen) -> None:
    queue, _ = await store.create_queue(queue_name("orders.fifo"), EVERYTHING_SET, {"team": "blue"})
    store = await reopen()
    assert await store.find_queue(queue.name) == queue


async def test_a_name_that_is_taken_gives_its_queue_unchanged(store: Store) -> None:
    queue = await make_queue(store, "orders", tags={"team": "blue"}, delay_s=5)
    assert await store.create_queue(ORDERS, QueueAttributes(delay_s=9), {"team": "red"}) == (queue, False)
    assert await store.find_queue(ORDERS) == queue


async def test_names_are_their_own_in_each_region_and_account(store: Store) -> None:
    names = [ORDERS, queue_name("orders", region="us-east-1"), queue_name("orders", account="111111111111")]
    made = [await store.create_queue(name, QueueAttributes(), {}) for name in names]
    assert [created for _, created in made] == [True] * 3
    assert len({queue.id for queue, _ in made}) == 3
    assert [await store.find_queue(name) for name in names] == [queue for queue, _ in made]


async def test_queues_created_at_the_same_time_under_one_name_are_one(store: Store) -> None:
    made = await asyncio.gather(*(store.create_queue(ORDERS, QueueAttributes(), {}) for _ in range(10)))
    assert sorted(created for _, created in made) == [False] * 9 + [True]
    assert [queue for queue, _ in made] == [made[0][0]] * 10


async def test_a_queue_that_was_never_made_is_not_found(store: Store) -> None:
    with pytest.raises(QueueDoesNotExist):
        await store.find_queue(ORDERS)


@pytest.mark.parametrize(
    "name",
    [
        queue_name("orders\0"),
        queue_name("\0"),
        QueueName(f"{REGION}\0", ACCOUNT, "orders"),
        QueueName(REGION, f"{ACCOUNT}\0", "orders"),
    ],
)
async def test_no_name_with_a_nul_is_found(store: Store, name: QueueName) -> None:
    """PostgreSQL's texts cannot hold one."""
    await make_queue(store)
    with pytest.raises(QueueDoesNotExist):
        await store.find_queue(name)


async def test_lists_take_any_text(store: Store) -> None:
    for name in ("a", "ab", "b"):
        await make_queue(store, name, redrive=dead_letters_to("dead", after=1))
    assert await store.list_queues(REGION, ACCOUNT, prefix="a\0", limit=10) == []
    assert await store.list_queues(f"{REGION}\0", ACCOUNT, limit=10) == []
    after = await store.list_queues(REGION, ACCOUNT, after="a\0b", limit=10)
    assert [queue.name.name for queue in after] == ["ab", "b"]
    after = await store.dead_letter_sources(queue_name("dead"), after="a\0b", limit=10)
    assert [queue.name.name for queue in after] == ["ab", "b"]


async def test_a_queue_that_was_looked_for_too_early_is_found_once_it_is_made(store: Store) -> None:
    with pytest.raises(QueueDoesNotExist):
        await store.find_queue(ORDERS)
    queue = await make_queue(store, "orders")
    assert await store.find_queue(ORDERS) == queue


# -- list -----------------------------------------------------------------------------------------


async def listed(store: Store, **wanted: str | int) -> list[str]:
    wanted = {"limit": 100, **wanted}
    return [queue.name.name for queue in await store.list_queues(ORDERS.region, ORDERS.account, **wanted)]  # type: ignore[arg-type] # A table of keywords.


async def test_queues_are_listed_in_the_order_of_their_names(store: Store) -> None:
    names = ["b", "a_b", "ab", "a-b", "aB", "Ab", "a1", "a.fifo", "a"]
    for name in names:
        await make_queue(store, name)
    assert await listed(store) == sorted(names)


async def test_a_page_begins_after_the_name_given_and_ends_at_its_limit(store: Store) -> None:
    for name in "abcde":
        await make_queue(store, name)
    assert await listed(store, limit=2) == ["a", "b"]
    assert await listed(store, limit=2, after="b") == ["c", "d"]
    assert await listed(store, limit=2, after="bb") == ["c", "d"]
    assert await listed(store, limit=2, after="e") == []


@pytest.mark.parametrize(
    ("prefix", "found"),
    [("", ["a-1", "a_1", "ab1", "b"]), ("a", ["a-1", "a_1", "ab1"]), ("a_", ["a_1"]), ("%", []), ("A", [])],
)
async def test_a_prefix_is_taken_literally(store: Store, prefix: str, found: list[str]) -> None:
    for name in ("a_1", "ab1", "a-1", "b"):
        await make_queue(store, name)
    assert await listed(store, prefix=prefix) == found


async def test_a_prefix_and_a_page_go_together(store: Store) -> None:
    for name in ("a1", "b1", "b2", "b3", "c1"):
        await make_queue(store, name)
    assert await listed(store, prefix="b", after="a1", limit=2) == ["b1", "b2"]
    assert await listed(store, prefix="b", after="b2", limit=2) == ["b3"]


async def test_only_one_region_and_account_are_listed(store: Store) -> None:
    queue = await make_queue(store, "orders")
    await store.create_queue(queue_name("a", region="us-east-1"), QueueAttributes(), {})
    await store.create_queue(queue_name("a", account="111111111111"), QueueAttributes(), {})
    assert await store.list_queues(ORDERS.region, ORDERS.account, limit=10) == [queue]


async def test_places_are_the_regions_and_accounts_that_have_queues(store: Store) -> None:
    assert await store.list_places(limit=10) == []
    places = [(region, account) for region in ("eu-west-1", "us-east-1") for account in (ACCOUNT, "111111111111")]
    for region, account in reversed(places):
        for text in ("a", "b"):
            name = queue_name(text, region=region, account=account)
            await store.create_queue(name, QueueAttributes(), {})
    assert await store.list_places(limit=10) == places
    assert await store.list_places(limit=2) == places[:2]
    assert await store.list_places(after=places[1], limit=2) == places[2:]
    assert await store.list_places(after=places[3], limit=2) == []


async def test_a_place_is_listed_until_its_last_queue_is_deleted(store: Store) -> None:
    first, second = await make_queue(store, "a"), await make_queue(store, "b")
    await store.delete_queue(first)
    assert await store.list_places(limit=1) == [(REGION, ACCOUNT)]
    await store.delete_queue(second)
    assert await store.list_places(limit=1) == []


async def test_a_deleted_queue_is_not_listed(store: Store) -> None:
    await store.delete_queue(await make_queue(store, "a"))
    await make_queue(store, "b")
    assert await listed(store) == ["b"]


# -- dead-letter sources --------------------------------------------------------------------------


async def test_sources_are_the_queues_whose_policy_names_this_one(store: Store) -> None:
    await make_queue(store, "dead")
    await make_queue(store, "other-dead")
    for name in "cab":
        await make_queue(store, name, redrive=dead_letters_to("dead", after=3))
    await make_queue(store, "d", redrive=dead_letters_to("other-dead", after=3))
    await make_queue(store, "e")

    async def sources(*, after: str = "", limit: int = 100) -> list[str]:
        found = await store.dead_letter_sources(queue_name("dead"), after=after, limit=limit)
        return [queue.name.name for queue in found]

    assert await sources() == ["a", "b", "c"]
    assert await sources(limit=2) == ["a", "b"]
    assert await sources(after="b") == ["c"]


async def test_a_source_is_none_any_more_once_its_policy_is_gone_or_it_is_deleted(store: Store) -> None:
    await make_queue(store, "dead")
    first = await make_queue(store, "a", redrive=dead_letters_to("dead", after=3))
    second = await make_queue(store, "b", redrive=dead_letters_to("dead", after=3))
    third = await make_queue(store, "c")
    await store.save_queue(first, attributes=QueueAttributes())
    await store.delete_queue(second)
    added = await store.save_queue(third, attributes=second.attributes)
    assert await store.dead_letter_sources(queue_name("dead"), limit=10) == [added]


# -- save -----------------------------------------------------------------------------------------


async def test_attributes_are_replaced_and_tags_stay(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders.fifo", tags={"team": "blue"})
    await clock.advance(seconds=1)
    saved = await store.save_queue(queue, attributes=EVERYTHING_SET)
    assert saved is not None
    assert (saved.attributes, saved.tags) == (EVERYTHING_SET, {"team": "blue"})
    assert (saved.id, saved.name, saved.created_at_ms) == (queue.id, queue.name, queue.created_at_ms)
    assert saved.modified_at_ms == clock.now_ms()
    assert saved.revision > queue.revision
    assert await store.find_queue(queue.name) == saved


async def test_tags_are_replaced_and_attributes_stay(store: Store) -> None:
    queue = await make_queue(store, "orders", tags={"team": "blue", "cost": "1"}, delay_s=3)
    saved = await store.save_queue(queue, tags={"team": "red"})
    assert saved is not None
    assert (saved.attributes, saved.tags) == (queue.attributes, {"team": "red"})
    assert saved.revision > queue.revision
    assert await store.find_queue(queue.name) == saved


async def test_attributes_and_tags_are_replaced_together(store: Store) -> None:
    queue = await make_queue(store, "orders", tags={"team": "blue"})
    saved = await store.save_queue(queue, attributes=QueueAttributes(delay_s=1), tags={})
    assert saved is not None
    assert (saved.attributes.delay_s, saved.tags) == (1, {})


async def test_a_save_upon_an_older_revision_does_nothing(store: Store) -> None:
    queue = await make_queue(store, "orders")
    saved = await store.save_queue(queue, attributes=QueueAttributes(delay_s=1))
    assert await store.save_queue(queue, attributes=QueueAttributes(delay_s=2), tags={"a": "b"}) is None
    assert await store.find_queue(queue.name) == saved


async def test_of_saves_at_the_same_time_one_wins(store: Store) -> None:
    queue = await make_queue(store, "orders")
    saves = [store.save_queue(queue, attributes=QueueAttributes(delay_s=number)) for number in range(1, 9)]
    saved = [won for won in await asyncio.gather(*saves) if won is not None]
    assert len(saved) == 1
    assert await store.find_queue(queue.name) == saved[0]


async def test_a_save_survives_a_restart(store: Store, reopen: Reopen) -> None:
    queue = await make_queue(store, "orders")
    saved = await store.save_queue(queue, attributes=QueueAttributes(delay_s=1), tags={"team": "blue"})
    store = await reopen()
    assert await store.find_queue(queue.name) == saved


async def test_messages_stay_through_a_save(store: Store) -> None:
    queue = await make_queue(store, "orders")
    await send(store, queue, "a")
    saved = await store.save_queue(queue, attributes=QueueAttributes(delay_s=1))
    assert saved is not None
    assert await lease_bodies(store, saved) == ["a"]


async def test_policies_are_those_of_the_value_passed_in(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store, "orders", retention_s=3_600)
    await send(store, queue, "a")
    shorter = await change_queue(store, queue, retention_s=60)
    await clock.advance(seconds=60)
    assert await lease_bodies(store, queue, lease_ms=0) == ["a"]
    assert await lease_bodies(store, shorter) == []


# -- delete ---------------------------------------------------------------------------------------


@on_both_kinds
async def test_a_deleted_queue_is_gone_with_its_messages(
    store: Store, clock: ManualClock, limits: Limits, name: str
) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b")
    await lease_one(store, queue)
    await store.delete_queue(queue)
    with pytest.raises(QueueDoesNotExist):
        await store.find_queue(queue.name)
    await clock.advance(ms=limits.name_reuse_ms)
    again = await make_queue(store, name)
    assert again.id != queue.id
    assert await counts(store, again) == (0, 0, 0)
    assert await lease_bodies(store, again) == []


async def test_a_deletion_survives_a_restart(store: Store, reopen: Reopen) -> None:
    queue = await make_queue(store, "orders")
    await send(store, queue, "a")
    await store.delete_queue(queue)
    store = await reopen()
    with pytest.raises(QueueDoesNotExist):
        await store.find_queue(queue.name)
    with pytest.raises(QueueDeletedRecently):
        await store.create_queue(queue.name, QueueAttributes(), {})


async def test_a_name_is_free_again_after_a_while(store: Store, clock: ManualClock, limits: Limits) -> None:
    await store.delete_queue(await make_queue(store, "orders"))
    await clock.advance(ms=limits.name_reuse_ms - 1)
    with pytest.raises(QueueDeletedRecently):
        await store.create_queue(ORDERS, QueueAttributes(), {})
    await clock.advance(ms=1)
    _, created = await store.create_queue(ORDERS, QueueAttributes(), {})
    assert created


async def test_only_the_name_that_was_deleted_stays_taken(store: Store) -> None:
    await store.delete_queue(await make_queue(store, "orders"))
    _, created = await store.create_queue(queue_name("orders", region="us-east-1"), QueueAttributes(), {})
    assert created


@with_limits(name_reuse_ms=0)
async def test_a_name_may_be_free_at_once(store: Store) -> None:
    for _ in range(3):
        queue = await make_queue(store, "orders")
        await send(store, queue, "a")
        assert await lease_bodies(store, queue) == ["a"]
        await store.delete_queue(queue)
