"""`penstock relay`: what it does, what it says, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Outbox, Penstock, __version__
from penstock.cli import main
from tests.end_to_end.running import RunningServer, command, environment
from tests.tasks.sessions import CTRL_C, Session
from tests.transactions.databases import UserDatabase
from tests.transactions.shops import Shop, shop_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PATIENCE_S = 60.0
TOKENS = """
[[tokens]]
name = "relay"
token = "enqueue-only-token-of-the-relay-0123456789"
scopes = ["enqueue"]
"""


class Ended:
    """What a command said, and how it ended."""

    def __init__(self, code: int, errors: str) -> None:
        self.code = code
        self.errors = errors


class Run:
    """Runs commands in this process: to start one for each would take longer than all the rest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str, **variables: str) -> Ended:
        with self._monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["penstock", "relay", *arguments])
            with pytest.raises(SystemExit) as end:
                main()
        written = self._capsys.readouterr()
        assert written.out == ""
        assert isinstance(end.value.code, int)
        return Ended(end.value.code, written.err)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `penstock relay` with the test's folder as the current one, and no variables but those that are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    return Run(monkeypatch, capsys)


@pytest.fixture
def shop(sqlite_server: RunningServer, name: str) -> Iterator[Shop]:
    with Penstock(sqlite_server.url) as app:
        yield shop_of(app, name)


@pytest.fixture
def place(tmp_path: Path, shop: Shop) -> Callable[..., str]:
    """Puts orders into the outbox of a SQLite file, and returns its URL."""
    database = UserDatabase.sqlite(tmp_path)
    with database.connect() as connection:
        Outbox().create_sync(connection)
        connection.commit()

    def place(*orders: int) -> str:
        with database.connect() as connection:
            Outbox().add_many_sync(connection, [shop.confirm.call(order) for order in orders])
            connection.commit()
        return database.url

    return place


def ids_of(shop: Shop) -> list[str]:
    return [job.id for job in shop.app.sync.jobs.list(queue=shop.queue).jobs]


