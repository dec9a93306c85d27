"""The network stops or flaps: workers fence themselves, nothing stale is completed, and they go on afterwards."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from penstock import Penstock
from tests.end_to_end.running import RunningServer
from tests.support.campaigns import campaign, trials
from tests.tasks.chaos.ledger import read_ledger, read_table
from tests.tasks.chaos.processes import Crew, WorkerProcess, counts, drain, enqueue, wait_for_lines
from tests.tasks.links import Link

LEASE_MS = 3_000
LONG_MS = 600_000
SEED = 29
BETWEEN_CUTS_S = (0.02, 0.2)

pytestmark = [campaign, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def link(served: RunningServer) -> Iterator[Link]:
    with Link(served.url) as link:
        yield link


def test_a_worker_without_a_network_fences_itself_and_another_completes_its_job(
    served: RunningServer,
    client: Penstock,
    link: Link,
    folder: Path,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    rounds = trials(10)
    with WorkerProcess(link.url, folder, name, slots=3) as cut_off:
        cut_off.wait_for("Ready")
        for number in range(1, rounds + 1):
            go = f"go-{number}"
            client.sync.queues.put(name, lease_ms=LEASE_MS, offer_ms=LEASE_MS)
            jobs = enqueue(client, name, "linger", [{}] * 2) + enqueue(client, name, "thread_linger", [{"until": go}])
            wait_for_lines(folder, "start", 6 * number - 3)
            with WorkerProcess(served.url, folder, name, slots=3) as other:
                other.wait_for("Ready")
                link.hold()
                # Only the leases of who was cut off are to end, however slow the machine is.
                client.sync.queues.put(name, lease_ms=LONG_MS, offer_ms=LEASE_MS)
                over = cut_off.wait_for("LeaseOver", 3 * number)[-3:]
                assert sorted(notice["job"] for notice in over) == sorted(jobs)
                drain(client, name, 3 * number)
                # The thread of the worker that was cut off could not be stopped, and writes too late.
                (folder / go).touch()
                wait_for_lines(folder, "fenced", number)
                other.signal(signal.SIGTERM)
                assert other.wait() == 0
            link.let_go()
            cut_off.wait_for("ConnectionBack", number)
            table = read_table(folder)
            for job in jobs:
                view = client.sync.jobs.get(job)
                assert (view.attempts, view.losses, msgspec.json.decode(view.result)) == (2, 1, 2)
                assert table[job] == (2, 1)
        # How many still ran when it noticed depends on whether it missed a keep-alive or a heartbeat first.
        assert len(cut_off.of("ConnectionLost")) == rounds
        assert [notice["kept"] for notice in cut_off.of("ConnectionBack")] == [0] * rounds
        # It goes on.
        [last] = enqueue(client, name, "nap", [{"ms": 0}])
        drain(client, name, 3 * rounds + 1)
        assert client.sync.jobs.get(last).attempts == 1
    record_property(
        "evidence",
        f"{rounds} × network stopped for longer than a lease, {3 * rounds} jobs: all {3 * rounds} tasks fenced, all "
        f"completed once by another worker, {rounds} stale writes of threads refused, 0 stale completions",
    )


def test_a_flood_of_short_jobs_runs_through_a_connection_that_flaps(
    client: Penstock,
    link: Link,
    folder: Path,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    chance = random.Random(SEED)
    total = trials(20_000, share=20)
    client.sync.queues.put(name, lease_ms=2_000, offer_ms=1_000)
    with Crew(link.url, folder, name, 1, slots=20) as crew:
        crew.wait_until_ready()
        jobs = enqueue(client, name, "quick", [{}] * total)
        flaps = 0
        while (now := counts(client, name)) != {"succeeded": total}:
            assert set(now) <= {"queued", "offered", "running", "retrying", "succeeded"}
            threading.Event().wait(chance.uniform(*BETWEEN_CUTS_S))
            link.cut(unnoticed=chance.random() < 0.3)
            flaps += 1
        assert crew.deaths == 0
        back = len(crew.said("ConnectionBack"))
    often = Counter((line["job"], line["attempt"]) for line in read_ledger(folder, "effect"))
    assert {job for job, _ in often} == set(jobs)
    assert set(often.values()) == {1}, "one attempt runs once"
    repeated = len(often) - total
    views = [client.sync.jobs.get(job) for job in {job for job, attempt in often if attempt > 1}]
    assert not [view.failure for view in views if view.failures], "a flapping connection fails no attempt"
    lost = sum(view.losses for view in views)
    record_property(
        "evidence",
        f"{total} jobs while all connections were cut {flaps} times ({link.cuts} connections): 0 lost, no attempt run "
        f"twice, {repeated} attempts repeated, {lost} leases lost; {back} reconnections",
    )
