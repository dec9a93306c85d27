"""Celery workers forward messages of moved tasks once, run those that have to stay, and get back what is moved back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import chain, group
from celery.contrib.testing.worker import start_worker
from kombu.exceptions import OperationalError

from penstock import Penstock, errors
from penstock.celery import AdoptedTask, move
from penstock.client.integrations.celery import forwarding
from penstock.client.tasks.testing import TaskTester
from tests.integrations.shops import celery_app, task, waiting

pytestmark = pytest.mark.slow

PATIENCE_S = 30.0


class Shop:
    """A Celery app with tasks that note who ran them, and a switch for each."""

    def __init__(self, app: Penstock, **settings: Any) -> None:
        self.celery = celery_app(result_backend="cache+memory://", **settings)
        self.app = app
        self.ran: list[tuple[str, Any]] = []
        self.moved: set[str] = set()
        self._changed = threading.Condition()

        @task(self.celery, "first", bind=True)
        def first(task: Any, value: object = None) -> object:
            return self.note(task, "first", value)

        @task(self.celery, "second", bind=True)
        def second(task: Any, value: object = None) -> object:
            return self.note(task, "second", value)

        @task(self.celery, "again", bind=True)
        def again(task: Any) -> object:
            if not task.request.retries:
                raise task.retry(countdown=0)
            return self.note(task, "again", task.request.retries)

        self.moves = move(self.celery, app, [first, again], active=lambda name: name in self.moved, canvas="celery")

    def __getattr__(self, name: str) -> Any:
        return self.celery.tasks[name]

    def note(self, task: Any, name: str, value: object) -> object:
        where = "penstock" if getattr(task.request, "penstock", None) else "celery"
        with self._changed:
            self.ran.append((f"{name} in {where}", value))
            self._changed.notify_all()
        return value

    def wait_for(self, count: int) -> list[tuple[str, Any]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.ran) >= count, PATIENCE_S), self.ran
        return self.ran


@pytest.fixture(scope="module")
def working() -> Iterator[tuple[Shop, TaskTester]]:
    """A shop with a Celery worker, which takes seconds to end, and the engine of its jobs."""
    app = Penstock("memory:")
    with app.testing() as engine:
        made = Shop(app)
        with start_worker(made.celery, pool="solo", perform_ping_check=False, shutdown_timeout=PATIENCE_S):
            yield made, engine


@pytest.fixture
def shop(working: tuple[Shop, TaskTester]) -> Shop:
    made, engine = working
    for job in engine.enqueued():
        made.app.sync.jobs.cancel(job.id)
    made.ran.clear()
    made.moved = set()
    return made


@pytest.fixture
def engine(working: tuple[Shop, TaskTester]) -> TaskTester:
    return working[1]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def sent(shop: Shop, name: str, *args: object, **options: Any) -> Any:
    """Send a call as a producer does that does not know of the move."""
    return shop.moves._send_to_celery(name, args, result_cls=shop.celery.AsyncResult, **options)  # noqa: SLF001 - Celery's


def test_a_message_of_a_moved_task_becomes_a_job_with_its_id(shop: Shop, engine: TaskTester) -> None:
    shop.moved = {"first"}
    old = sent(shop, "first", 1, headers={"shop-tenant": "t1"})
    other = sent(shop, "second", 2)
    later = sent(shop, "first", 3, countdown=3_600)
    assert shop.wait_for(1) == [("second in celery", 2)]
    until(lambda: len(engine.enqueued()) == 2)
    jobs = {job.id: job for job in engine.enqueued()}
    assert set(jobs) == {old.id, later.id}
    assert jobs[later.id].due_in > 3_000
    engine.run_all()
    assert shop.ran[1:] == [("first in penstock", 1)]
    assert old.get(timeout=5) == 1, "who waits for Celery's result backend gets the result"
    assert other.get(timeout=5) == 2
    assert waiting(shop.celery) == []


def test_a_message_that_is_delivered_twice_is_one_job(shop: Shop, engine: TaskTester) -> None:
    shop.moved = {"first"}
    first = sent(shop, "first", 1)
    sent(shop, "first", 1, task_id=first.id)
    sent(shop, "first", 1, task_id=first.id, retries=1)
    sent(shop, "second", "last")
    shop.wait_for(1)
    assert [job.id for job in engine.enqueued()] == [first.id]
    engine.run_all()
    assert shop.ran[1:] == [("first in penstock", 1)]


def test_what_celery_has_retried_has_fewer_attempts_left(shop: Shop, engine: TaskTester) -> None:
    shop.moved = {"again"}
    old = sent(shop, "again", retries=2)
    sent(shop, "second", "last")
    shop.wait_for(1)
    [job] = engine.enqueued()
    assert (job.id, job.view.retry.attempts_max) == (old.id, 2)
    engine.run_all()
    assert shop.ran[1:] == [("again in penstock", 2)]


def test_what_cannot_be_forwarded_is_run_by_celery(shop: Shop, engine: TaskTester) -> None:
    shop.moved = {"first", "again"}
    sent(shop, "first", "own id", task_id="order-17")
    sent(shop, "first", "linked", link=shop.second.s())
    group([shop.first.s("grouped")]).apply_async()
    ran = shop.wait_for(4)
    assert sorted(ran) == [
        ("first in celery", "grouped"),
        ("first in celery", "linked"),
        ("first in celery", "own id"),
        ("second in celery", "linked"),
    ]
    assert engine.enqueued() == []


def test_a_chain_that_was_sent_before_the_move_goes_to_its_end(shop: Shop, engine: TaskTester) -> None:
    shop.moved = {"first"}
    result = chain(shop.second.s(1), shop.first.s(), shop.second.s(), shop.first.s()).apply_async()
    shop.wait_for(3)
    until(engine.enqueued)
    assert [name for name, _ in shop.ran] == ["second in celery", "first in celery", "second in celery"]
    engine.run_all()
    assert shop.ran[3:] == [("first in penstock", 1)]
    assert result.get(timeout=5) == 1


def test_a_retry_of_what_runs_in_celery_stays_there_with_all_that_follows(shop: Shop, engine: TaskTester) -> None:
    shop.moved = {"again"}
    shop.again.apply_async(link=shop.second.s())
    assert shop.wait_for(2) == [("again in celery", 1), ("second in celery", 1)]
    assert engine.enqueued() == []


def test_a_message_stays_unacknowledged_until_its_job_is_durable(
    shop: Shop, engine: TaskTester, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forwarding, "WAIT_S", 0.05)
    caplog.set_level("WARNING", "penstock.celery")
    shop.moved = {"first"}
    old = sent(shop, "first", 1)
    away = threading.Event()
    enqueue_new = type(shop.app.sync.jobs).enqueue_new

    def refused(*args: Any, **options: Any) -> Any:
        if away.is_set():
            return enqueue_new(*args, **options)
        raise errors.ConnectionFailed("nobody answers")

    monkeypatch.setattr(type(shop.app.sync.jobs), "enqueue_new", refused)
    until(lambda: caplog.text.count("cannot be forwarded yet") >= 2)
    assert engine.enqueued() == []
    away.set()
    until(engine.enqueued)
    assert [job.id for job in engine.enqueued()] == [old.id]
    assert waiting(shop.celery) == []


def test_jobs_of_a_task_that_is_moved_back_run_in_celery(shop: Shop, engine: TaskTester) -> None:
    shop.moved = {"first"}
    results = [shop.first.delay(1), shop.first.apply_async((2,), countdown=60), sent(shop, "first", 3)]
    until(lambda: len(engine.enqueued()) == 3)
    shop.moved = set()
    engine.run_until_idle()
    assert sorted(shop.wait_for(3)) == [("first in celery", 1), ("first in celery", 2), ("first in celery", 3)]
    assert [result.get(timeout=5) for result in results] == [1, 2, 3]
    assert results[0].state == "SUCCESS"
    assert results[0].result == 1
    assert engine.enqueued() == []


def test_a_job_that_celery_does_not_take_back_waits(
    shop: Shop, engine: TaskTester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the broker is away, and however few attempts the task has."""
    shop.moved = {"first"}
    result = shop.first.apply_async((1,), headers={"shop-tenant": "t1"})
    shop.moved = set()

    def refused(*_: Any, **__: Any) -> Any:
        raise OperationalError("the broker is away")

    with monkeypatch.context() as patched:
        patched.setattr(shop.moves, "_send_to_celery", refused)
        for _ in range(20):
            engine.run_all()
            engine.clock.advance(seconds=5)
    [job] = engine.enqueued()
    assert job.view.failures == 0
    engine.run_until_idle()
    assert shop.wait_for(1) == [("first in celery", 1)]
    assert result.get(timeout=5) == 1


