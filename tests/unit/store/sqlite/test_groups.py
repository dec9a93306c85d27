"""Groups on SQLite: what is fetched, picked or remembered ahead for several leases and sends stays right."""

from __future__ import annotations

import asyncio
import re
from types import ModuleType

import pytest

from penstock.domain.limits import Limits
from penstock.domain.queue import DeduplicationScope, Queue
from penstock.store.port import Store
from penstock.store.sqlite import deliveries, fair, fifo, groups, standard
from penstock.store.sqlite.connection import MEMORY, connect
from penstock.store.sqlite.migrations import migrate
from penstock.testing import ManualClock
from tests.support.queues import bodies, dead_letters_to, delete, draft, lease, lease_bodies, make_queue, send
from tests.unit.store.sqlite.conftest import OpenStore


async def lease_at_once(store: Store, queue: Queue, *wanted: int) -> list[list[str]]:
    """Do several leases in one transaction, and say what each gave."""
    leased = await asyncio.gather(*(store.lease(queue, count=count, lease_ms=30_000) for count in wanted))
    return [bodies(one.messages) for one in leased]


async def make_dead(store: Store, clock: ManualClock, queue: Queue, body: str, group: str) -> None:
    """Send a message that the next lease moves to the dead-letter queue."""
    await send(store, queue, body, group=group)
    await lease(store, queue, lease_ms=1)
    await clock.advance(ms=1)


