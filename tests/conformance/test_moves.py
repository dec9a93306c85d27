"""Message move tasks: begun, paced, carried on after a restart, and ended."""

from __future__ import annotations

import pytest

from penstock.domain.errors import MoveTaskDoesNotExist, UnsupportedOperation
from penstock.domain.limits import HOUR_MS
from penstock.domain.message import Attribute
from penstock.domain.move import MoveFailure, MoveStatus, MoveTask
from penstock.domain.queue import Queue
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.moves import latest, make_move_pair, numbered, run_moves
from tests.support.queues import (
    bodies,
    counts,
    dead_letters_to,
    delete,
    draft,
    lease,
    lease_bodies,
    lease_one,
    make_queue,
    on_both_kinds,
    send,
    with_limits,
)
from tests.support.stores import Reopen


async def die(store: Store, clock: ManualClock, queue: Queue, *texts: str) -> None:
    """Send messages, and have them received too often (once)."""
    await send(store, queue, *texts)
    await lease(store, queue, len(texts), lease_ms=1_000)
    await clock.advance(seconds=1)
    assert await lease(store, queue) == []


# -- what is moved --------------------------------------------------------------------------------


@on_both_kinds
async def test_the_visible_messages_move_in_order(store: Store, clock: ManualClock, name: str) -> None:
    dead, queue = await make_move_pair(store, name)
    await send(store, dead, *numbered(20), group="g")
    task = await store.start_move("task", dead, queue, None)
    assert task == MoveTask(
        id="task",
        source=dead.name,
        destination=queue.name,
        rate=None,
        status=MoveStatus.RUNNING,
        moved=0,
        to_move=20,
        started_at_ms=clock.now_ms(),
    )
    await run_moves(store, clock)
    done = await latest(store, dead)
    assert (done.status, done.moved, done.to_move, done.failure) == (MoveStatus.COMPLETED, 20, 20, None)
    assert await counts(store, dead) == (0, 0, 0)
    assert await lease_bodies(store, queue, 20) == numbered(20)


@on_both_kinds
async def test_a_moved_message_is_a_new_one_with_the_same_contents(store: Store, clock: ManualClock, name: str) -> None:
    queue_with_dead = name.replace("orders", "source")
    dead, queue = await make_move_pair(store, name)
    source = await make_queue(store, queue_with_dead, redrive=dead_letters_to(dead.name.name, after=1))
    sent = draft("a", group="g", attributes={"n": Attribute("Number", "1")}, trace_header="Root=1", sender="me")
    await store.append(source, [sent])
    await lease(store, source, lease_ms=1_000)
    await clock.advance(seconds=1)
    await lease(store, source)
    await store.start_move("task", dead, queue, None)
    await clock.advance(seconds=5)
    moved_at_ms = clock.now_ms()
    await run_moves(store, clock)
    moved = await lease_one(store, queue)
    assert moved.message_id != sent.message_id
    assert (moved.body, moved.attributes, moved.group) == (sent.body, sent.attributes, sent.group)
    assert (moved.trace_header, moved.sender) == (sent.trace_header, sent.sender)
    assert (moved.receive_count, moved.sent_at_ms) == (1, moved_at_ms)
    assert moved.dead_letter_source is None


@on_both_kinds
async def test_without_a_destination_messages_go_back_where_they_came_from(
    store: Store, clock: ManualClock, name: str
) -> None:
    dead = await make_queue(store, name.replace("orders", "dead"))
    redrive = dead_letters_to(dead.name.name, after=1)
    orders = await make_queue(store, name, redrive=redrive)
    invoices = await make_queue(store, name.replace("orders", "invoices"), redrive=redrive)
    await die(store, clock, orders, "order")
    await die(store, clock, invoices, "invoice")
    await store.start_move("task", dead, None, None)
    await run_moves(store, clock)
    assert (await latest(store, dead)).status is MoveStatus.COMPLETED
    assert await lease_bodies(store, orders) == ["order"]
    assert await lease_bodies(store, invoices) == ["invoice"]


async def test_a_moved_message_is_visible_whatever_its_delay_was(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store, "orders", delay_s=900)
    await send(store, dead, "a", delay_ms=10_000)
    await clock.advance(seconds=10)
    await store.start_move("task", dead, queue, None)
    await run_moves(store, clock)
    assert await lease_bodies(store, queue) == ["a"]


@on_both_kinds
async def test_leased_delayed_and_expired_messages_are_not_moved(store: Store, clock: ManualClock, name: str) -> None:
    dead = await make_queue(store, name.replace("orders", "dead"), retention_s=60)
    queue = await make_queue(store, name)
    await send(store, dead, "expired", group="1")
    await clock.advance(seconds=60)
    await send(store, dead, "leased", group="2")
    await lease(store, dead, lease_ms=10_000)
    await send(store, dead, "delayed", group="3", delay_ms=10_000)
    await send(store, dead, "visible", group="4")
    await store.start_move("task", dead, queue, None)
    await run_moves(store, clock)
    assert (await latest(store, dead)).moved == 1
    assert await lease_bodies(store, queue) == ["visible"]
    await clock.advance(seconds=10)
    assert sorted(await lease_bodies(store, dead)) == ["delayed", "leased"]


