"""Verbs on a queue that is gone: each of them says so, also when another queue has its name."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from penstock.domain.errors import QueueDoesNotExist
from penstock.domain.message import Receipt, VisibilityChange
from penstock.domain.queue import Queue, QueueAttributes
from penstock.store.port import Store
from tests.support.queues import attempt_key, counts, draft, make_queue, on_both_kinds, send, with_limits


def every_verb(store: Store, queue: Queue, other: Queue) -> dict[str, Coroutine[Any, Any, object]]:
    """Call every verb that takes a queue with `queue`; `other` is one that exists."""
    receipt = Receipt(queue.id, 1, 1)
    drafts = [draft("a", group="g")]
    key = attempt_key("attempt")
    return {
        "append": store.append(queue, drafts),
        "append with an attempt key": store.append(queue, drafts, attempt=key),
        "lease": store.lease(queue, count=1, lease_ms=1_000),
        "lease with an attempt key": store.lease(queue, count=1, lease_ms=1_000, attempt=key),
        "release": store.release(queue, [receipt]),
        "delete": store.delete(queue, [receipt]),
        "change_visibility": store.change_visibility(queue, [VisibilityChange(receipt, 0)]),
        "count_messages": store.count_messages(queue),
        "purge_queue": store.purge_queue(queue),
        "save_queue": store.save_queue(queue, attributes=QueueAttributes()),
        "delete_queue": store.delete_queue(queue),
        "start_move from it": store.start_move("from", queue, other, None),
        "start_move to it": store.start_move("to", other, queue, None),
        "list_moves": store.list_moves(queue, limit=10),
    }


async def verbs_that_act(store: Store, queue: Queue, other: Queue) -> list[str]:
    """Call every verb and name those that do not say that the queue is gone."""
    acted = []
    for verb, call in every_verb(store, queue, other).items():
        try:
            await call
        except QueueDoesNotExist:
            continue
        acted.append(verb)
    return acted


@on_both_kinds
async def test_every_verb_says_that_the_queue_is_gone(store: Store, name: str) -> None:
    queue, other = await make_queue(store, name), await make_queue(store, f"other-{name}")
    await send(store, queue, "a")
    await store.delete_queue(queue)
    assert await verbs_that_act(store, queue, other) == []
    assert await store.list_moves(other, limit=10) == []


@on_both_kinds
@with_limits(name_reuse_ms=0)
async def test_a_queue_made_again_under_the_name_is_another(store: Store, name: str) -> None:
    gone, other = await make_queue(store, name), await make_queue(store, f"other-{name}")
    await store.delete_queue(gone)
    queue = await make_queue(store, name, delay_s=7)
    await send(store, queue, "a")
    assert await verbs_that_act(store, gone, other) == []
    assert await store.find_queue(queue.name) == queue
    assert await counts(store, queue) == (1, 0, 0)
