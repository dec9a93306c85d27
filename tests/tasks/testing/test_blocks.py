"""`with app.testing()`: what becomes of the app, inside the block and after it."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from penstock import Penstock, errors
from tests.tasks.working import PATIENCE_S


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "sqlite:{path}", "postgresql://nobody@127.0.0.1:1/no", "memory:"]
)
def test_an_app_of_any_url_is_tested_without_it(url: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    app = Penstock(url.format(path=path))

    @app.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    with app.testing() as t:
        job = double.enqueue_sync(4)
        app.close()
        t.run_all()
        assert job.result_sync(0) == 8
    assert list(tmp_path.iterdir()) == []


def test_the_app_is_given_back_also_after_an_error(app: Penstock) -> None:
    @app.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    def fail() -> None:
        with app.testing():
            double.enqueue_sync(4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(errors.ConnectionFailed):
        double.enqueue_sync(4)
    with app.testing() as t:
        t.assert_not_enqueued(double)


def test_an_app_with_jobs_of_its_own_does_not_see_those_of_a_test() -> None:
    app = Penstock("memory:")

    @app.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    with app:
        own = double.enqueue_sync(1)
        with app.testing() as t:
            assert t.enqueued() == []
            tested = double.enqueue_sync(2)
        assert own.view_sync().state == "queued"
        with pytest.raises(errors.JobNotFound):
            tested.view_sync()


def test_an_app_is_tested_by_one_block_at_a_time(app: Penstock) -> None:
    @app.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    with app.testing() as t:
        with pytest.raises(errors.AlreadyTesting, match="tested already"), app.testing():
            pass
        double.enqueue_sync(4)
        assert t.run_all().done == 1


def test_nothing_works_after_the_block(app: Penstock) -> None:
    @app.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    with app.testing() as t:
        pass
    for ask in (t.run_all, t.run_until_idle, t.clock.advance, t.save_schedules, t.enqueued):
        with pytest.raises(errors.Closed):
            ask()


def test_a_forked_child_has_no_part_in_a_test(app: Penstock) -> None:
    @app.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    def enqueue(answer: Connection) -> None:
        try:
            double.enqueue_sync(1)
        except errors.WrongProcess as error:
            answer.send(str(error))

    with app.testing():
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=enqueue, args=(theirs,))
        child.start()
        child.join(PATIENCE_S)
        assert "forked child" in ours.recv()
    ours.close()
    theirs.close()


@pytest.mark.parametrize("given", [{"concurrency": 0}, {"concurrency": 501}, {"max_jobs": 0}])
def test_limits_that_make_no_sense_are_refused(app: Penstock, given: dict[str, int]) -> None:
    with app.testing() as t, pytest.raises(ValueError, match=r"is a whole number from 1"):
        t.run_until_idle(**given)  # type: ignore[arg-type] # mypy takes them for any of the arguments.


def test_an_app_without_tasks_has_nothing_to_run(app: Penstock) -> None:
    with app.testing() as t, pytest.raises(errors.WorkerInvalid, match="no tasks"):
        t.run_all()


def test_async_tasks_share_one_loop_for_the_whole_test(app: Penstock) -> None:
    loops: set[asyncio.AbstractEventLoop] = set()
    threads: set[int] = set()

    @app.task(name="note")
    async def note() -> None:
        loops.add(asyncio.get_running_loop())
        threads.add(threading.get_ident())

    with app.testing() as t:
        for _ in range(3):
            note.enqueue_sync()
            t.run_all()
    assert len(loops) == 1
    assert threads == {threading.get_ident()}


def test_a_job_that_has_not_ended_is_waited_for_by_the_clock_on_the_wall(app: Penstock) -> None:
    @app.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    with app.testing():
        job = double.enqueue_sync(4)
        with pytest.raises(errors.JobUnfinished, match=r"within 0\.01 seconds"):
            job.result_sync(0.01)
