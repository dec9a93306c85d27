"""`with app.testing()`: what goes wrong in a task is seen in the test."""

from __future__ import annotations

import traceback

import pytest

from penstock import Penstock, current, errors


@pytest.mark.parametrize("is_async", [True, False])
def test_the_error_of_a_task_is_raised_in_the_test(app: Penstock, is_async: bool) -> None:
    def fail(order: int) -> None:
        raise LookupError(f"no order {order}")

    async def fail_async(order: int) -> None:
        fail(order)

    task = app.task(name="fail_async")(fail_async) if is_async else app.task(name="fail")(fail)
    with app.testing() as t:
        job = task.enqueue_sync(17)
        other = task.enqueue_sync(18)
        with pytest.raises(LookupError, match="no order 17") as raised:
            t.run_all()
        notes = "\n".join(raised.value.__notes__)
        assert job.id in notes
        assert f"{task.name} (job {other.id}, attempt 1): LookupError: no order 18" in notes
        frames = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
        assert frames[-1] == "fail"
        assert "_call" not in frames, "the worker's own frames are left out"
        assert t.assert_enqueued(task, order=17).state == "retrying"


def test_a_result_that_cannot_be_sent_is_an_error_of_the_test(app: Penstock) -> None:
    @app.task(name="large")
    def large() -> str:
        return "x" * 2_000_000

    @app.task(name="wrong")
    def wrong() -> int:
        return object()  # type: ignore[return-value] # That is what is wrong with it.

    with app.testing() as t:
        large.enqueue_sync()
        with pytest.raises(errors.ResultTooLarge):
            t.run_all()
        wrong.enqueue_sync()
        with pytest.raises(errors.ResultInvalid):
            t.run_all()


def test_a_task_that_enqueues_itself_for_ever_is_found_out(app: Penstock) -> None:
    @app.task(name="again")
    def again() -> None:
        again.enqueue_sync()

    with app.testing() as t:
        again.enqueue_sync()
        with pytest.raises(errors.RunsForever, match=r"More than 50 jobs .* of again: a task seems to enqueue itself"):
            t.run_all(max_jobs=50)


def test_a_job_whose_lease_ends_while_it_runs_is_lost_and_run_again(app: Penstock) -> None:
    @app.task(name="slow")
    def slow() -> int:
        if current().losses == 0:
            t.clock.advance(hours=1)
        return current().losses

    with app.testing() as t:
        job = slow.enqueue_sync()
        ran = t.run_until_idle()
        assert (ran.done, ran.lost) == (1, 1)
        assert job.result_sync(0) == 1
