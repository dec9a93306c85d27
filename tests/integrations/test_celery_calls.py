"""Callers of moved Celery tasks stay as they are: what they get, and what is refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError
from celery.exceptions import TimeoutError as CeleryTimeout

from penstock import Penstock, errors
from penstock.celery import CeleryUnsupported, MovedResult, Moves, move
from penstock.client.tasks.testing import TaskTester
from tests.integrations.shops import celery_app, task, waiting

ID = "0199d1a0-3f3c-4a53-9a53-1f6f7d8f2a11"


@pytest.fixture
def shop() -> Any:
    made = celery_app()

    @task(made, "add")
    def add(left: int, right: int = 1) -> int:
        return left + right

    @task(made, "other")
    def other(value: object = None) -> None: ...

    return made


@pytest.fixture
def moves(shop: Any, app: Penstock) -> Moves:
    return move(shop, app, ["add"])


@pytest.fixture
def add(shop: Any, moves: Moves) -> Any:
    return shop.tasks["add"]


def test_delay_enqueues_a_job_and_returns_its_result(add: Any, moves: Moves, engine: TaskTester) -> None:
    result = add.delay(2, right=3)
    assert isinstance(result, MovedResult)
    assert (result.state, result.ready(), result.successful()) == ("PENDING", False, False)
    engine.run_all()
    assert result.get(timeout=5) == result.result == 5
    assert (result.state, result.ready(), result.successful(), result.failed()) == ("SUCCESS", True, True, False)
    assert moves.result("add", result.id).get(timeout=5) == 5
    assert waiting(add.app) == []


def test_a_call_by_name_or_by_a_signature_is_moved_too(add: Any, engine: TaskTester) -> None:
    made = [add.app.send_task("add", (1, 2)), add.s(1).delay(2), add.signature((1,), {"right": 2}).apply_async()]
    engine.run_all()
    assert [one.get(timeout=5) for one in made] == [3, 3, 3]


def test_a_task_that_is_not_moved_is_sent_to_celery(add: Any, engine: TaskTester) -> None:
    add.app.tasks["other"].delay()
    assert [headers["task"] for headers in waiting(add.app)] == ["other"]
    assert engine.enqueued() == []


def test_options_of_a_call_become_those_of_the_job(add: Any, moves: Moves, engine: TaskTester) -> None:
    add.apply_async((1,), countdown=60, queue="fast", priority=7, expires=3_600, task_id=ID, time_limit=20)
    [job] = engine.enqueued()
    assert (job.id, job.queue, job.due_in, job.view.priority, job.view.timeout_ms) == (ID, "fast", 60, 7, 20_000)
    assert job.view.expires_at_ms is not None
    engine.clock.advance(hours=2)
    assert moves.result("add", ID).state == "REVOKED"
    with pytest.raises(TaskRevokedError):
        moves.result("add", ID).get(timeout=5)


def test_an_eta_with_and_without_a_zone_is_an_instant(add: Any, engine: TaskTester) -> None:
    now = add.app.now()
    add.apply_async((1,), eta=now + timedelta(hours=1))
    add.apply_async((2,), eta=(now + timedelta(hours=1)).replace(tzinfo=None))
    add.apply_async((3,), eta=(now + timedelta(hours=1)).isoformat())
    dues = [job.view.due_at_ms for job in engine.enqueued()]
    assert len(dues) == 3
    assert len(set(dues)) == 1


def test_redis_counts_priorities_from_the_other_end(app: Penstock, engine: TaskTester) -> None:
    shop = celery_app(broker_write_url="redis://nowhere")

    @task(shop, "add")
    def add() -> None: ...

    move(shop, app, ["add"])
    shop.tasks["add"].apply_async(priority=0)
    assert [job.view.priority for job in engine.enqueued()] == [9]


def test_the_same_uuid_twice_is_one_job(add: Any, engine: TaskTester) -> None:
    first, second = add.apply_async((1,), task_id=ID), add.apply_async((1,), task_id=ID)
    assert first.id == second.id == ID
    assert len(engine.enqueued()) == 1


def test_a_task_id_of_ones_own_is_kept_and_not_taken_twice(add: Any, moves: Moves, engine: TaskTester) -> None:
    result = add.apply_async((1,), task_id="order-17")
    engine.run_all()
    assert (result.id, moves.result("add", "order-17").get(timeout=5)) == ("order-17", 2)
    with pytest.raises(CeleryUnsupported, match="There is a job for task_id='order-17' already"):
        add.apply_async((1,), task_id="order-17")


def test_celerys_json_arrives_as_what_it_was(app: Penstock, engine: TaskTester) -> None:
    shop = celery_app()
    seen: list[Any] = []

    @task(shop, "keep")
    def keep(*, value: Any) -> Any:
        seen.append(value)
        return value

    move(shop, app, ["keep"])
    values = [datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.10"), UUID(ID), b"\xff", {"deep": [Decimal(1)]}, None, "ü"]
    results = [shop.tasks["keep"].delay(value=value) for value in values]
    engine.run_all()
    assert seen == values
    assert [result.get(timeout=5) for result in results] == values


def test_a_call_on_an_event_loop_blocks_as_celerys_does(add: Any, engine: TaskTester) -> None:
    async def call() -> Any:
        return add.delay(1, 2)

    result = asyncio.run(call())
    engine.run_all()
    assert result.get(timeout=5) == 3


def test_a_result_that_is_not_there_in_time_is_celerys_timeout(add: Any, engine: TaskTester) -> None:
    with pytest.raises(CeleryTimeout):
        add.delay(1).get(timeout=0)


def test_an_unknown_id_is_not_pending_forever(add: Any, moves: Moves, engine: TaskTester) -> None:
    with pytest.raises(errors.JobNotFound):
        moves.result("add", ID).state  # noqa: B018 - a property that asks the server
    with pytest.raises(errors.TaskNotFound, match="'other' is not moved"):
        moves.result("other", ID)


def test_revoke_cancels_the_job(add: Any, engine: TaskTester) -> None:
    result = add.delay(1)
    result.revoke()
    assert (result.state, engine.enqueued()) == ("REVOKED", [])
    with pytest.raises(CeleryUnsupported, match="retention"):
        result.forget()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"routing_key": "a.b"}, "routing_key"),
        ({"exchange": "topic"}, "exchange"),
        ({"reply_to": "me"}, "reply_to"),
        ({"argsrepr": "(<secret>,)"}, "argsrepr"),
        ({"soft_time_limit": 3}, "soft_time_limit"),
        ({"serializer": "pickle"}, "serializer 'pickle'"),
        ({"priority": 11}, "priority"),
        ({"countdown": "soon"}, "countdown"),
        ({"eta": "soon"}, "ISO 8601"),
        ({"task_id": 17}, "task_id"),
        ({"link_error": {"task": "other"}}, r"call\(…\)\.then"),
    ],
)
def test_what_has_no_counterpart_is_refused(add: Any, engine: TaskTester, options: dict[str, Any], named: str) -> None:
    with pytest.raises(CeleryUnsupported, match=named):
        add.apply_async((1,), **options)
    assert engine.enqueued() == []
    assert waiting(add.app) == []


def test_arguments_that_only_pickle_can_hold_are_refused(add: Any, engine: TaskTester) -> None:
    with pytest.raises(errors.ArgumentsInvalid, match="Argument left of task add cannot be sent as JSON"):
        add.delay(object())
    with pytest.raises(errors.ArgumentsInvalid, match="cannot be sent as JSON"):
        add.delay(float("nan"))
    with pytest.raises(errors.ArgumentsInvalid, match="Wrong arguments"):
        add.app.send_task("add", (1, 2, 3))
    assert engine.enqueued() == []


@pytest.mark.parametrize(
    "canvas",
    [
        lambda add, other: group([other.s(), add.s(1)]),
        lambda add, other: chain(other.s(), add.s()),
        lambda add, other: chain(add.s(1), other.s()),
        lambda add, other: chord([other.s(), add.s(1)], other.s()),
        lambda add, other: chord([other.s()], add.s()),
        lambda add, other: group([other.s(), chain(other.s(), group([add.s(1)]))]),
        lambda add, other: other.s() | add.s(),
    ],
    ids=["group", "last of a chain", "first of a chain", "chord", "body of a chord", "nested", "pipe"],
)
def test_a_canvas_with_a_moved_task_is_refused_before_any_of_it_is_sent(
    add: Any, engine: TaskTester, canvas: Any
) -> None:
    with pytest.raises(CeleryUnsupported, match=r"Task add is moved.*fan_out.*Nothing was sent"):
        canvas(add, add.app.tasks["other"]).apply_async()
    assert engine.enqueued() == []
    assert waiting(add.app) == []


def test_a_canvas_of_other_tasks_is_left_alone(add: Any) -> None:
    group([add.app.tasks["other"].s(), add.app.tasks["other"].s()]).apply_async()
    assert len(waiting(add.app)) == 2


def test_a_canvas_can_be_left_to_celery(shop: Any, app: Penstock, engine: TaskTester) -> None:
    move(shop, app, ["add"], canvas="celery")
    group([shop.tasks["add"].s(1), shop.tasks["add"].s(2)]).apply_async()
    shop.tasks["add"].apply_async((3,), link=shop.tasks["other"].s())
    assert [headers["task"] for headers in waiting(shop)] == ["add", "add", "add"]
    assert engine.enqueued() == []


def test_a_switch_decides_at_every_call(shop: Any, app: Penstock, engine: TaskTester) -> None:
    moved = {"add"}
    move(shop, app, ["add"], active=lambda name: name in moved)
    shop.tasks["add"].delay(1)
    moved.clear()
    result = shop.tasks["add"].delay(2)
    assert not isinstance(result, MovedResult)
    assert len(engine.enqueued()) == len(waiting(shop)) == 1


def test_a_task_that_penstock_has_already_is_used_as_it_is(shop: Any, app: Penstock, engine: TaskTester) -> None:
    @app.task(name="add", queue="typed")
    def rewritten(left: int, right: int = 10) -> int:
        return left + right

    move(shop, app, ["add"])
    result = shop.tasks["add"].apply_async((1,), task_id="order-1")
    with pytest.raises(errors.ArgumentsInvalid, match="Expected `int`"):
        shop.tasks["add"].delay("1")
    with pytest.raises(CeleryUnsupported, match="headers"):
        shop.tasks["add"].apply_async((1,), headers={"x": "y"})
    engine.run_all()
    assert result.get(timeout=5) == 11


def test_unknown_tasks_and_apps_are_refused_and_nothing_is_moved(shop: Any, app: Penstock) -> None:
    with pytest.raises(errors.TaskNotFound, match=r"no task 'nobody'.*Known are: add, other"):
        move(shop, app, ["add", "nobody"])
    with pytest.raises(errors.TaskInvalid, match="list of Celery tasks"):
        move(shop, app, "add")
    with pytest.raises(errors.TaskInvalid, match="neither"):
        move(shop, app, [17])
    with pytest.raises(errors.TaskInvalid, match="takes a Celery app"):
        move(app, app, ["add"])
    with pytest.raises(ValueError, match="canvas"):
        move(shop, app, ["add"], canvas="maybe")  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(errors.TaskInvalid, match="active"):
        move(shop, app, ["add"], active=True)  # type: ignore[arg-type] # wrong on purpose
    assert app.tasks == {}
    move(shop, app, ["add"])
    with pytest.raises(errors.TaskExists, match="moved already"):
        move(shop, app, ["add"])


def test_of_several_tasks_all_are_moved_or_none(shop: Any, app: Penstock) -> None:
    @task(shop, "pickled", serializer="pickle")
    def pickled() -> None: ...

    with pytest.raises(CeleryUnsupported, match="serializer 'pickle'"):
        move(shop, app, ["add", "pickled"])
    assert app.tasks == {}
    shop.tasks["add"].delay(1)
    assert len(waiting(shop)) == 1
    move(shop, app, ["add"])
