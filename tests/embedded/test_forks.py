"""After a fork: a child keeps no lock, listener or connection, and connects by itself."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.embedded import PATIENCE_S, EmbeddedFile, await_end, in_child, owner_number, run_python

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

OWN_IN_A_THREAD = """
import os, sys, time
from penstock.client.embedded.opening import owner_dialer

dialer = owner_dialer(sys.argv[1], owner="thread")
connected = dialer.dial(time.monotonic() + 40)
"""

FORK_AND_WAIT = (
    OWN_IN_A_THREAD
    + """
if os.fork() == 0:
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""
)


def test_a_forked_child_is_a_client_of_its_own(file: EmbeddedFile) -> None:
    dialer = file.dialer()
    file.dial(dialer).close()
    assert in_child(lambda: owner_number(file.dial(dialer))) == "1"
    with file.dial(dialer) as connected:
        assert owner_number(connected) == 1


def test_a_forked_child_does_not_keep_the_owner_alive(file: EmbeddedFile) -> None:
    dialer = file.dialer(idle_s=0.2)
    file.dial(dialer).close()
    pid = file.owner()

    def outlive() -> str:
        await_end(pid)
        return "the owner ended"

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, outlive().encode())
        os._exit(0)
    os.close(writing)
    dialer.close()
    with os.fdopen(reading) as told:
        assert told.read() == "the owner ended"
    os.waitpid(child, 0)


def test_a_child_of_a_thread_owner_keeps_neither_lock_nor_listener_nor_connections(file: EmbeddedFile) -> None:
    first = run_python(FORK_AND_WAIT, str(file.path))
    assert first.stdout is not None
    child = int(first.stdout.readline())
    try:
        client = file.client()
        assert client.ask("GET", "/v1/owner").json()["pid"] == first.pid
        os.kill(first.pid, signal.SIGKILL)
        first.wait(PATIENCE_S)
        # The connection ends, the lock is free, and nobody listens: another owner is started.
        view = client.insist("GET", "/v1/owner").json()
        assert view["number"] == 2
        assert view["pid"] not in {first.pid, child}
        file.note_processes()
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        first.communicate(timeout=PATIENCE_S)


def test_the_child_of_a_thread_owner_is_its_client(file: EmbeddedFile) -> None:
    dialer = file.dialer(owner="thread")
    file.dial(dialer).close()
    assert file.owner() == os.getpid()
    assert in_child(lambda: owner_number(file.dial(dialer))) == "1"
    assert in_child(lambda: file.client().ask("POST", "/v1/queues", {"name": "a", "settings": {}}).status) == "201"
    with file.dial(dialer) as connected:
        assert owner_number(connected) == 1


def test_a_program_with_a_thread_owner_ends_by_itself_and_closes_the_store(file: EmbeddedFile) -> None:
    program = run_python(OWN_IN_A_THREAD, str(file.path))
    _, errors = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, errors) == (0, "")
    assert {place.name for place in file.path.parent.iterdir()} == {"jobs.db", "jobs.db.lock"}
    assert file.record() is None


def test_a_program_that_raises_still_closes_its_thread_owner(file: EmbeddedFile) -> None:
    program = run_python(OWN_IN_A_THREAD + "\nraise SystemExit(3)\n", str(file.path))
    program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 3
    assert not (file.path.parent / "jobs.db-wal").exists()


def test_a_thread_owner_serves_other_processes_and_hands_over_when_it_ends(file: EmbeddedFile) -> None:
    dialer = file.dialer(owner="thread")
    client = file.client(dialer)
    assert client.ask("POST", "/v1/queues", {"name": "mail", "settings": {}}).status == 201
    other = file.client()
    assert other.ask("GET", "/v1/owner").json()["pid"] == os.getpid()
    client.close()
    dialer.close()
    assert other.insist("GET", "/v1/queues/mail").status == 200
    assert other.ask("GET", "/v1/owner").json()["number"] == 2
    file.note_processes()


def test_importing_penstock_or_a_client_loads_neither_engine_nor_server() -> None:
    program = run_python(
        "import sys, penstock, penstock.client; "
        "print([name for name in sys.modules if name.startswith(('penstock.engine', 'penstock.server', 'apsw'))])"
    )
    told, _ = program.communicate(timeout=PATIENCE_S)
    assert told == "[]\n"


def test_a_client_of_an_owner_process_loads_no_engine() -> None:
    program = run_python(
        "import sys, penstock.client.embedded.dialer; "
        "print([name for name in sys.modules if name in ('penstock.engine', 'apsw', 'uvloop', 'uvicorn', 'fastapi')])"
    )
    told, _ = program.communicate(timeout=PATIENCE_S)
    assert told == "[]\n"
