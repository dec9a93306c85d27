"""Adopted tasks in processes of their own, as in Celery's default pool, by a real worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Penstock, errors
from penstock.client.requests import JobOptions
from tests.end_to_end.running import RunningServer
from tests.tasks.worker_processes import PATIENCE_S, WorkerProcess, write_module

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SHOP = """
    import time
    from celery import Celery
    from celery.exceptions import SoftTimeLimitExceeded
    from penstock import Penstock
    from penstock.celery import move

    celery = Celery("shop", broker="memory://")
    celery.conf.task_default_queue = {queue!r}
    app = Penstock({url!r})

    @celery.task(bind=True, max_retries=2)
    def flaky(self, number):
        if self.request.retries < 2:
            raise self.retry(countdown=0, exc=ConnectionError("away"))
        return [number, self.request.retries, self.request.id]

    @celery.task(soft_time_limit=0.2, time_limit=20)
    def soft():
        try:
            time.sleep(60)
        except SoftTimeLimitExceeded:
            return "cleaned up"

    @celery.task
    def hard():
        while True:
            try:
                time.sleep(60)
            except BaseException:
                pass

    @celery.task
    def wrong():
        raise KeyError("no such thing")

    move(celery, app, [flaky, soft, hard, wrong], run_in="process")
"""


CALLS: list[tuple[str, dict[str, int], JobOptions]] = [
    ("flaky", {"number": 1}, {}),
    ("soft", {}, {}),
    ("hard", {}, {"timeout_ms": 500, "retry": {"attempts_max": 1}}),
    ("wrong", {}, {}),
]


def test_tasks_in_processes_retry_stop_softly_and_are_killed(
    sqlite_server: RunningServer, tmp_path: Path, name: str
) -> None:
    write_module(tmp_path, "process_shop", SHOP.format(url=sqlite_server.url, queue=name))
    with Penstock(sqlite_server.url) as client, WorkerProcess(tmp_path, "process_shop:app", "-q", f"{name}:2"):
        jobs = {
            task: client.job(client.sync.jobs.enqueue(name, f"process_shop.{task}", payload, **options).id)
            for task, payload, options in CALLS
        }
        assert jobs["soft"].result_sync(timeout=PATIENCE_S) == "cleaned up"
        with pytest.raises(errors.JobDead, match="KeyError"):
            jobs["wrong"].result_sync(timeout=PATIENCE_S)
        with pytest.raises(errors.JobDead, match="timeout"):
            jobs["hard"].result_sync(timeout=PATIENCE_S)
        assert jobs["flaky"].result_sync(timeout=PATIENCE_S) == [1, 2, jobs["flaky"].id]
