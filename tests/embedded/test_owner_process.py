"""An owner process is started on demand, is the only one, outlives whoever started it, and ends when it is idle."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from penstock.client.embedded import dialer as dialer_module
from penstock.client.embedded.dialer import OwnerDialer
from penstock.client.errors import OwnerError, OwnerNotFound, OwnerNotResponding, OwnerNotStarted
from penstock.store.ownership.owner import SCHEMA
from tests.end_to_end.running import RunningServer
from tests.support.embedded import PATIENCE_S, EmbeddedFile, await_end, keeper_of, owner_number, run_python

OPEN_AND_TELL = """
import json, sys, time
from penstock.client.embedded.handshake import ask_owner
from penstock.client.embedded.opening import owner_dialer

dialer = owner_dialer(sys.argv[1])
sys.stdin.readline()
connected = dialer.dial(time.monotonic() + 40)
view = ask_owner(connected, time.monotonic() + 40)
print(view.pid, view.number, flush=True)
sys.stdin.read()
"""


def test_the_first_client_starts_an_owner_and_the_second_finds_it(file: EmbeddedFile) -> None:
    first = file.client()
    view = first.ask("GET", "/v1/owner")
    assert view.json()["number"] == 1
    assert view.json()["pid"] == file.owner() != os.getpid()
    assert view.headers["penstock-owner"] == "1"
    assert first.ask("POST", "/v1/queues", {"name": "mail", "settings": {}}).status == 201
    second = file.client()
    assert [queue["name"] for queue in second.ask("GET", "/v1/queues").json()["queues"]] == ["mail"]


@pytest.mark.slow
def test_eight_first_openers_at_once_have_one_owner(file: EmbeddedFile) -> None:
    openers = [run_python(OPEN_AND_TELL, str(file.path)) for _ in range(8)]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    told = set()
    for opener in openers:
        assert opener.stdout is not None
        told.add(opener.stdout.readline())
    file.note_processes()
    for opener in openers:
        opener.communicate(timeout=PATIENCE_S)
    assert told == {f"{file.owner()} 1\n"}


def test_an_owner_outlives_the_client_that_started_it_and_is_killed(file: EmbeddedFile) -> None:
    starter = run_python(OPEN_AND_TELL, str(file.path))
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write("go\n")
    starter.stdin.flush()
    pid, number = starter.stdout.readline().split()
    client = file.client()
    assert client.ask("GET", "/v1/owner").json()["pid"] == int(pid)
    os.kill(starter.pid, signal.SIGKILL)
    starter.communicate(timeout=PATIENCE_S)
    assert client.ask("GET", "/v1/owner").json()["number"] == int(number)


def test_an_owner_without_clients_ends_in_good_order(file: EmbeddedFile) -> None:
    dialer = file.dialer(idle_s=0.2)
    with file.dial(dialer):
        pid = file.owner()
        keeper = keeper_of(pid)
    dialer.close()
    await_end(pid)
    await_end(keeper)
    assert file.record() is None
    names = {place.name for place in file.path.parent.iterdir()}
    assert names == {"jobs.db", "jobs.db.lock", "jobs.db.log"}, "no socket, and no log of SQLite's, is left"
    with file.dial() as connected:
        assert owner_number(connected) == 2


@pytest.mark.slow
def test_forty_clients_that_arrive_as_an_idle_owner_ends_are_all_served(file: EmbeddedFile) -> None:
    idle_s, clients = 0.3, 40
    chance = random.Random(5)
    for arrivals in range(3):
        dialers = [file.dialer(idle_s=idle_s) for _ in range(clients)]
        # From a little before the owner of the last round ends to a little after.
        pauses_s = [idle_s * chance.uniform(0.7, 1.5) for _ in dialers]

        def arrive(dialer: OwnerDialer, pause_s: float) -> int:
            threading.Event().wait(pause_s)
            with dialer.dial(time.monotonic() + PATIENCE_S) as connected:
                return owner_number(connected)

        with ThreadPoolExecutor(clients) as threads:
            numbers = list(threads.map(arrive, dialers, pauses_s))
        file.note_processes()
        assert max(numbers) - min(numbers) <= 1, f"round {arrivals}: {numbers}"
        with file.dial(dialers[0]) as connected:
            assert owner_number(connected) == max(numbers), "all of them have the one that stays"
        for dialer in dialers:
            dialer.close()


def test_an_idle_connection_keeps_the_owner(file: EmbeddedFile) -> None:
    dialer = file.dialer(idle_s=0.2)
    file.dial(dialer).close()
    with pytest.raises(AssertionError, match="has not ended"):
        await_end(file.owner(), seconds=1.5)
    with file.dial(dialer) as connected:
        assert owner_number(connected) == 1


def test_a_terminated_owner_closes_its_store_and_the_next_client_starts_another(file: EmbeddedFile) -> None:
    client = file.client()
    assert client.ask("POST", "/v1/queues", {"name": "mail", "settings": {}}).status == 201
    file.note_processes()
    pid = file.owner()
    os.kill(pid, signal.SIGTERM)
    await_end(pid)
    assert client.insist("GET", "/v1/queues/mail").status == 200
    assert client.ask("GET", "/v1/owner").json()["number"] == 2


def test_the_keeper_replaces_an_owner_that_is_killed(file: EmbeddedFile) -> None:
    client = file.client()
    client.ask("GET", "/v1/owner")
    pid = file.owner()
    keeper = keeper_of(pid)
    os.kill(pid, signal.SIGKILL)
    view = client.insist("GET", "/v1/owner").json()
    assert view["number"] == 2
    assert view["pid"] != pid
    assert keeper_of(view["pid"]) == keeper
    file.note_processes()


def test_without_its_keeper_an_owner_goes_on_and_clients_replace_both(file: EmbeddedFile) -> None:
    client = file.client()
    client.ask("GET", "/v1/owner")
    file.note_processes()
    pid = file.owner()
    keeper = keeper_of(pid)
    os.kill(keeper, signal.SIGKILL)
    await_end(keeper)
    assert client.ask("GET", "/v1/owner").json()["pid"] == pid
    os.kill(pid, signal.SIGKILL)
    assert client.insist("GET", "/v1/owner").json()["number"] == 2


@pytest.mark.slow
def test_the_keeper_gives_up_on_an_owner_that_is_killed_again_and_again(file: EmbeddedFile) -> None:
    file.dial().close()
    keeper = keeper_of(file.owner())
    killed: set[int] = set()
    while Path(f"/proc/{keeper}").exists() and len(killed) < 100:
        record = file.record()
        if record is not None and record.state != "failed" and record.pid not in killed:
            killed.add(record.pid)
            try:
                os.kill(record.pid, signal.SIGKILL)
            except ProcessLookupError:
                break
    await_end(keeper)
    assert len(killed) >= 5
    record = file.record()
    assert record is not None
    assert "killed 5 times" in str(record)


def test_a_stale_socket_is_in_nobodys_way(file: EmbeddedFile) -> None:
    file.dial().close()
    pid = file.owner()
    os.kill(keeper_of(pid), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    await_end(pid)
    assert Path(f"{file.path}.sock").is_socket()
    with file.dial() as connected:
        assert owner_number(connected) == 2


@pytest.mark.parametrize("length", [80, 150, 250])
def test_a_path_of_any_length_works(file: EmbeddedFile, tmp_path: Path, length: int) -> None:
    folder = tmp_path / ("f" * 120)
    folder.mkdir()
    file.path = folder / ("d" * (length - len(".db")) + ".db") if length < 250 else folder / ("d" * 240 + ".db")
    with file.dial() as first, file.dial() as second:
        assert owner_number(first) == owner_number(second) == 1


def test_a_stopped_owner_is_reported_and_not_killed(file: EmbeddedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    dialer = file.dialer()
    file.dial(dialer).close()
    pid = file.owner()
    monkeypatch.setattr(dialer_module, "ANSWER_S", 0.2)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(OwnerNotResponding, match=f"pid {pid}") as caught:
            file.dial(dialer)
        assert caught.value.pid == pid
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    with file.dial(dialer) as connected:
        assert owner_number(connected) == 1


def test_looking_only_starts_nothing_and_leaves_no_file(file: EmbeddedFile) -> None:
    looking = file.dialer(start=False)
    with pytest.raises(OwnerNotFound, match="starts none"):
        file.dial(looking)
    assert list(file.path.parent.iterdir()) == []
    file.dial().close()
    with file.dial(looking) as connected:
        assert owner_number(connected) == 1


def test_an_owner_whose_file_is_replaced_ends_and_leaves_the_new_one_alone(file: EmbeddedFile, tmp_path: Path) -> None:
    file.dial().close()
    pid = file.owner()
    keeper = keeper_of(pid)
    other = EmbeddedFile(tmp_path / "other" / "new.db")
    try:
        client = other.client(other.dialer(idle_s=0.1))
        assert client.ask("POST", "/v1/queues", {"name": "restored", "settings": {}}).status == 201
        other.note_processes()
        owner = other.owner()
    finally:
        os.kill(owner, signal.SIGTERM)
        await_end(owner)
        other.close()
    other.path.rename(file.path)
    await_end(pid)
    await_end(keeper)
    restored = file.client().ask("GET", "/v1/queues").json()["queues"]
    assert [queue["name"] for queue in restored] == ["restored"]


# -- versions -------------------------------------------------------------------------------------


def test_a_newer_client_takes_over_from_an_older_owner(file: EmbeddedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.dial().close()
    older = file.owner()
    monkeypatch.setattr(dialer_module, "SCHEMA", SCHEMA + 1)
    with file.dial() as connected:
        assert owner_number(connected) == 2
    await_end(older)


def test_an_older_client_stays_a_client_of_a_newer_owner(file: EmbeddedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.dial().close()
    monkeypatch.setattr(dialer_module, "SCHEMA", SCHEMA - 1)
    with file.dial() as connected:
        assert owner_number(connected) == 1


def test_an_older_version_does_not_open_a_newer_file(file: EmbeddedFile) -> None:
    with closing(sqlite3.connect(file.path)) as db:
        db.execute("PRAGMA application_id = 0x50454E53")
        db.execute("PRAGMA user_version = 99")
        db.execute("CREATE TABLE later (x)")
    with pytest.raises(OwnerNotStarted, match="newer version of Penstock"):
        file.dial()
    record = file.record()
    assert record is not None
    assert record.state == "failed"
    assert "newer version" in str(record.error)


# -- penstock serve -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["jobs.db.sock", "elsewhere.sock"])
def test_clients_find_a_server_that_somebody_runs(
    file: EmbeddedFile, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / name
    with RunningServer(tmp_path, "--socket", str(place), "--store", f"sqlite:{file.path}") as server:
        assert server.url == f"unix:{place}"
        assert file.client().ask("GET", "/v1/owner").json()["pid"] == server.process.pid
        assert listening_ports(server.process.pid) == [], "--socket opens no port"
        # A newer client does not end what an operator runs.
        monkeypatch.setattr(dialer_module, "SCHEMA", SCHEMA + 1)
        assert file.client().ask("GET", "/v1/owner").json()["pid"] == server.process.pid
        server.process.terminate()
        assert server.process.wait(PATIENCE_S) == 0
    assert not place.exists()


def test_a_server_without_a_socket_is_named_as_who_has_the_file(file: EmbeddedFile, tmp_path: Path) -> None:
    with (
        RunningServer(tmp_path, "--port", "0", "--store", f"sqlite:{file.path}") as server,
        pytest.raises(OwnerError, match=f"pid {server.process.pid}.*--socket"),
    ):
        file.dial()


def test_serve_refuses_a_socket_that_is_in_use_or_none_at_all(tmp_path: Path) -> None:
    taken = tmp_path / "taken.sock"
    with (
        RunningServer(tmp_path, "--socket", str(taken), "--store", "memory:"),
        pytest.raises(AssertionError, match="in use by another process"),
    ):
        RunningServer(tmp_path, "--socket", str(taken), "--store", "memory:")
    (tmp_path / "text").write_text("precious")
    with pytest.raises(AssertionError, match="is not a socket"):
        RunningServer(tmp_path, "--socket", str(tmp_path / "text"), "--store", "memory:")


# -- where it cannot work -------------------------------------------------------------------------


def test_a_program_that_is_not_python_is_told_what_to_do(file: EmbeddedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/usr/bin/uwsgi")
    with pytest.raises(OwnerNotStarted, match=r"uwsgi.*owner=\"thread\".*penstock serve --socket"):
        file.dial()


def test_a_process_that_cannot_be_started_frees_the_lock(file: EmbeddedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("sys.executable", "/nowhere/python3")
        with pytest.raises(OwnerNotStarted, match="No such file"):
            file.dial()
    with file.dial() as connected:
        assert owner_number(connected) == 1


def listening_ports(pid: int) -> list[str]:
    """List the TCP sockets that a process listens on."""
    found = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if f"pid={pid}," in line]
