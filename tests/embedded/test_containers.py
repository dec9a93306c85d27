"""Processes in other namespaces of one kernel, as in containers, share a file whose folder both of them see."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.embedded import PATIENCE_S, EmbeddedFile

NAMESPACES = ["--net", "--pid", "--fork", "--mount", "--uts", "--ipc"]
LOOK = """
import os, sys
from penstock import Penstock
with Penstock(sys.argv[1], timeout=40) as app:
    name = app.sync.queues.put(sys.argv[2]).name
    print(os.getpid(), name, len(app.sync.queues.list().queues))
"""


def _permitted() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(
    not _permitted(), reason="NOT TESTED: sharing a file between containers (unshare is missing or not permitted)"
)


def in_container(file: EmbeddedFile, place: Path, queue: str) -> str:
    """Put a queue from namespaces of its own, where the file's folder is at `place`; return what is told."""
    place.mkdir(exist_ok=True)
    inside = f'mount --bind "{file.path.parent}" "{place}" && exec "$@"'
    program = ["sh", "-c", inside, "sh", sys.executable, "-c", LOOK, f"sqlite:{place}/jobs.db", queue]
    done = subprocess.run(
        ["unshare", *NAMESPACES, *program], capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("container") / "data"


def test_a_container_uses_an_owner_outside_of_it(file: EmbeddedFile, place: Path) -> None:
    client = file.client()
    assert client.ask("POST", "/v1/queues", {"name": "outside", "settings": {}}).status == 201
    told = in_container(file, place, "inside")
    assert told.split()[1:] == ["inside", "2"], "it sees what was there"
    assert int(told.split()[0]) < 100, "it has its own process numbers"
    assert client.ask("GET", "/v1/queues/inside").status == 200
    assert client.ask("GET", "/v1/owner").json()["number"] == 1


def test_after_a_container_with_the_owner_the_next_client_starts_one(file: EmbeddedFile, place: Path) -> None:
    # With its first process a pid namespace ends, and whatever runs in it, the owner among them.
    assert in_container(file, place, "inside").split()[1:] == ["inside", "1"]
    client = file.client()
    assert client.insist("GET", "/v1/queues/inside").status == 200
    assert client.ask("GET", "/v1/owner").json()["number"] == 2
    file.note_processes()
