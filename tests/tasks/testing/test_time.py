"""`with app.testing()`: time is moved by the test, and what comes due is run."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from penstock import Penstock, Retry, Snooze, current, errors

PATIENTLY = Retry(40, backoff="1h", max_backoff="1d", jitter=False)


def test_a_delayed_job_waits_for_the_clock(app: Penstock) -> None:
    @app.task(name="remind")
    def remind() -> str:
        return "now"

    with app.testing() as t:
        job = remind.opts(delay="14d").enqueue_sync()
        assert t.assert_enqueued(remind).due_in == 14 * 86_400
        assert t.run_all().total == 0
        t.clock.advance(timedelta(days=10), days=3, hours=23, minutes=59, seconds=59, ms=999)
        assert t.run_all().total == 0
        with pytest.raises(errors.JobUnfinished):
            job.result_sync(0)
        t.clock.advance(ms=1)
        assert t.run_all().done == 1
        assert job.result_sync(0) == "now"


def test_the_clock_starts_at_the_present_and_goes_only_forward(app: Penstock) -> None:
    with app.testing() as t:
        began = t.clock.now()
        assert abs(began.timestamp() - time.time()) < 60  # noqa: TID251 - this is about the system's clock
        t.clock.advance(hours=1)
        assert t.clock.now() - began == timedelta(hours=1)
        assert t.clock.now_ms() == round(t.clock.now().timestamp() * 1_000)
        with pytest.raises(ValueError, match="backwards"):
            t.clock.advance(seconds=-1)


def test_fourteen_days_of_backoff_pass_in_a_moment(app: Penstock) -> None:
    attempts: list[int] = []

    @app.task(name="call", retry=PATIENTLY)
    async def call() -> str:
        attempts.append(current().attempt)
        if t.clock.now() - began < timedelta(days=14):
            raise ConnectionError("still away")
        return "back"

    with app.testing() as t:
        began, job = t.clock.now(), call.enqueue_sync()
        ran = t.run_until_idle()
        assert job.result_sync(0) == "back"
        assert t.clock.now() - began >= timedelta(days=14)
        assert (ran.done, ran.retrying) == (1, len(attempts) - 1)
        assert attempts == list(range(1, len(attempts) + 1))
        assert len(attempts) == 19, "1, 2, 4, 8 and 16 hours, and then a day each"


def test_a_job_that_never_succeeds_is_dead_after_its_attempts(app: Penstock) -> None:
    @app.task(name="fail", retry=Retry(5, backoff="1h"))
    def fail() -> None:
        raise ValueError("no stock")

    with app.testing() as t:
        job = fail.enqueue_sync()
        assert t.run_until_idle() == (0, 4, 1, 0, 0, 0)
        with pytest.raises(errors.JobDead, match="ValueError: no stock"):
            job.result_sync(0)


def test_run_until_idle_goes_no_further_than_its_limit(app: Penstock) -> None:
    @app.task(name="poll")
    def poll() -> None:
        raise Snooze("1h")

    with app.testing() as t:
        began = t.clock.now()
        poll.enqueue_sync()
        assert t.run_until_idle(limit="1d").snoozed == 25
        assert t.clock.now() - began == timedelta(days=1)
        assert t.assert_enqueued(poll).due_in == 3_600


def test_run_until_idle_waits_for_a_rate_too(app: Penstock) -> None:
    @app.task(name="charge", rate=("stripe", 0.5))
    def charge(n: int) -> None:
        return

    with app.testing() as t:
        began = t.clock.now()
        for n in range(10):
            charge.enqueue_sync(n)
        assert t.run_until_idle().done == 10
        assert timedelta(seconds=15) < t.clock.now() - began < timedelta(minutes=2)


def test_a_schedule_fires_once_for_each_of_its_instants(app: Penstock) -> None:
    hours: list[int] = []

    @app.cron("0 3 * * *", name="nightly")
    def nightly() -> None:
        hours.append(t.clock.now().hour)

    @app.cron("* * * * *", name="minutely")
    def minutely() -> None:
        return

    with app.testing() as t:
        t.clock.advance(days=1)
        t.assert_not_enqueued(nightly)
        t.save_schedules(nightly)
        t.clock.advance(days=14)
        assert len(t.enqueued(nightly)) == 14
        assert t.run_all().done == 14
        hours.clear()
        assert t.run_for("7d").done == 7
        assert hours == [3] * 7
        t.save_schedules()
        assert t.run_for("10m").done >= 10


def test_only_a_task_with_a_schedule_can_have_it_saved(app: Penstock) -> None:
    @app.task(name="plain")
    def plain() -> None:
        return

    with app.testing() as t, pytest.raises(errors.TaskInvalid, match=r"declared with @app\.cron"):
        t.save_schedules(plain)