@pytest.mark.parametrize("module", [deliveries, fair, fifo, groups, standard])
def test_no_statement_walks_over_a_table_or_sorts(module: ModuleType) -> None:
    db = connect(MEMORY)
    migrate(db, MEMORY)
    statements = {
        name: text for name, text in vars(module).items() if re.match("_[A-Z]", name) and isinstance(text, str)
    }
    assert statements
    for name, sql in statements.items():
        numbers = [int(number) for number in re.findall(r"\?(\d+)", sql)]
        bindings = (None,) * (max(numbers) if numbers else sql.count("?"))
        steps = [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
        slow = [step for step in steps if "TEMP B-TREE" in step or ("SCAN" in step and "VIRTUAL TABLE" not in step)]
        assert not slow, name
    db.close()


@pytest.mark.parametrize(("name", "group"), [("orders", None), ("orders", "g"), ("orders.fifo", "g")])
async def test_a_lease_that_comes_away_empty_knows_when_those_beside_it_end(
    open_store: OpenStore, name: str, group: str | None
) -> None:
    store = await open_store()
    queue = await make_queue(store, name)
    await send(store, queue, "a", group=group)
    first, second = await asyncio.gather(*(store.lease(queue, count=1, lease_ms=30_000) for _ in range(2)))
    assert (bodies(first.messages), second.messages, second.next_in_ms) == (["a"], [], 30_000)


async def test_fifo_leases_at_once_share_no_group(open_store: OpenStore) -> None:
    store = await open_store()
    queue = await make_queue(store, "orders.fifo")
    for group in "abc":
        await send(store, queue, f"{group}1", f"{group}2", group=group)
    assert await lease_at_once(store, queue, 1, 3, 1) == [["a1"], ["b1", "b2", "c1"], []]


async def test_a_fifo_group_that_lost_its_head_is_leased_from_once(open_store: OpenStore, clock: ManualClock) -> None:
    """What follows the head gives the group another place among those that are ready."""
    store = await open_store()
    await make_queue(store, "dead.fifo")
    queue = await make_queue(store, "orders.fifo", redrive=dead_letters_to("dead.fifo", after=1))
    await make_dead(store, clock, queue, "a1", "a")
    await send(store, queue, "a2", group="a")
    assert await lease_at_once(store, queue, 1, 1) == [["a2"], []]


async def test_a_tenant_is_not_charged_for_what_could_not_be_delivered(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = await open_store()
    await make_queue(store, "dead")
    queue = await make_queue(store, redrive=dead_letters_to("dead", after=1))
    await make_dead(store, clock, queue, "a1", "a")
    await send(store, queue, "b1", "b2", group="b")
    await send(store, queue, "a2", group="a")
    assert await lease_bodies(store, queue, 2) == ["b1", "a2"]


async def test_tenants_that_were_not_fetched_come_before_those_who_are_served_again(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = await open_store()
    await make_queue(store, "dead")
    queue = await make_queue(store, redrive=dead_letters_to("dead", after=1))
    await make_dead(store, clock, queue, "a1", "a")
    await send(store, queue, "b1", group="b")
    await send(store, queue, "c1", group="c")
    await send(store, queue, "a2", group="a")
    assert await lease_bodies(store, queue, 2) == ["b1", "c1"]


async def test_leases_at_once_serve_tenants_as_one_after_the_other_would(open_store: OpenStore) -> None:
    store = await open_store()
    queue = await make_queue(store)
    await send(store, queue, *(f"a{number}" for number in range(30)), group="a")
    await send(store, queue, "b0", "b1", group="b")
    await send(store, queue, "x", "y")
    assert await lease_at_once(store, queue, 3, 1, 4) == [["a0", "b0", "x"], ["y"], ["a1", "b1", "a2", "a3"]]


async def test_what_was_picked_for_more_leases_than_there_is_room_for_stays(open_store: OpenStore) -> None:
    store = await open_store(limits=Limits(in_flight_standard_max=2))
    queue = await make_queue(store)
    await send(store, queue, "a1", "a2", "a3", group="a")
    await send(store, queue, "b1", "b2", group="b")
    assert await lease_bodies(store, queue, 5) == ["a1", "b1"]
    await store.close()
    store = await open_store()
    assert await lease_bodies(store, queue, 5) == ["a2", "b2", "a3"]


async def test_a_group_that_was_emptied_is_made_anew_in_the_same_transaction(open_store: OpenStore) -> None:
    store = await open_store()
    first, second, third, fourth = [await make_queue(store, f"{name}.fifo") for name in "abcd"]
    await send(store, first, "from a", group="g")
    await send(store, fourth, "from d", group="g")
    for task, source, destination in (("1", first, second), ("2", second, third), ("3", fourth, second)):
        await store.start_move(task, source, destination, None)
    await store.advance_moves()
    assert await lease_bodies(store, third) == ["from a"]
    assert await lease_bodies(store, second) == ["from d"]


async def test_a_group_comes_again_after_it_was_emptied(open_store: OpenStore) -> None:
    store = await open_store()
    queue = await make_queue(store, "orders.fifo")
    for body in "abc":
        await send(store, queue, body, group="g")
        leased = await lease(store, queue)
        assert bodies(leased) == [body]
        await delete(store, queue, *leased)


async def test_a_group_whose_first_message_cannot_be_stored_is_made_by_the_next(open_store: OpenStore) -> None:
    store = await open_store()
    queue = await make_queue(store, "orders.fifo")
    drafts = [draft(body, group="g") for body in ("\ud800", "whole")]
    answers = await asyncio.gather(*(store.append(queue, [one]) for one in drafts), return_exceptions=True)
    assert [type(answer) for answer in answers] == [UnicodeEncodeError, list]
    assert await lease_bodies(store, queue) == ["whole"]


async def test_a_tenant_of_whom_all_is_delayed_is_kept(open_store: OpenStore, clock: ManualClock) -> None:
    store = await open_store()
    queue = await make_queue(store)
    await send(store, queue, "now", group="a")
    await send(store, queue, "later", "last", group="a", delay_ms=1_000)
    await delete(store, queue, *await lease(store, queue))
    await clock.advance(seconds=1)
    assert await lease_bodies(store, queue) == ["later", "last"]


async def test_scope_and_deduplication_id_are_told_apart(open_store: OpenStore) -> None:
    store = await open_store()
    queue = await make_queue(store, "orders.fifo", deduplication_scope=DeduplicationScope.MESSAGE_GROUP)
    await store.append(queue, [draft("first", group="ab", deduplication_id="c")])
    await store.append(queue, [draft("second", group="a", deduplication_id="bc")])
    assert sorted(await lease_bodies(store, queue)) == ["first", "second"]
