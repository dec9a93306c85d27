"""Synchronous replication: a commit whose wait for the standby was given up is not acknowledged."""

from __future__ import annotations

import asyncio

from penstock.domain.limits import Limits
from penstock.store.port import Store
from tests.support.queues import attempt_key, bodies, counts, delete, draft, lease, make_queue, on_both_kinds, send
from tests.support.standby import Standby
from tests.unit.store.postgres.conftest import OpenNode


@on_both_kinds
async def test_an_append_is_acknowledged_only_once_it_is_replicated(store: Store, standby: Standby, name: str) -> None:
    queue = await make_queue(store, name)
    await standby.goes_away()
    append = asyncio.create_task(store.append(queue, [draft("a", group="g")]))
    for _ in range(2):
        await standby.is_waited_for()
        await standby.is_given_up()
        # It has been committed here, and the server said so; yet the store waits again.
        await standby.is_waited_for()
        assert not append.done()
    await standby.comes_back()
    [answer] = await append
    [message] = await lease(store, queue)
    assert message.message_id == getattr(answer, "message_id", None)
    assert await counts(store, queue) == (0, 1, 0)


async def test_a_delete_is_acknowledged_only_once_it_is_replicated(store: Store, standby: Standby) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    [message] = await lease(store, queue)
    await standby.goes_away()
    deletion = asyncio.create_task(delete(store, queue, message))
    await standby.is_waited_for()
    await standby.is_given_up()
    await standby.is_waited_for()
    assert not deletion.done()
    await standby.comes_back()
    assert await deletion == [None]


@on_both_kinds
async def test_that_a_message_is_gone_is_acknowledged_only_once_it_is_replicated(
    store: Store, standby: Standby, name: str
) -> None:
    """The one who deleted it may have been told that this is unknown, and asks again."""
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    [message] = await lease(store, queue)
    assert await delete(store, queue, message) == [None]
    await standby.goes_away()
    again = asyncio.create_task(delete(store, queue, message))
    await standby.is_waited_for()
    assert not again.done()
    await standby.comes_back()
    assert await again == [None]


async def test_a_step_of_a_move_that_is_not_known_to_be_replicated_is_followed_by_one_with_ids_of_its_own(
    open_node: OpenNode, standby: Standby
) -> None:
    store = await open_node(limits=Limits(sweep_rows_max=1))
    source, destination = await make_queue(store, "dead"), await make_queue(store, "orders")
    await send(store, source, "a", "b")
    await store.start_move("task", source, destination, None)
    await standby.goes_away()
    moving = asyncio.create_task(store.advance_moves())
    await standby.is_waited_for()
    await standby.is_given_up()
    await standby.is_waited_for()
    await standby.comes_back()
    await moving
    messages = await lease(store, destination)
    assert sorted(bodies(messages)) == ["a", "b"]
    assert len({message.message_id for message in messages}) == 2


async def test_an_earlier_answer_is_given_only_once_it_is_replicated(store: Store, standby: Standby) -> None:
    """The first attempt may have been committed here only; whoever repeats its answer vouches for it."""
    queue, key = await make_queue(store), attempt_key("send")
    first = await store.append(queue, [draft("a")], attempt=key)
    await standby.goes_away()
    again = asyncio.create_task(store.append(queue, [draft("a")], attempt=key))
    await standby.is_waited_for()
    assert not again.done()
    await standby.comes_back()
    assert await again == first


async def test_a_change_of_a_queue_is_acknowledged_only_once_it_is_replicated(store: Store, standby: Standby) -> None:
    queue = await make_queue(store)
    await standby.goes_away()
    save = asyncio.create_task(store.save_queue(queue, tags={"team": "blue"}))
    await standby.is_waited_for()
    await standby.is_given_up()
    await standby.is_waited_for()
    assert not save.done()
    await standby.comes_back()
    saved = await save
    assert saved is not None
    assert saved.revision == queue.revision + 1
