"""`with app.testing()`: assertions about what is enqueued."""

from __future__ import annotations

import pytest

from penstock import Penstock, errors


def test_an_assertion_that_fails_lists_what_is_enqueued(app: Penstock) -> None:
    @app.task(name="confirm", queue="mail")
    def confirm(order: int, vip: bool = False) -> None:
        return

    @app.task(name="ship")
    def ship(order: int) -> None:
        return

    with app.testing() as t:
        with pytest.raises(AssertionError, match=r"confirm\(\) is not enqueued\. Nothing is enqueued\.$"):
            t.assert_enqueued(confirm)
        confirm.enqueue_sync(18)
        ship.opts(delay=60).enqueue_sync(17)
        with pytest.raises(AssertionError) as failed:
            t.assert_enqueued(confirm, order=17)
        assert str(failed.value).splitlines() == [
            "confirm(order=17) is not enqueued. These jobs are enqueued:",
            "  confirm(order=18, vip=False) is queued in queue mail",
            "  ship(order=17) is scheduled in queue default in 60 s",
        ]
        with pytest.raises(AssertionError, match=r"confirm\(vip=False\) is enqueued\."):
            t.assert_not_enqueued(confirm, vip=False)
        t.assert_not_enqueued(confirm, vip=True)
        assert t.assert_enqueued(confirm, 18).view.queue == "mail"
        assert [job.task for job in t.enqueued()] == ["confirm", "ship"]


def test_a_continuation_is_found_by_the_arguments_that_are_known(app: Penstock) -> None:
    @app.task(name="extract")
    def extract(field: int) -> int:
        return field

    @app.task(name="assemble", queue="later")
    def assemble(doc: str, fields: list[int]) -> int:
        return sum(fields)

    with app.testing() as t:
        app.sync.queues.create("later")
        app.sync.queues.pause("later")
        flow = app.fan_out_sync([extract.call(n) for n in range(3)], entity="a", then=assemble)
        assert t.run_all().done == 3
        assert t.assert_enqueued(assemble, doc="a").arguments == {"doc": "a"}
        assert t.run_until_idle(limit="1h").total == 0
        app.sync.queues.resume("later")
        t.run_all()
        assert flow.result_sync(0) == 3


def test_a_job_of_another_program_is_listed_as_it_is(app: Penstock) -> None:
    @app.task(name="known")
    def known(n: int) -> None:
        return

    with app.testing() as t:
        app.sync.jobs.enqueue("default", "unknown", {"a": [1]})
        app.sync.jobs.enqueue("default", "unknown", 5)
        app.sync.jobs.enqueue("default", "known", {"m": 5})
        assert [job.arguments for job in t.enqueued()] == [{"a": [1]}, {"payload": 5}, {"m": 5}]
        with pytest.raises(errors.ArgumentsInvalid):
            t.run_all()
        assert [job.task for job in t.enqueued()] == ["unknown", "unknown"]


def test_an_assertion_about_a_parameter_that_is_not_there_is_an_error(app: Penstock) -> None:
    @app.task(name="confirm")
    def confirm(order: int) -> None:
        return

    with app.testing() as t, pytest.raises(TypeError, match=r"confirm .*'ordre'"):
        t.assert_not_enqueued(confirm, ordre=17)