def test_a_switch_that_fails_loses_nothing(
    shop: Shop, engine: TaskTester, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forwarding, "WAIT_S", 0.05)
    caplog.set_level("WARNING", "penstock.celery")

    class Broken(set[str]):
        def __contains__(self, _: object) -> bool:
            raise OSError("the file with the switches is gone")

    shop.moved = Broken()
    with pytest.raises(OSError, match="switches"):
        shop.first.delay(0)
    sent(shop, "first", 1)
    until(lambda: "cannot be forwarded yet" in caplog.text)
    shop.moved = {"first"}
    until(engine.enqueued)
    shop.moved = Broken()
    engine.run_all()
    shop.moved = {"first"}
    engine.run_until_idle()
    assert shop.ran == [("first in penstock", 1)]


def test_processes_that_disagree_about_a_move_neither_lose_nor_pass_on_for_ever(
    shop: Shop, engine: TaskTester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery's worker has the task as moved; Penstock's has it as moved back."""
    shop.moved = {"first"}
    adopted = shop.moves.tasks["first"]
    assert isinstance(adopted, AdoptedTask)
    monkeypatch.setattr(adopted, "is_active", lambda _name: False)
    sent(shop, "first", 1)
    until(engine.enqueued)
    engine.run_until_idle()
    assert shop.wait_for(1) == [("first in celery", 1)]
    assert waiting(shop.celery) == []
    assert engine.enqueued() == []
