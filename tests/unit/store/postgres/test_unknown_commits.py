"""Commits whose answer is lost: the store finds out what happened, does it once, and answers as if nothing had been."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.message import Sent
from penstock.domain.queue import QueueAttributes
from penstock.store.port import Store
from penstock.store.postgres import attempts
from tests.support.postgres import PostgresServer
from tests.support.queues import (
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
    release,
    send,
)

KILL = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'penstock'
"""

FAIL_ONCE = """
CREATE SEQUENCE looked;
CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.looked') = 1 THEN RAISE 'this attempt fails'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fail_once BEFORE UPDATE ON penstock.lease_outcome FOR EACH ROW EXECUTE FUNCTION fail_once();
"""


@pytest.fixture
def lose(failpoints: Failpoints, postgres_server: PostgresServer, database: str) -> Callable[[str], None]:
    """End all sessions of the store between the next commit of a verb and its answer."""

    def lose(verb: str) -> None:
        def end_sessions() -> None:
            postgres_server.psql(KILL.format(database))
            raise ConnectionResetError("gone between the commit and the answer")

        failpoints.arm(f"{verb}.committed", end_sessions)

    return lose


Lose = Callable[[str], None]


@on_both_kinds
async def test_an_append_is_stored_once(store: Store, lose: Lose, name: str) -> None:
    queue = await make_queue(store, name)
    lose("append")
    sent = await send(store, queue, "a", "b")
    assert len({answer.message_id for answer in sent}) == 2
    messages = await lease(store, queue)
    assert [(message.message_id, message.sequence) for message in messages] == [
        (answer.message_id, answer.sequence) for answer in sent
    ]


@on_both_kinds
async def test_appends_that_shared_a_transaction_are_all_found_again(store: Store, lose: Lose, name: str) -> None:
    queue = await make_queue(store, name)
    lose("append")
    answers = await asyncio.gather(
        *(store.append(queue, [draft(str(number), group=str(number))]) for number in range(20))
    )
    assert len({answer[0].message_id for answer in answers if isinstance(answer[0], Sent)}) == 20
    assert await counts(store, queue) == (20, 0, 0)


@on_both_kinds
async def test_an_append_with_a_callers_key_is_stored_once(store: Store, lose: Lose, name: str) -> None:
    queue, key = await make_queue(store, name), attempt_key("send")
    lose("append")
    first = await store.append(queue, [draft("a", group="g")], attempt=key)
    assert await store.append(queue, [draft("a", group="g")], attempt=key) == first
    assert await lease_bodies(store, queue) == ["a"]


