"""Code that blocks or hangs: what can be kept is kept, what can be ended is ended, and the rest is said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock import Penstock
from tests.end_to_end.running import RunningServer
from tests.tasks.chaos.processes import WorkerProcess, counts, drain, enqueue

LEASE_MS = 1_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_a_blocked_event_loop_keeps_its_job_and_says_where_it_is_stuck(
    served: RunningServer, client: Penstock, folder: Path, name: str
) -> None:
    client.sync.queues.put(name, lease_ms=LEASE_MS)
    with WorkerProcess(served.url, folder, name) as worker:
        [job] = enqueue(client, name, "block", [{"seconds": 3 * LEASE_MS / 1_000}])
        drain(client, name, 1)
        [stalled] = worker.wait_for("Stalled")
    assert "block_the_loop" in stalled["stack"]
    assert not worker.of("LeaseOver")
    view = client.sync.jobs.get(job)
    assert (view.attempts, view.losses, msgspec.json.decode(view.result)) == (1, 0, 1)


def test_code_that_hangs_in_c_is_ended_at_its_timeout_in_a_process(
    served: RunningServer, client: Penstock, folder: Path, name: str
) -> None:
    client.sync.queues.put(name, lease_ms=LEASE_MS)
    with WorkerProcess(served.url, folder, name) as worker:
        [job] = enqueue(client, name, "hang_in_process", [{}], timeout_ms=1_000)
        drain(client, name, 1)
        assert [notice["trouble"]["kind"] for notice in worker.wait_for("Retrying", 2)] == ["timeout"] * 2
        # The same worker goes on.
        enqueue(client, name, "quick", [{}])
        drain(client, name, 2)
        assert not worker.of("Stuck")
    outcomes = [(one.outcome, one.failure.kind if one.failure else "") for one in client.sync.jobs.get(job).history]
    assert outcomes == [("failed", "timeout"), ("failed", "timeout"), ("succeeded", "")]


def test_code_that_hangs_in_c_in_a_thread_is_given_up_and_its_worker_is_to_be_replaced(
    served: RunningServer, client: Penstock, folder: Path, name: str
) -> None:
    client.sync.queues.put(name, lease_ms=LEASE_MS)
    with WorkerProcess(served.url, folder, name, slots=1) as worker:
        [job] = enqueue(client, name, "hang_in_thread", [{}], timeout_ms=1_000)
        # The slot is free again: the second attempt may run here or elsewhere, and so may others.
        drain(client, name, 1)
        [stuck] = worker.wait_for("Stuck")
        assert (stuck["job"], stuck["attempt"]) == (job, 1)
        assert worker.wait_for("Stopping")[0]["reason"] == "a thread is stuck"
        assert worker.wait() == 0
        assert worker.of("Recycle") == [{"notice": "Recycle", "reason": "a thread is stuck"}]
    assert counts(client, name) == {"succeeded": 1}
    assert [(one.number, one.outcome) for one in client.sync.jobs.get(job).history] == [(1, "failed"), (2, "succeeded")]
