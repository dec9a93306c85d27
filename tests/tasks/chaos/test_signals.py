"""Signals: a worker that is stopped and goes on writes nothing stale, and one that ends gives everything back."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from penstock import Penstock
from tests.end_to_end.running import RunningServer
from tests.support.campaigns import campaign, trials
from tests.tasks.chaos.ledger import read_ledger, read_table
from tests.tasks.chaos.processes import WorkerProcess, counts, drain, enqueue, wait_for_lines, wait_until

LEASE_MS = 3_000
LONG_MS = 600_000
GRACE_S = 6.0
RUNNING = 20

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@campaign
def test_a_worker_that_was_stopped_beyond_its_leases_writes_nothing_stale(
    shared: Penstock,
    folder: Path,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    client, url = shared, shared.address
    rounds = trials(20)
    with WorkerProcess(url, folder, name, slots=4) as frozen:
        frozen.wait_for("Ready")
        for number in range(1, rounds + 1):
            go = f"go-{number}"
            client.sync.queues.put(name, lease_ms=LEASE_MS, offer_ms=LEASE_MS)
            jobs = enqueue(client, name, "linger", [{}] * 2) + enqueue(
                client, name, "thread_linger", [{"until": go}] * 2
            )
            wait_for_lines(folder, "start", 8 * number - 4)
            frozen.signal(signal.SIGSTOP)
            # Only the leases of who was stopped are to end, however slow the machine is.
            client.sync.queues.put(name, lease_ms=LONG_MS, offer_ms=LEASE_MS)
            with WorkerProcess(url, folder, name, slots=4) as other:
                drain(client, name, 4 * number)
                other.signal(signal.SIGTERM)
                assert other.wait() == 0
            frozen.signal(signal.SIGCONT)
            over = frozen.wait_for("LeaseOver", 4 * number)[-4:]
            assert sorted(notice["job"] for notice in over) == sorted(jobs)
            # Threads cannot be stopped: they wake up, and write too late.
            (folder / go).touch()
            wait_for_lines(folder, "fenced", 2 * number)
            table = read_table(folder)
            for job in jobs:
                view = client.sync.jobs.get(job)
                assert [(one.number, one.outcome) for one in view.history] == [(1, "lost"), (2, "succeeded")]
                assert msgspec.json.decode(view.result) == 2
                assert table[job] == (2, 1)
        assert not frozen.of("Stalled"), "it was the process that did not run, not its event loop"
        enqueue(client, name, "nap", [{"ms": 0}])
        drain(client, name, 4 * rounds + 1)
    fenced = len(read_ledger(folder, "fenced"))
    record_property(
        "evidence",
        f"{rounds} × SIGSTOP beyond the lease, {4 * rounds} jobs: each completed once, by another worker; "
        f"{fenced} stale writes refused by the table, 0 stale reports accepted",
    )


def test_sigterm_with_20_running_jobs_leaves_nothing_behind(
    served: RunningServer, client: Penstock, folder: Path, name: str
) -> None:
    client.sync.queues.put(name, lease_ms=600_000, offer_ms=600_000)
    with WorkerProcess(served.url, folder, name, slots=RUNNING, grace_s=GRACE_S) as worker:
        worker.wait_for("Ready")
        long = {"ms": 600_000}
        short = {"ms": 0, "until": "go"}
        finishing, released = [], []
        for task, count in (("nap", 4), ("thread_nap", 4), ("process_nap", 2)):
            finishing += enqueue(client, name, task, [short] * count)
            released += enqueue(client, name, task, [long] * count)
        waiting = enqueue(client, name, "nap", [long] * 5)
        wait_until(lambda: len(read_ledger(folder, "start")) == RUNNING)
        worker.signal(signal.SIGTERM)
        worker.wait_for("Stopping")
        (folder / "go").touch()
        assert worker.wait() == 0, "nothing waits for a timeout or for a lease to end, which take ten minutes"
    [stopped] = worker.of("Stopped")
    assert stopped["ran_s"] > 0
    assert set(counts(client, name)) <= {"queued", "succeeded"}
    for job in finishing:
        assert client.sync.jobs.get(job).state == "succeeded"
    for job in released + waiting:
        view = client.sync.jobs.get(job)
        assert (view.state, view.failures, view.losses) == ("queued", 0, 0)
    assert {notice["job"] for notice in worker.of("Released")} == {*released}
    assert {client.sync.jobs.get(job).attempts for job in waiting} == {0}
    [stopping] = worker.of("Stopping")
    assert (stopping["reason"], stopping["running"]) == ("SIGTERM", RUNNING)


def test_a_second_signal_gives_running_jobs_back_at_once(
    served: RunningServer, client: Penstock, folder: Path, name: str
) -> None:
    client.sync.queues.put(name, lease_ms=600_000, offer_ms=600_000)
    with WorkerProcess(served.url, folder, name, slots=3, grace_s=300) as worker:
        worker.wait_for("Ready")
        jobs = [
            *enqueue(client, name, "nap", [{"ms": 600_000}]),
            *enqueue(client, name, "thread_nap", [{"ms": 600_000}]),
        ]
        jobs += enqueue(client, name, "process_nap", [{"ms": 600_000}])
        wait_until(lambda: len(read_ledger(folder, "start")) == len(jobs))
        worker.signal(signal.SIGTERM)
        worker.wait_for("Stopping")
        worker.signal(signal.SIGINT)
        assert worker.wait() == 0, "it does not wait for the grace, which is longer than our patience"
    assert counts(client, name) == {"queued": 3}
    assert {client.sync.jobs.get(job).losses for job in jobs} == {0}