async def test_a_blocked_group_is_not_moved(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store, "orders.fifo")
    await send(store, dead, "x1", "x2", group="x")
    await send(store, dead, "y1", group="y")
    await lease(store, dead, 1, lease_ms=HOUR_MS)
    await store.start_move("task", dead, queue, None)
    await run_moves(store, clock)
    task = await latest(store, dead)
    assert (task.status, task.moved) == (MoveStatus.COMPLETED, 1)
    assert await lease_bodies(store, queue) == ["y1"]


async def test_fifo_moves_draw_new_sequences_behind_what_is_there(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store, "orders.fifo")
    await send(store, dead, "old-1", "old-2", group="g")
    [before] = await send(store, queue, "new", group="g")
    await store.start_move("task", dead, queue, None)
    await run_moves(store, clock)
    messages = await lease(store, queue)
    assert bodies(messages) == ["new", "old-1", "old-2"]
    sequences = [message.sequence for message in messages if message.sequence is not None]
    assert sequences == sorted(set(sequences))
    assert sequences[0] == before.sequence


async def test_fifo_moves_pay_no_regard_to_deduplication(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store, "orders.fifo")
    await send(store, queue, "sent here", deduplication_id="1")
    await send(store, dead, "moved here", deduplication_id="1")
    await store.start_move("task", dead, queue, None)
    await run_moves(store, clock)
    assert await lease_bodies(store, queue) == ["sent here", "moved here"]


async def test_receipts_of_a_moved_message_name_a_message_that_is_gone(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store)
    await send(store, dead, "a")
    old = await lease_one(store, dead, lease_ms=0)
    await store.start_move("task", dead, queue, None)
    await run_moves(store, clock)
    assert await delete(store, dead, old) == [None]
    assert await counts(store, queue) == (1, 0, 0)


# -- ends -----------------------------------------------------------------------------------------


@on_both_kinds
async def test_a_move_of_nothing_completes(store: Store, clock: ManualClock, name: str) -> None:
    dead, queue = await make_move_pair(store, name)
    await store.start_move("task", dead, queue, None)
    await run_moves(store, clock)
    task = await latest(store, dead)
    assert (task.status, task.moved, task.to_move) == (MoveStatus.COMPLETED, 0, 0)


async def test_a_source_has_one_running_task(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store)
    await send(store, dead, "a", "b")
    await store.start_move("first", dead, queue, 1)
    with pytest.raises(UnsupportedOperation):
        await store.start_move("second", dead, queue, 1)
    await run_moves(store, clock)
    await store.start_move("third", dead, queue, 1)
    assert [task.id for task in await store.list_moves(dead, limit=10)] == ["third", "first"]


async def test_a_cancelled_task_stops_where_it_is(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store)
    await send(store, dead, "a", "b", "c")
    await store.start_move("task", dead, queue, 1)
    await store.advance_moves()
    cancelled = await store.cancel_move("task")
    assert (cancelled.status, cancelled.moved) == (MoveStatus.CANCELLED, 1)
    await clock.advance(seconds=10)
    assert await store.advance_moves() is None
    assert await latest(store, dead) == cancelled
    assert await counts(store, dead) == (2, 0, 0)
    await store.start_move("another", dead, queue, 1)


async def test_only_a_running_task_can_be_cancelled(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store)
    await store.start_move("completed", dead, queue, None)
    await run_moves(store, clock)
    await store.start_move("cancelled", dead, queue, None)
    await store.cancel_move("cancelled")
    for task_id in ("completed", "cancelled", "unknown"):
        with pytest.raises(MoveTaskDoesNotExist):
            await store.cancel_move(task_id)


@on_both_kinds
async def test_a_task_fails_when_its_destination_is_gone(store: Store, clock: ManualClock, name: str) -> None:
    dead, queue = await make_move_pair(store, name)
    await send(store, dead, "a", "b")
    await store.start_move("task", dead, queue, 1)
    await store.advance_moves()
    await store.delete_queue(queue)
    await run_moves(store, clock)
    task = await latest(store, dead)
    assert (task.status, task.moved) == (MoveStatus.FAILED, 1)
    assert task.failure is MoveFailure.DESTINATION_DOES_NOT_EXIST
    assert await lease_bodies(store, dead) == ["b"]


@on_both_kinds
async def test_a_task_fails_at_a_message_that_came_from_nowhere(store: Store, clock: ManualClock, name: str) -> None:
    dead = await make_queue(store, name.replace("orders", "dead"))
    await send(store, dead, "a")
    await store.start_move("task", dead, None, None)
    await run_moves(store, clock)
    task = await latest(store, dead)
    assert (task.status, task.failure) == (MoveStatus.FAILED, MoveFailure.SOURCE_UNKNOWN)
    assert await lease_bodies(store, dead) == ["a"]


