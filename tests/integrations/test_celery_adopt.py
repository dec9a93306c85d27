"""Functions of Celery tasks run in Penstock workers unchanged, by Celery's own rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import Task, current_task, signals
from celery.exceptions import Ignore, Reject
from celery.exceptions import Retry as CeleryRetry

from penstock import Penstock, Retry, errors
from penstock.celery import CeleryUnsupported, adopt
from penstock.client.tasks.testing import TaskTester
from tests.integrations.shops import celery_app, task


def test_a_bound_task_sees_its_request_and_retries_itself(app: Penstock, engine: TaskTester) -> None:
    shop = celery_app()
    seen = []

    @task(shop, "flaky", bind=True, max_retries=2, default_retry_delay=50)
    def flaky(self: Any, number: int) -> int:
        seen.append((self.request.id, self.request.retries, self.request.called_directly, current_task.name))
        if self.request.retries < 2:
            raise self.retry(countdown=30 if self.request.retries else None, exc=ConnectionError("away"))
        return number

    job = adopt(flaky, app).enqueue_sync(7)
    engine.run_all(raise_errors=False)
    assert engine.enqueued()[0].due_in == 50
    engine.clock.advance(seconds=50)
    engine.run_all(raise_errors=False)
    assert engine.enqueued()[0].due_in == 30
    engine.clock.advance(seconds=30)
    engine.run_all()
    assert job.result_sync() == 7
    assert seen == [(job.id, retries, False, "flaky") for retries in (0, 1, 2)]


@pytest.mark.parametrize(("exc", "kind"), [(ConnectionError("away"), "ConnectionError"), (None, "MaxRetriesExceeded")])
def test_retries_that_are_used_up_end_the_job(
    app: Penstock, engine: TaskTester, exc: Exception | None, kind: str
) -> None:
    shop = celery_app()

    @task(shop, "flaky", bind=True, max_retries=1)
    def flaky(self: Any) -> None:
        self.retry(countdown=0, exc=exc)

    job = adopt(flaky, app).enqueue_sync()
    engine.run_until_idle(raise_errors=False)
    with pytest.raises(errors.JobDead, match=kind):
        job.result_sync()
    assert job.view_sync().failures == 2


def test_autoretry_waits_as_celery_does_and_other_errors_are_final(app: Penstock, engine: TaskTester) -> None:
    shop = celery_app()
    raised: list[Exception] = [ConnectionError("1"), ConnectionError("2"), ValueError("3")]

    @task(shop, "auto", autoretry_for=(ConnectionError,), retry_backoff=4, retry_jitter=False, max_retries=5)
    def auto() -> None:
        raise raised.pop(0)

    job = adopt(auto, app).enqueue_sync()
    waits = []
    while engine.enqueued():
        engine.run_all(raise_errors=False)
        waits += [one.due_in for one in engine.enqueued()]
        engine.clock.advance(seconds=10)
    assert waits == [4, 8]
    with pytest.raises(errors.JobDead, match="ValueError: 3"):
        job.result_sync()


def test_a_retry_that_is_not_thrown_still_happens(app: Penstock, engine: TaskTester) -> None:
    shop = celery_app()

    @task(shop, "twice", bind=True)
    def twice(self: Any) -> int:
        if not self.request.retries:
            assert isinstance(self.retry(countdown=5, throw=False), CeleryRetry)
        return int(self.request.retries)

    job = adopt(twice, app).enqueue_sync()
    engine.run_until_idle(raise_errors=False)
    assert job.result_sync() == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"args": (2,)}, "other arguments"),
        ({"kwargs": {"number": 2}}, "other arguments"),
        ({"queue": "slow"}, "with queue"),
        ({"max_retries": 9}, r"Retry\(attempts=10\)"),
    ],
)
def test_a_retry_that_cannot_be_had_is_a_clear_failure(
    app: Penstock, engine: TaskTester, options: dict[str, Any], named: str
) -> None:
    shop = celery_app()

    @task(shop, "other", bind=True)
    def other(self: Any, number: int) -> None:
        raise self.retry(**options)

    job = adopt(other, app).enqueue_sync(1)
    engine.run_all(raise_errors=False)
    with pytest.raises(errors.JobDead, match=named):
        job.result_sync()


def test_ignore_and_reject_end_the_job_or_try_again(app: Penstock, engine: TaskTester) -> None:
    shop = celery_app()
    verdicts: list[Exception] = [Reject("later", requeue=True), Ignore()]

    @task(shop, "picky")
    def picky() -> None:
        raise verdicts.pop(0)

    job = adopt(picky, app).enqueue_sync()
    engine.run_until_idle()
    assert verdicts == []
    with pytest.raises(errors.JobCancelled):
        job.result_sync()


class Noting(Task):  # type: ignore[misc] # Celery has no types.
    """A task that notes which of its handlers are called."""

    abstract = True
    called: list[str]

    def before_start(self, *_: object) -> None:
        self.called.append("before_start")

    def on_success(self, *_: object) -> None:
        self.called.append("on_success")

    def on_failure(self, error: Exception, *_: object) -> None:
        self.called.append(f"on_failure {error}")

    def on_retry(self, error: Exception, *_: object) -> None:
        self.called.append(f"on_retry {error}")

    def after_return(self, status: str, *_: object) -> None:
        self.called.append(f"after_return {status}")


def test_handlers_and_signals_are_called(app: Penstock, engine: TaskTester) -> None:
    called: list[str] = []

    @task(celery_app(), "noted", base=Noting, bind=True)
    def noted(self: Any, error: str) -> None:
        if error == "again":
            self.retry(exc=OSError("again"), countdown=9)
        if error:
            raise ValueError(error)

    def prerun(**_: object) -> None:
        called.append("prerun")

    noted.called = called
    signals.task_prerun.connect(prerun, sender=noted)
    adopted = adopt(noted, app)
    for error in ("", "bad", "again"):
        adopted.enqueue_sync(error)
    engine.run_all(raise_errors=False)
    assert called == [
        *("prerun", "before_start", "on_success", "after_return SUCCESS"),
        *("prerun", "before_start", "on_failure bad", "after_return FAILURE"),
        *("prerun", "before_start", "on_retry again"),
    ]


def test_celerys_result_backend_has_the_result_too(app: Penstock, engine: TaskTester) -> None:
    shop = celery_app(result_backend="cache+memory://")

    @task(shop, "half")
    def half(number: int) -> float:
        return 1 / number

    adopted = adopt(half, app)
    good, bad = adopted.enqueue_sync(2), adopted.enqueue_sync(0)
    engine.run_all(raise_errors=False)
    assert shop.AsyncResult(good.id).get(timeout=5) == 0.5
    with pytest.raises(ZeroDivisionError):
        shop.AsyncResult(bad.id).get(timeout=5)


def test_a_result_backend_that_fails_does_not_fail_the_job(
    app: Penstock, engine: TaskTester, caplog: pytest.LogCaptureFixture
) -> None:
    shop = celery_app(result_backend="tests.integrations.shops:BrokenBackend")

    @task(shop, "one")
    def one() -> int:
        return 1

    job = adopt(one, app).enqueue_sync()
    engine.run_all()
    assert job.result_sync() == 1
    assert "result backend did not take the state SUCCESS" in caplog.text


def test_what_a_task_was_declared_with_becomes_options(app: Penstock) -> None:
    shop = celery_app(task_routes={"mail": {"queue": "post", "priority": 8}})

    @task(shop, "mail", time_limit=30, rate_limit="120/m", max_retries=4, expires=60)
    def mail() -> None: ...

    fields = adopt(mail, app).fields
    assert (fields["queue"], fields["timeout_ms"], fields["priority"]) == ("post", 30_000, 8)
    assert (fields["start_rate"], fields["expires_in_ms"]) == ({"key": "mail", "per_second": 2.0}, 60_000)
    assert fields["retry"]["attempts_max"] == 5
    assert adopt_again(mail, queue="other", retry=Retry(attempts=2)).fields["queue"] == "other"


def adopt_again(celery_task: Any, **options: Any) -> Any:
    return adopt(celery_task, Penstock("memory:"), **options)


def bad_serializer(shop: Any) -> Any:
    @task(shop, "bad", serializer="pickle")
    def bad() -> None: ...

    return bad


def bad_limits(shop: Any) -> Any:
    @task(shop, "bad", soft_time_limit=5)
    def bad() -> None: ...

    return bad


def bad_parameters(shop: Any) -> Any:
    @task(shop, "bad")
    def bad(*numbers: int) -> None: ...

    return bad


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (bad_serializer, CeleryUnsupported, 'task_serializer="json"'),
        (bad_limits, CeleryUnsupported, 'run_in="process"'),
        (bad_parameters, errors.TaskInvalid, r"\*numbers"),
        (lambda _: print, errors.TaskInvalid, "takes a Celery task"),
    ],
)
def test_a_task_that_cannot_be_adopted_says_why(
    app: Penstock, make: Callable[[Any], Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        adopt(make(celery_app()), app)
    assert app.tasks == {}


def test_an_app_that_pickles_is_refused(app: Penstock) -> None:
    shop = celery_app(task_serializer="pickle", accept_content=["pickle"])

    @task(shop, "any")
    def anything(value: object) -> None: ...

    with pytest.raises(CeleryUnsupported, match="serializer 'pickle'"):
        adopt(anything, app)


def test_a_payload_that_does_not_fit_is_a_final_failure(app: Penstock, engine: TaskTester) -> None:
    shop = celery_app()

    @task(shop, "one")
    def one(number: int) -> int:
        return number

    adopt(one, app)
    for payload in ({"numbr": 1}, {}, [1]):
        made = app.sync.jobs.enqueue("celery", "one", payload)
        engine.run_all(raise_errors=False)
        with pytest.raises(errors.JobDead, match="ArgumentsInvalid"):
            app.job(made.id).result_sync()


def test_a_direct_call_is_the_function(app: Penstock) -> None:
    shop = celery_app()

    @task(shop, "one", bind=True)
    def one(self: Any, number: int) -> int:
        return number + int(self.request.retries)

    assert adopt(one, app)(3) == 3