@on_both_kinds
async def test_a_lease_gives_what_it_took(store: Store, lose: Lose, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a", "b", "c")
    lose("lease")
    messages = await lease(store, queue, 2)
    assert bodies(messages) == ["a", "b"]
    assert [(message.receipt, message.receive_count) for message in messages] == [(1, 1), (1, 1)]
    assert await delete(store, queue, *messages) == [None, None]
    assert await lease_bodies(store, queue) == ["c"]


async def test_leases_that_are_found_again_one_by_one_after_an_error_give_what_they_took(
    store: Store, lose: Lose, postgres_server: PostgresServer, database: str
) -> None:
    queue = await make_queue(store)
    await send(store, queue, *(str(number) for number in range(10)))
    postgres_server.psql(FAIL_ONCE, database)
    lose("lease")
    answers = await asyncio.gather(*(lease(store, queue, 1) for _ in range(5)))
    assert len({body for answer in answers for body in bodies(answer)}) == 5
    assert await counts(store, queue) == (5, 5, 0)


async def test_leases_that_shared_a_transaction_share_it_out_as_before(store: Store, lose: Lose) -> None:
    queue = await make_queue(store)
    await send(store, queue, *(str(number) for number in range(20)))
    lose("lease")
    answers = await asyncio.gather(*(lease(store, queue, 2) for _ in range(10)))
    assert Counter(body for answer in answers for body in bodies(answer)) == Counter(map(str, range(20)))
    assert await counts(store, queue) == (0, 20, 0)


@on_both_kinds
async def test_a_delete_is_a_success(store: Store, lose: Lose, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    [message] = await lease(store, queue)
    lose("delete")
    assert await delete(store, queue, message) == [None]
    assert await counts(store, queue) == (0, 0, 0)


@on_both_kinds
@pytest.mark.parametrize("lease_ms", [0, 60_000])
async def test_a_change_of_visibility_is_a_success(store: Store, lose: Lose, name: str, lease_ms: int) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    [message] = await lease(store, queue)
    lose("change_visibility")
    assert await hide(store, queue, message, lease_ms=lease_ms) == [None]
    assert await counts(store, queue) == ((1, 0, 0) if lease_ms == 0 else (0, 1, 0))


@on_both_kinds
async def test_a_release_takes_back_one_delivery(store: Store, lose: Lose, name: str) -> None:
    queue = await make_queue(store, name)
    await send(store, queue, "a")
    lose("release")
    await release(store, queue, *await lease(store, queue))
    [again] = await lease(store, queue)
    assert again.receive_count == 1


async def test_a_save_is_a_success(store: Store, lose: Lose) -> None:
    queue = await make_queue(store)
    lose("save_queue")
    saved = await store.save_queue(queue, attributes=QueueAttributes(delay_s=1))
    assert saved is not None
    assert saved.revision == queue.revision + 1
    assert await store.find_queue(queue.name) == saved


async def test_a_purge_is_a_success_and_purges_once(store: Store, lose: Lose) -> None:
    queue = await make_queue(store)
    await send(store, queue, "a")
    lose("purge_queue")
    await store.purge_queue(queue)
    assert await counts(store, queue) == (0, 0, 0)


async def test_a_deletion_is_a_success(store: Store, lose: Lose) -> None:
    queue = await make_queue(store)
    lose("delete_queue")
    await store.delete_queue(queue)
    assert await store.list_queues(queue.name.region, queue.name.account, limit=10) == []


async def test_a_creation_says_that_it_created(store: Store, lose: Lose) -> None:
    lose("create_queue")
    queue, created = await store.create_queue(queue_name("orders"), QueueAttributes(), {})
    assert created
    assert await store.find_queue(queue.name) == queue


async def test_another_error_goes_to_the_caller_it_is_for(store: Store, failpoints: Failpoints) -> None:
    queue = await make_queue(store)

    def fail() -> None:
        raise ZeroDivisionError

    failpoints.arm("append.committed", fail)
    answers = await asyncio.gather(
        *(store.append(queue, [draft(str(number))]) for number in range(5)), return_exceptions=True
    )
    assert sum(isinstance(answer, ZeroDivisionError) for answer in answers) == 1
    assert await counts(store, queue) == (5, 0, 0)


@on_both_kinds
async def test_sessions_ended_at_any_moment_cost_nothing(
    store: Store, postgres_server: PostgresServer, database: str, name: str
) -> None:
    """Whatever was under way when a session ended was done once: nothing is lost, and nothing doubled."""
    queue = await make_queue(store, name)
    texts = [str(number) for number in range(300)]
    received: Counter[str] = Counter()
    steps = itertools.count(1)

    async def step() -> None:
        if next(steps) % 40 == 0:
            await asyncio.to_thread(postgres_server.psql, KILL.format(database))

    async def produce(mine: list[str]) -> None:
        for text in mine:
            await store.append(queue, [draft(text, group=str(int(text) % 20))])
            await step()

    async def consume() -> None:
        while received.total() < len(texts):
            messages = await lease(store, queue, 3, lease_ms=600_000)
            received.update(bodies(messages))
            assert await delete(store, queue, *messages) == [None] * len(messages)
            if messages:
                await step()

    async with asyncio.timeout(50):
        await asyncio.gather(*(produce(texts[first::10]) for first in range(10)), *(consume() for _ in range(5)))
    assert received == Counter(texts)
    assert await counts(store, queue) == (0, 0, 0)


@on_both_kinds
async def test_a_killed_server_that_comes_back_has_everything_once(
    store: Store, postgres_server: PostgresServer, name: str
) -> None:
    queue = await make_queue(store, name)
    stored: set[str] = set()

    async def produce(first: int) -> None:
        for number in range(first, 200, 10):
            [answer] = await store.append(queue, [draft(str(number), group=str(number))])
            assert isinstance(answer, Sent)
            stored.add(answer.message_id)
            if len(stored) == 50:
                postgres_server.kill()
                postgres_server.start()

    async with asyncio.timeout(50):
        await asyncio.gather(*(produce(first) for first in range(10)))
    messages = await lease(store, queue, 300)
    assert sorted(bodies(messages)) == sorted(map(str, range(200)))
    assert {message.message_id for message in messages} == stored


async def test_a_database_that_stays_away_is_unavailable_in_the_end(
    store: Store, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_queue(store)
    monkeypatch.setattr(attempts, "ATTEMPTS_TOTAL_S", 0.2)
    postgres_server.stop()
    try:
        with pytest.raises(StoreUnavailable):
            await store.ping()
        for call in (store.append(queue, [draft("a")]), store.count_messages(queue), store.purge_queue(queue)):
            with pytest.raises(StoreUnavailable):
                await call
    finally:
        postgres_server.start()
    monkeypatch.undo()
    await store.ping()
    await send(store, queue, "b")
    assert await lease_bodies(store, queue) == ["b"]
