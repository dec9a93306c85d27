"""No double send: a send whose answer was lost is tried again, and is the first one again, whatever was done between.

Every interleaving has a twin in which the outcome is forgotten in between (its window is a millisecond long, and
passes): there the same scene must fail, so these tests notice when a store does not look the outcome up. To see it with
the look-ups of the stores themselves switched off, upon which every retry here and in test_no_lost_receive.py fails,
but for that of a purged queue's receive, which has nothing to give either way:

- SQLite: let `Outcomes.find` (store/sqlite/outcomes.py) return None.
- PostgreSQL: end the last migration with triggers that forget what is kept:
  CREATE FUNCTION penstock.forget() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      EXECUTE format('DELETE FROM penstock.%I WHERE key = $1', TG_TABLE_NAME) USING NEW.key; RETURN NULL; END $$;
  CREATE TRIGGER forget AFTER INSERT ON penstock.append_outcome FOR EACH ROW EXECUTE FUNCTION penstock.forget();
  CREATE TRIGGER forget AFTER INSERT ON penstock.lease_outcome FOR EACH ROW EXECUTE FUNCTION penstock.forget();
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from penstock.domain.errors import QueueDoesNotExist, StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.limits import HOUR_MS
from penstock.domain.message import Draft, Refused, SendResult, Sent
from penstock.domain.queue import Queue
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.interleaving import Interleaving, Scene, lose_the_answer, with_each
from tests.support.queues import (
    attempt_key,
    change_queue,
    counts,
    delete,
    draft,
    hide,
    lease,
    make_queue,
    on_both_kinds,
    with_limits,
)
from tests.support.stores import Home, on_postgres

KEY = attempt_key("send")
REFUSED = Refused("MessageTooLong", "Message must be shorter than 1024 bytes.")


@asynccontextmanager
async def nothing(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    yield
    assert await counts(store, queue) == (2, 0, 0)


@asynccontextmanager
async def receive(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    leased = await lease(store, queue)
    assert len(leased) == 2
    yield
    assert await counts(store, queue) == (0, 2, 0)
    assert await delete(store, queue, *leased) == [None, None]
    assert await counts(store, queue) == (0, 0, 0)


@asynccontextmanager
async def delete_messages(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    assert await delete(store, queue, *await lease(store, queue)) == [None, None]
    yield
    assert await counts(store, queue) == (0, 0, 0)
    await clock.advance(ms=HOUR_MS)
    assert await lease(store, queue) == []


@asynccontextmanager
async def hide_longer(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    leased = await lease(store, queue)
    assert await hide(store, queue, *leased, lease_ms=600_000) == [None, None]
    yield
    await clock.advance(ms=599_999)
    assert await counts(store, queue) == (0, 2, 0)
    await clock.advance(ms=1)
    assert await counts(store, queue) == (2, 0, 0)


@asynccontextmanager
async def reveal(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    leased = await lease(store, queue)
    assert await hide(store, queue, *leased, lease_ms=0) == [None, None]
    yield
    assert await counts(store, queue) == (2, 0, 0)
    assert [message.receive_count for message in await lease(store, queue)] == [2, 2]


@asynccontextmanager
async def purge(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    await store.purge_queue(queue)
    yield
    assert await counts(store, queue) == (0, 0, 0)
    assert await lease(store, queue) == []


@asynccontextmanager
async def delete_queue(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    await store.delete_queue(queue)
    yield
    with pytest.raises(QueueDoesNotExist):
        await counts(store, queue)
    await clock.advance(ms=HOUR_MS)
    again = await make_queue(store, queue.name.name)
    assert await counts(store, again) == (0, 0, 0)


@asynccontextmanager
async def set_attributes(store: Store, queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    changed = await change_queue(store, queue, maximum_message_bytes=1_024, visibility_timeout_s=0, delay_s=900)
    yield
    assert await store.find_queue(queue.name) == changed
    assert await counts(store, changed) == (2, 0, 0)


INTERLEAVINGS: list[Interleaving] = [
    nothing,
    receive,
    delete_messages,
    hide_longer,
    reveal,
    purge,
    delete_queue,
    set_attributes,
]
each_interleaving = with_each(INTERLEAVINGS)


def first_batch(*, deduplicated: bool = True) -> list[Draft | Refused]:
    first, second = ("a", "c") if deduplicated else (None, None)
    return [
        draft("a", group="g", deduplication_id=first),
        REFUSED,
        draft("c", group="g", deduplication_id=second),
    ]


def same_batch_anew(batch: Sequence[Draft | Refused], interleaving: Interleaving) -> list[Draft | Refused]:
    """Make the batch of the retry: validated again, and not to the same end.

    Its messages have new ids. What was refused is accepted now; or nothing is, where the queue's limits became tighter.
    """
    if interleaving is set_attributes:
        return [REFUSED for _ in batch]
    return [draft(f"retry-{number}", group="g") for number, _ in enumerate(batch)]


def check_first_answer(answer: Sequence[SendResult], batch: Sequence[Draft | Refused], queue: Queue) -> None:
    """Check that an answer is the one that `batch` was given, of which nobody has seen the sequence numbers."""
    for entry, result in zip(batch, answer, strict=True):
        if isinstance(entry, Refused):
            assert result == entry
        else:
            assert isinstance(result, Sent)
            assert result.message_id == entry.message_id
            assert (result.sequence is not None) == queue.fifo


# -- the caller tries again -----------------------------------------------------------------------


async def send_twice(scene: Scene, name: str, interleaving: Interleaving, *, pause_ms: int = 0) -> None:
    """Send, lose the answer, do something else, and send again with the same key."""
    store = scene.store
    queue = await make_queue(store, name)
    batch = first_batch()
    lose_the_answer(scene.failpoints, "append.committed")
    with pytest.raises(StoreUnavailable):
        await store.append(queue, batch, attempt=KEY)
    async with interleaving(store, queue, scene.clock):
        await scene.clock.advance(ms=pause_ms)
        kept = await store.outcome(KEY)
        answer = await store.append(queue, same_batch_anew(batch, interleaving), attempt=KEY)
        check_first_answer(answer, batch, queue)
        assert answer == kept


@on_both_kinds
@each_interleaving
async def test_a_retried_send_is_the_first_one_again(scene: Scene, name: str, interleaving: Interleaving) -> None:
    await send_twice(scene, name, interleaving)


@on_both_kinds
@each_interleaving
@with_limits(outcome_window_ms=1)
async def test_it_is_noticed_when_the_outcome_of_a_send_is_forgotten(
    scene: Scene, name: str, interleaving: Interleaving
) -> None:
    with pytest.raises((AssertionError, QueueDoesNotExist)):
        await send_twice(scene, name, interleaving, pause_ms=1)


# -- the store tries again ------------------------------------------------------------------------


@pytest.fixture
async def other(home: Home, store: Store) -> Store:
    """Another node, which never loses anything."""
    return await home.open(failpoints=Failpoints())


async def send_over_a_broken_connection(
    scene: Scene, other: Store, name: str, interleaving: Interleaving, *, pause_ms: int = 0
) -> None:
    """Send, and lose the connection after the commit, while another node does something else."""
    queue = await make_queue(scene.store, name)
    # Only the outcome is to protect these: deduplication ids would too, on FIFO.
    batch = first_batch(deduplicated=False)
    async with AsyncExitStack() as between:

        async def interfere() -> None:
            await between.enter_async_context(interleaving(other, queue, scene.clock))
            await scene.clock.advance(ms=pause_ms)
            raise ConnectionError("the connection was lost")

        scene.failpoints.arm("append.committed", interfere)
        answer = await scene.store.append(queue, batch, attempt=KEY)
        assert not scene.failpoints.armed("append.committed")
        check_first_answer(answer, batch, queue)


@on_postgres
@on_both_kinds
@each_interleaving
async def test_a_lost_connection_is_resolved_to_the_first_answer(
    scene: Scene, other: Store, name: str, interleaving: Interleaving
) -> None:
    await send_over_a_broken_connection(scene, other, name, interleaving)


@on_postgres
@on_both_kinds
@each_interleaving
@with_limits(outcome_window_ms=1)
async def test_it_is_noticed_when_the_outcome_is_forgotten_while_the_connection_is_lost(
    scene: Scene, other: Store, name: str, interleaving: Interleaving
) -> None:
    with pytest.raises((AssertionError, QueueDoesNotExist)):
        await send_over_a_broken_connection(scene, other, name, interleaving, pause_ms=1)


@on_postgres
@on_both_kinds
@pytest.mark.parametrize("attempt", [KEY, None], ids=["key", "no-key"])
async def test_a_lost_connection_is_resolved_with_and_without_a_key_of_the_callers(
    store: Store, failpoints: Failpoints, name: str, attempt: bytes | None
) -> None:
    queue = await make_queue(store, name)
    batch = first_batch(deduplicated=False)
    lose_the_answer(failpoints, "append.committed", OSError)
    check_first_answer(await store.append(queue, batch, attempt=attempt), batch, queue)
    assert await counts(store, queue) == (2, 0, 0)
