"""Code that blocks or hangs: what can be kept is kept, what can be ended is ended, and the rest is said.

However slow the machine is, a lease does not end here, and a timeout does: attempts that the machine kept from
starting in time count as timed out, and are followed by others.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock import Penstock
from tests.end_to_end.running import RunningServer
from tests.tasks.chaos.ledger import read_ledger
from tests.tasks.chaos.processes import WorkerProcess, counts, drain, enqueue, wait_until
from tests.tasks.worker_processes import wait_until_gone

LEASE_MS = 60_000
RENEWED_LEASE_MS = 6_000
TIMEOUT_MS = 1_000
PROCESS_TIMEOUT_MS = 3_000
"""In which a process has to start, too."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_a_blocked_event_loop_keeps_its_job_and_says_where_it_is_stuck(
    served: RunningServer, client: Penstock, folder: Path, name: str
) -> None:
    client.sync.queues.put(name, lease_ms=RENEWED_LEASE_MS)
    with WorkerProcess(served.url, folder, name) as worker:
        [job] = enqueue(client, name, "block", [{"until": "go"}])
        wait_until(lambda: read_ledger(folder, "start"))
        for _ in range(2):
            before = lease_end(client, job)
            wait_until(lambda before=before: lease_end(client, job) > before)  # type: ignore[misc]
        [stalled] = worker.wait_for("Stalled")
        (folder / "go").touch()
        drain(client, name, 1)
    assert "block_the_loop" in stalled["stack"]
    assert not worker.of("LeaseOver")
    view = client.sync.jobs.get(job)
    assert (view.attempts, view.losses, msgspec.json.decode(view.result)) == (1, 0, 1)


def lease_end(client: Penstock, job: str) -> int:
    """Return when the lease of a running job ends."""
    view = client.sync.jobs.get(job)
    assert view.state == "running"
    assert view.due_at_ms is not None
    return view.due_at_ms


def test_code_that_hangs_in_c_is_ended_at_its_timeout_in_a_process(
    served: RunningServer, client: Penstock, folder: Path, name: str
) -> None:
    client.sync.queues.put(name, lease_ms=LEASE_MS)
    with WorkerProcess(served.url, folder, name) as worker:
        [job] = enqueue(client, name, "hang_in_process", [{}], timeout_ms=PROCESS_TIMEOUT_MS)
        drain(client, name, 1)
        for start in read_ledger(folder, "start")[:2]:
            assert start["pid"] != worker.pid
            wait_until_gone(start["pid"])
        # The same worker goes on.
        enqueue(client, name, "quick", [{}])
        drain(client, name, 2)
        assert not worker.of("Stuck")
        assert {line["pid"] for line in read_ledger(folder, "effect")} == {worker.pid}
    check_attempts(client, folder, job, hung=2)


def test_code_that_hangs_in_c_in_a_thread_is_given_up_and_its_worker_is_to_be_replaced(
    served: RunningServer, client: Penstock, folder: Path, name: str
) -> None:
    client.sync.queues.put(name, lease_ms=LEASE_MS)
    with WorkerProcess(served.url, folder, name, slots=1) as worker:
        [job] = enqueue(client, name, "hang_in_thread", [{}], timeout_ms=TIMEOUT_MS)
        # The slot is free again: the next attempt may run here or elsewhere, and so may others.
        drain(client, name, 1)
        [stuck] = worker.wait_for("Stuck")
        assert (stuck["job"], stuck["attempt"]) == (job, read_ledger(folder, "start")[0]["attempt"])
        assert worker.wait_for("Stopping")[0]["reason"] == "a thread is stuck"
        assert worker.wait() == 0
        assert worker.of("Recycle") == [{"notice": "Recycle", "reason": "a thread is stuck"}]
    assert counts(client, name) == {"succeeded": 1}
    check_attempts(client, folder, job, hung=1)


def check_attempts(client: Penstock, folder: Path, job: str, *, hung: int) -> None:
    """Check that the attempts that hung failed by their timeout, whoever said so first, and that the last succeeded."""
    *earlier, last = client.sync.jobs.get(job).history
    assert last.outcome == "succeeded"
    starts = [line["attempt"] for line in read_ledger(folder, "start")]
    assert {*starts[:hung]} <= {one.number for one in earlier}
    # The server says so itself if the worker's report is late.
    assert {one.outcome for one in earlier} <= {"failed", "timed_out"}
    assert {one.failure.kind for one in earlier if one.failure is not None} == {"timeout"}
    assert None not in {one.failure for one in earlier}
