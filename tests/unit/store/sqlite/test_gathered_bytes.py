"""How much of what waits is gathered into one transaction."""

from __future__ import annotations

import asyncio

from penstock.store.sqlite import commits
from tests.support.queues import counts, draft, make_queue
from tests.unit.store.sqlite.conftest import OpenStore

MEBIBYTE = 1_048_576


async def test_large_bodies_are_stored_a_few_at_a_time(open_store: OpenStore) -> None:
    store = await open_store()
    queue = await make_queue(store)
    heard: list[int] = []
    store.listen(lambda _queue_id, count: heard.append(count))
    await asyncio.gather(*(store.append(queue, [draft("x" * MEBIBYTE)]) for _ in range(20)))
    assert heard == [8, 8, 4], "the listener hears once of each commit"
    assert await counts(store, queue) == (20, 0, 0)


async def test_a_body_larger_than_the_bound_is_stored_alone(open_store: OpenStore) -> None:
    store = await open_store()
    queue = await make_queue(store)
    heard: list[int] = []
    store.listen(lambda _queue_id, count: heard.append(count))
    large = "x" * (commits.BYTES_PER_TRANSACTION_MAX + 1)
    await asyncio.gather(*(store.append(queue, [draft(large)]) for _ in range(2)))
    assert heard == [1, 1]


async def test_small_calls_share_a_transaction_up_to_their_bound(open_store: OpenStore) -> None:
    store = await open_store()
    queue = await make_queue(store)
    heard: list[int] = []
    store.listen(lambda _queue_id, count: heard.append(count))
    await asyncio.gather(*(store.append(queue, [draft("x")]) for _ in range(commits.CALLS_PER_TRANSACTION_MAX + 5)))
    assert heard == [commits.CALLS_PER_TRANSACTION_MAX, 5]