@on_both_kinds
async def test_a_task_fails_at_a_message_whose_queue_is_gone(store: Store, clock: ManualClock, name: str) -> None:
    dead = await make_queue(store, name.replace("orders", "dead"))
    queue = await make_queue(store, name, redrive=dead_letters_to(dead.name.name, after=1))
    await die(store, clock, queue, "a")
    await store.start_move("task", dead, None, None)
    await store.delete_queue(queue)
    await run_moves(store, clock)
    task = await latest(store, dead)
    assert (task.status, task.failure) == (MoveStatus.FAILED, MoveFailure.DESTINATION_DOES_NOT_EXIST)
    assert await lease_bodies(store, dead) == ["a"]


@on_both_kinds
async def test_messages_go_back_to_permitted_queues_alone(
    store: Store, clock: ManualClock, reopen: Reopen, name: str
) -> None:
    dead = await make_queue(store, name.replace("orders", "dead"))
    redrive = dead_letters_to(dead.name.name, after=1)
    queue = await make_queue(store, name, redrive=redrive)
    other = await make_queue(store, name.replace("orders", "others"), redrive=redrive)
    await die(store, clock, queue, "a")
    await die(store, clock, other, "b")
    await store.start_move("task", dead, None, 1, permitted=[queue.name])
    store = await reopen()
    await run_moves(store, clock)
    task = await latest(store, dead)
    assert (task.status, task.moved) == (MoveStatus.FAILED, 1)
    assert task.failure is MoveFailure.DESTINATION_NOT_PERMITTED
    assert await lease_bodies(store, queue) == ["a"]
    assert await lease_bodies(store, other) == []
    await store.start_move("nowhere", dead, None, None, permitted=[])
    await run_moves(store, clock)
    assert (await latest(store, dead)).failure is MoveFailure.DESTINATION_NOT_PERMITTED
    await store.start_move("anywhere", dead, None, None)
    await run_moves(store, clock)
    assert (await latest(store, dead)).status is MoveStatus.COMPLETED
    assert await lease_bodies(store, other) == ["b"]


async def test_a_failed_task_has_moved_what_came_before(store: Store, clock: ManualClock) -> None:
    dead = await make_queue(store, "dead")
    queue = await make_queue(store, "orders", redrive=dead_letters_to("dead", after=1))
    await die(store, clock, queue, "a", "b")
    await send(store, dead, "from nowhere")
    await store.start_move("task", dead, None, 1)
    await run_moves(store, clock)
    task = await latest(store, dead)
    assert (task.status, task.moved) == (MoveStatus.FAILED, 2)
    assert sorted(await lease_bodies(store, queue)) == ["a", "b"]
    assert await lease_bodies(store, dead) == ["from nowhere"]


async def test_a_task_completes_when_its_source_is_purged(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store)
    await send(store, dead, "a", "b")
    await store.start_move("task", dead, queue, 1)
    await store.advance_moves()
    await store.purge_queue(dead)
    await run_moves(store, clock)
    task = await latest(store, dead)
    assert (task.status, task.moved) == (MoveStatus.COMPLETED, 1)


async def test_a_task_ends_with_its_source(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store)
    await send(store, dead, "a", "b")
    await store.start_move("task", dead, queue, 1)
    await store.advance_moves()
    await store.delete_queue(dead)
    await run_moves(store, clock)
    assert await store.advance_moves() is None
    assert await counts(store, queue) == (1, 0, 0)


# -- lists and restarts ---------------------------------------------------------------------------


async def test_tasks_are_listed_newest_first(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store)
    for task_id in ("first", "second", "third"):
        await store.start_move(task_id, dead, queue, None)
        await run_moves(store, clock)
        await clock.advance(seconds=1)
    assert [task.id for task in await store.list_moves(dead, limit=10)] == ["third", "second", "first"]
    assert [task.id for task in await store.list_moves(dead, limit=2)] == ["third", "second"]
    assert await store.list_moves(queue, limit=10) == []


@with_limits(moves_kept_per_queue_max=3)
async def test_so_many_tasks_are_kept(store: Store, clock: ManualClock) -> None:
    dead, queue = await make_move_pair(store)
    for number in range(6):
        await store.start_move(str(number), dead, queue, None)
        await run_moves(store, clock)
        await clock.advance(seconds=1)
    while await store.sweep():
        pass
    assert [task.id for task in await store.list_moves(dead, limit=3)] == ["5", "4", "3"]


@on_both_kinds
async def test_a_task_goes_on_after_a_restart(store: Store, clock: ManualClock, reopen: Reopen, name: str) -> None:
    dead, queue = await make_move_pair(store, name)
    await send(store, dead, *numbered(5), group="g")
    started = await store.start_move("task", dead, queue, 1)
    await store.advance_moves()
    store = await reopen()
    task = await latest(store, dead)
    assert (task.status, task.moved, task.started_at_ms) == (MoveStatus.RUNNING, 1, started.started_at_ms)
    assert await store.advance_moves() == 1_000
    assert (await latest(store, dead)).moved == 1
    await run_moves(store, clock)
    assert (await latest(store, dead)).status is MoveStatus.COMPLETED
    assert await lease_bodies(store, queue) == numbered(5)
