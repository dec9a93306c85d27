"""`penstock worker` as a person meets it: on a real terminal, stopped with Ctrl+C."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock import Penstock, __version__
from tests.end_to_end.running import RunningServer
from tests.tasks.sessions import CTRL_C, Session
from tests.tasks.worker_processes import write_shop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(params=["sqlite_server", "postgres_node"])
def server(request: pytest.FixtureRequest) -> RunningServer:
    found: RunningServer = request.getfixturevalue(request.param)
    return found


def test_a_person_sees_a_banner_a_live_line_and_how_it_stops(server: RunningServer, tmp_path: Path) -> None:
    write_shop(tmp_path, server.url, "docs")
    with (
        Penstock(server.url) as client,
        Session(tmp_path, "worker", "shop:app", "-q", "docs:3", "--name", "shop-7f2c") as session,
    ):
        client.sync.queues.put("docs")
        session.wait_for("0 of 3 running")
        job = client.sync.jobs.enqueue("docs", "shop.until_file", {"path": "go"}).id
        session.wait_for("1 of 3 running")
        session.type(CTRL_C)
        session.wait_for("stopping")
        (tmp_path / "go").touch()
        assert session.exit_code() == 0
        assert client.sync.jobs.get(job).state == "succeeded"
    screen = re.sub(r"\d\d:\d\d:\d\d", "03:14:07", session.screen)
    assert screen.startswith(
        f"""\
Penstock worker {__version__} to {server.url}

  name    shop-7f2c
  queues  docs  3 at a time  shop.add, shop.hang, shop.life, shop.pid,
          shop.until_file
"""
    )
    assert "  stop    Ctrl+C or SIGTERM  running jobs get 25 s\n" in screen
    assert "03:14:07 ✓ ready     3 slots, 5 tasks\n" in screen
    assert "03:14:07 ‖ stopping  1 job running. Ctrl+C again to quit now\n" in screen
    assert "03:14:07 ✓ done      docs shop.until_file " in screen
    assert "03:14:07 ✓ stopped   1 done, 0 retrying, 0 dead in " in screen
    assert "3 running" not in screen


def test_several_processes_show_one_banner_and_no_live_line(server: RunningServer, tmp_path: Path) -> None:
    write_shop(tmp_path, server.url, "parcels")
    with Session(tmp_path, "worker", "shop:app", "--processes", "2", "--name", "shop-7f2c") as session:
        session.wait_for("✓ ready     10 slots, 5 tasks", 2)
        session.type(CTRL_C)
        assert session.exit_code() == 0
    assert session.screen.count("Penstock worker") == 1
    assert "of 10 running" not in session.screen