def wait_for(shop: Shop, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    shop.app.sync.queues.put(shop.queue)
    while len(ids_of(shop)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("kind", ["sqlite_server", "postgres_node"])
def test_once_enqueues_what_is_there_and_ends(
    kind: str, request: pytest.FixtureRequest, database: UserDatabase, name: str, run: Run
) -> None:
    server: RunningServer = request.getfixturevalue(kind)
    with Penstock(server.url) as app:
        shop = shop_of(app, name)
        with database.connect() as connection:
            Outbox().create_sync(connection)
            Outbox().add_many_sync(connection, [shop.confirm.call(order) for order in range(5)])
            connection.commit()
        ended = run("--once", "-v", "--log-format", "json", PENSTOCK_OUTBOX=database.url, PENSTOCK_URL=server.url)
        assert ended.code == 0, ended.errors
        said = [json.loads(line) for line in ended.errors.splitlines()]
        assert [line["event"] for line in said] == ["ready", "enqueued", "stopped"]
        assert (said[0]["waiting"], said[1]["jobs"], said[2]["enqueued"], said[2]["waiting"]) == (5, 5, 5, 0)
        assert len(ids_of(shop)) == 5


def test_it_runs_until_it_is_told_to_stop(place: Callable[..., str], shop: Shop, tmp_path: Path) -> None:
    url = place(1)
    relay = subprocess.Popen(
        command("relay", "--database", url, "--to", shop.app.address, "--interval", "20ms"),
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    wait_for(shop, 1)
    place(2)
    wait_for(shop, 2)
    relay.send_signal(signal.SIGTERM)
    _, errors = relay.communicate(timeout=PATIENCE_S)
    assert relay.returncode == 0
    assert re.search(r"^\S+Z stopping reason=SIGTERM$", errors, re.MULTILINE), errors
    assert re.search(r"^\S+Z stopped enqueued=2 set_aside=0 ran_s=\S+ waiting=0$", errors, re.MULTILINE), errors


def test_a_person_sees_a_banner_and_a_live_line(place: Callable[..., str], shop: Shop, tmp_path: Path) -> None:
    url = place(1, 2)
    with Session(tmp_path, "relay", "--database", "sqlite:user.db", "--to", shop.app.address) as session:
        session.wait_for("2 enqueued")
        UserDatabase(url).run(
            f"INSERT INTO penstock_outbox (id, queue, request) VALUES ('no-uuid', '{shop.queue}', '[]')"
        )
        session.wait_for("1 refused")
        session.type(CTRL_C)
        assert session.exit_code() == 0
    screen = re.sub(r"\d\d:\d\d:\d\d", "03:14:07", session.screen)
    assert screen.startswith(
        f"""\
Penstock relay {__version__} to {shop.app.address}

  outbox  sqlite:user.db  looks every 1 s, up to 500 jobs in a request
  stop    Ctrl+C or SIGTERM  it finishes what it has begun

03:14:07 ✓ ready     2 jobs in the outbox
03:14:07 † refused   {shop.queue} no-uuid  set aside, malformed:"""
    ), screen
    assert "03:14:07 ‖ stopping  it finishes what it has begun." in screen
    assert "03:14:07 ✓ stopped   2 enqueued, 1 refused in " in screen
    assert "last" not in screen.splitlines()[-1]


def test_what_still_waits_after_once_is_exit_code_1(place: Callable[..., str], shop: Shop, run: Run) -> None:
    shop.app.sync.queues.create(shop.queue, depth_max=1)
    ended = run("--database", place(1, 2), "--to", shop.app.address, "--once")
    assert ended.code == 1
    assert "waiting queue=" in ended.errors
    assert "stopped enqueued=1 set_aside=0" in ended.errors


def test_a_function_of_the_project_connects(place: Callable[..., str], shop: Shop, tmp_path: Path, run: Run) -> None:
    place(1)
    (tmp_path / "warehouse.py").write_text(
        "import sqlite3\n\ndef connect():\n    return sqlite3.connect('user.db')\n\nnothing = None\n"
    )
    ended = run(
        "--connect",
        "warehouse:connect",
        "--to",
        shop.app.address,
        "--once",
        PENSTOCK_OUTBOX="sqlite:other.db",
    )
    assert ended.code == 0, ended.errors
    assert len(ids_of(shop)) == 1
    for target, code in (("warehouse", 2), ("warehouse:nothing", 1), ("nowhere:connect", 1)):
        assert run("--connect", target, "--to", shop.app.address).code == code


# -- what does not work ---------------------------------------------------------------------------


def test_flags_that_make_no_sense_are_exit_code_2(run: Run) -> None:
    to = ("--to", "http://127.0.0.1:9")
    database = ("--database", "sqlite:user.db")
    for arguments, said in (
        (to, "No database is named"),
        ((*to, *database, "--connect", "a:b"), "either --database or --connect"),
        (database, "No server is named"),
        ((*database, "--to", "nonsense"), "--to is no URL"),
        ((*to, "--database", "mysql://host/db"), "postgresql://HOST/NAME or sqlite:PATH"),
        ((*to, *database, "--interval", "soon"), "--interval is a duration"),
        ((*to, *database, "--batch", "501"), "--batch is from 1 to 500"),
    ):
        ended = run(*arguments)
        assert ended.code == 2, ended.errors
        assert said in ended.errors


def test_a_database_that_cannot_be_used_is_said(shop: Shop, user_dsn: str, run: Run) -> None:
    to = ("--to", shop.app.address)
    missing = run("--database", "sqlite:nowhere.db", *to)
    assert (missing.code, "there is no file" in missing.errors) == (6, True), missing.errors
    unreachable = run("--database", "postgresql://shop:secret@127.0.0.1:9/shop", *to)
    assert unreachable.code == 6
    assert "secret" not in unreachable.errors
    without_table = run("--database", user_dsn, *to)
    assert (without_table.code, "has no table penstock_outbox" in without_table.errors) == (1, True)


def test_a_server_that_cannot_be_reached_is_exit_code_6(place: Callable[..., str], run: Run) -> None:
    url = place(1)
    ended = run("--database", url, "--to", "http://127.0.0.1:9", "--once")
    assert ended.code == 6
    assert ended.errors.startswith("error: Cannot reach http://127.0.0.1:9.")
    assert UserDatabase(url).count("penstock_outbox", "sends = 0") == 1


def test_a_wrong_token_is_exit_code_5_and_the_right_one_may_only_enqueue(
    place: Callable[..., str], tmp_path: Path, run: Run
) -> None:
    url = place(1)
    (tmp_path / "penstock.toml").write_text(TOKENS)
    with RunningServer(tmp_path, "--port", "0", "--store", "memory:", "--config", "penstock.toml") as server:
        arguments = ("--database", url, "--to", server.url, "--once")
        for variables in ({}, {"PENSTOCK_TOKEN": "wrong"}):
            ended = run(*arguments, **variables)
            assert ended.code == 5, ended.errors
            assert ended.errors.startswith("denied: ")
        assert UserDatabase(url).count("penstock_outbox") == 1
        (tmp_path / "token").write_text("enqueue-only-token-of-the-relay-0123456789\n")
        ended = run(*arguments, "--token-file", "token")
        assert ended.code == 0, ended.errors
    assert UserDatabase(url).count("penstock_outbox") == 0
