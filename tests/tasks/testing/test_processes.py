"""`with app.testing()`: tasks that run in processes."""

from __future__ import annotations

import os

import pytest

from penstock import errors
from tests.tasks.testing.shop import app, hang, render, stamp

pytestmark = pytest.mark.slow


def test_what_a_process_enqueues_is_in_the_test() -> None:
    with app.testing() as t:
        jobs = [render.enqueue_sync(page) for page in (1, 7)]
        assert t.run_until_idle() == (4, 0, 0, 1, 0, 0)
        assert os.getpid() not in {job.result_sync(0) for job in jobs}
        assert [event.kind for event in jobs[0].events_sync() if event.kind == "rendered"] == ["rendered"]
        t.assert_not_enqueued(stamp)


def test_the_error_of_a_process_is_described_in_the_test() -> None:
    with app.testing() as t:
        render.enqueue_sync(-1)
        with pytest.raises(Exception, match="ValueError: no page -1") as raised:
            t.run_all()
        assert 'raise ValueError(f"no page {page}")' in "\n".join(raised.value.__notes__)


def test_a_process_that_hangs_is_ended_at_its_timeout() -> None:
    with app.testing() as t:
        job = hang.enqueue_sync()
        with pytest.raises(TimeoutError):
            t.run_all()
        with pytest.raises(errors.JobDead):
            job.result_sync(0)
