"""`penstock schedule` with a server: what an app left behind is removed, and nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.client.tasks.app import CRON_PREFIX
from tests.end_to_end.running import RunningServer, command, environment
from tests.tasks.sessions import Session
from tests.tasks.worker_processes import PATIENCE_S, write_module

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SHOP = """
    from penstock import Penstock

    app = Penstock({url!r})

    @app.cron("0 3 * * *")
    async def nightly() -> None: ...

    @app.task
    async def once_a_cron() -> None: ...
"""


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningServer]:
    """A server of the test's own, so that no other test's schedules are on it."""
    if request.param == "sqlite":
        with RunningServer(tmp_path, "--port", "0", "--store", f"sqlite:{tmp_path / 'penstock.db'}") as running:
            yield running
        return
    postgres = request.getfixturevalue("postgres_server")
    database = postgres.create_database()
    with RunningServer(tmp_path, "--port", "0", "--store", postgres.dsn(database)) as running:
        yield running
    postgres.drop_database(database)


@pytest.fixture
def client(server: RunningServer, tmp_path: Path) -> Iterator[Penstock]:
    """A client of a server that has schedules of the app, of what it once was, of another app, and of people."""
    write_module(tmp_path, "shop", SHOP.format(url=server.url))
    with Penstock(server.url) as client:
        for task in ("shop.nightly", "shop.gone", "shop.once_a_cron", "depot.count"):
            client.sync.schedules.put(CRON_PREFIX + task, "default", task, {}, cron="0 3 * * *")
        client.sync.schedules.put("by-hand", "default", "shop.gone", {}, interval_ms=60_000)
        yield client


def names(client: Penstock) -> set[str]:
    return {schedule.name.removeprefix(CRON_PREFIX) for schedule in client.sync.schedules.list().schedules}


ALL = {"shop.nightly", "shop.gone", "shop.once_a_cron", "depot.count", "by-hand"}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("schedule", *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment(),
        timeout=PATIENCE_S,
    )


def test_schedules_of_crons_that_the_app_does_not_have_any_more_are_removed(client: Penstock, tmp_path: Path) -> None:
    done = run(tmp_path, "prune", "shop:app", "--yes")
    assert (done.returncode, done.stdout) == (0, "")
    assert names(client) == {"shop.nightly", "depot.count", "by-hand"}
    assert done.stderr.splitlines() == [
        f"Remove 2 schedules on {client.address}",
        f"  {CRON_PREFIX}shop.gone         0 3 * * *  its task is gone",
        f"  {CRON_PREFIX}shop.once_a_cron  0 3 * * *  its task has no cron any more",
        "Left alone, because other apps may have them:",
        f"  {CRON_PREFIX}depot.count",
        "  --all includes them",
        "✓ 2 schedules removed" if "✓" in done.stderr else "+ 2 schedules removed",
    ]
    again = run(tmp_path, "prune", "shop:app", "--yes")
    assert (again.returncode, again.stderr.splitlines()[0]) == (0, f"No schedules to remove on {client.address}")


def test_all_includes_those_of_other_packages(client: Penstock, tmp_path: Path) -> None:
    assert run(tmp_path, "prune", "shop:app", "--yes", "--all").returncode == 0
    assert names(client) == {"shop.nightly", "by-hand"}


def test_a_dry_run_changes_nothing(client: Penstock, tmp_path: Path) -> None:
    done = run(tmp_path, "prune", "shop:app", "--dry-run")
    assert done.returncode == 0
    assert done.stderr.startswith(f"Would remove 2 schedules on {client.address}\n")
    assert names(client) == ALL


def test_without_a_terminal_nothing_is_removed_unless_yes_is_said(client: Penstock, tmp_path: Path) -> None:
    done = run(tmp_path, "prune", "shop:app")
    assert done.returncode == 2
    assert "refused: Nobody can be asked here" in done.stderr
    assert names(client) == ALL


def test_a_person_types_how_many_to_remove(client: Penstock, tmp_path: Path) -> None:
    with Session(tmp_path, "schedule", "prune", "shop:app") as session:
        session.wait_for("Type 2 to remove them:")
        session.type("3\n")
        assert session.exit_code() == 1
    assert "refused: 3 is not 2. Nothing was removed." in session.screen
    assert names(client) == ALL
    with Session(tmp_path, "schedule", "prune", "shop:app") as session:
        session.wait_for("Type 2 to remove them:")
        session.type("2\n")
        assert session.exit_code() == 0
    assert "✓ 2 schedules removed" in session.screen
    assert names(client) == {"shop.nightly", "depot.count", "by-hand"}


def test_an_app_without_tasks_has_nothing_removed(client: Penstock, tmp_path: Path) -> None:
    write_module(tmp_path, "empty", f"from penstock import Penstock\napp = Penstock({client.address!r})\n")
    done = run(tmp_path, "prune", "empty", "--yes", "--all")
    assert done.returncode == 1
    assert names(client) == ALL


def test_schedules_are_listed_as_rows(client: Penstock, tmp_path: Path) -> None:
    done = run(tmp_path, "ls", "shop:app")
    head, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert head == ["schedule", "task", "queue", "when", "zone", "next_at", "paused"]
    assert {row[0].removeprefix(CRON_PREFIX) for row in rows} == ALL


def test_a_server_that_is_away_is_an_error(client: Penstock, server: RunningServer, tmp_path: Path) -> None:
    server.stop()
    done = run(tmp_path, "ls", "shop:app")
    assert done.returncode == 6
    assert done.stderr.startswith(f"error: Cannot reach {client.address}.\n  why  ")
