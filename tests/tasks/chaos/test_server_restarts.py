"""The server is killed, or restarted in good order, under load: nothing is lost, and workers reconnect and go on."""

from __future__ import annotations

import random
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Penstock
from tests.end_to_end.running import RunningServer
from tests.support.campaigns import campaign, trials
from tests.tasks.chaos.ledger import read_ledger
from tests.tasks.chaos.processes import Crew, counts, drain, enqueue, wait_until

QUEUE = "work"
SEED = 5
JOBS_A_RESTART = 400

pytestmark = [campaign, pytest.mark.slow, pytest.mark.timeout(600)]


class RestartedServer:
    """A server at one port on one store, and those that follow it there."""

    def __init__(self, folder: Path, store: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._arguments = ("--port", str(port), "--store", store)
        self._folder = folder
        self.now = self._start()
        self.url = self.now.url

    def restart(self, how: signal.Signals) -> None:
        """End the server, and start another in its place."""
        if how is signal.SIGKILL:
            self.now.__exit__()
        else:
            code, _ = self.now.stop(how)
            assert code == 0
        self.now = self._start()

    def _start(self) -> RunningServer:
        return RunningServer(self._folder, *self._arguments)


@pytest.fixture(params=["sqlite", "postgres"])
def restarted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RestartedServer]:
    if request.param == "sqlite":
        server = RestartedServer(tmp_path, f"sqlite:{tmp_path / 'penstock.db'}")
        yield server
        server.now.__exit__()
        return
    postgres = request.getfixturevalue("postgres_server")
    database = postgres.create_database()
    server = RestartedServer(tmp_path, postgres.dsn(database))
    yield server
    server.now.__exit__()
    postgres.drop_database(database)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_outlive_restarts_of_their_server_under_load(
    restarted: RestartedServer,
    how: signal.Signals,
    folder: Path,
    record_property: Callable[[str, object], None],
) -> None:
    chance = random.Random(SEED)
    restarts = trials(10)
    total = JOBS_A_RESTART * (restarts + 1)
    with Penstock(restarted.url) as client, Crew(restarted.url, folder, QUEUE, 2, slots=10) as crew:
        client.sync.queues.put(QUEUE, lease_ms=15_000, offer_ms=2_000)
        crew.wait_until_ready()
        jobs = enqueue(client, QUEUE, "quick", [{}] * (total - 40))
        jobs += enqueue(client, QUEUE, "nap", ({"ms": chance.randrange(1_000)} for _ in range(40)))
        for number in range(1, restarts + 1):
            wanted = JOBS_A_RESTART * number // 2
            wait_until(lambda wanted=wanted: counts(client, QUEUE).get("succeeded", 0) >= wanted)  # type: ignore[misc]
            restarted.restart(how)
        drain(client, QUEUE, total)
        lost, back = crew.said("ConnectionLost"), crew.said("ConnectionBack")
        assert crew.deaths == 0
        wait_until(lambda: len(crew.said("ConnectionBack")) == len(crew.said("ConnectionLost")))
        over = Counter(notice["reason"] for notice in crew.said("LeaseOver"))
        assert len(back) >= restarts or how is signal.SIGTERM
        views = [client.sync.jobs.get(job) for job in jobs]
    often = Counter((line["job"], line["attempt"]) for line in read_ledger(folder, "effect"))
    assert {job for job, _ in often} == set(jobs)
    assert set(often.values()) == {1}, "one attempt has its effect once"
    assert {view.losses for view in views} == {0}
    record_property(
        "evidence",
        f"{restarts} × {how.name} of the server under load, {total} jobs: 0 lost, "
        f"{len(often) - total} attempts repeated; 2 workers lost the connection {len(lost)} times "
        f"and came back after {seconds(back)} s; "
        f"{over.total()} notices of LeaseOver {dict(over)}",
    )


def seconds(back: list[dict[str, float]]) -> str:
    times = sorted(notice["after_s"] for notice in back)
    return f"{times[0]:.1f} to {times[-1]:.1f}" if times else "0"
