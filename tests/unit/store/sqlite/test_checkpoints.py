"""The log is moved into the database mostly beside the commits, and never grows without bound."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from penstock.store.sqlite import checkpoints as checkpoints_module
from penstock.store.sqlite.checkpoints import Checkpoints
from penstock.store.sqlite.connection import PAGE_BYTES, connect

PAGES_MAX = 50


@pytest.fixture
def db(path: Path) -> Iterator[apsw.Connection]:
    db = connect(str(path))
    db.execute("CREATE TABLE note (text TEXT)")
    yield db
    db.close()


@pytest.fixture
def checkpoints(db: apsw.Connection, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checkpoints]:
    monkeypatch.setattr(checkpoints_module, "WAL_PAGES_MAX", PAGES_MAX)
    monkeypatch.setattr(checkpoints_module, "WAL_PAGES_HELD_UP", 4 * PAGES_MAX)
    checkpoints = Checkpoints(str(path))
    yield checkpoints
    closed: queue.SimpleQueue[apsw.Error | None] = queue.SimpleQueue()
    checkpoints.begin_to_close(db, closed.put)
    assert closed.get(timeout=10) is None


def write(db: apsw.Connection, notes: int) -> None:
    for _ in range(notes):
        db.execute("INSERT INTO note VALUES (?)", ("x" * 10_000,))


def database_bytes(path: Path) -> int:
    return path.stat().st_size


def test_the_bulk_is_copied_before_commits_are_held_up(
    db: apsw.Connection, checkpoints: Checkpoints, path: Path
) -> None:
    write(db, notes=PAGES_MAX)
    before = database_bytes(path)
    assert not checkpoints.due(PAGES_MAX), "commits go on while the bulk is copied"
    checkpoints.wait()
    assert database_bytes(path) > before + PAGES_MAX * PAGE_BYTES
    assert checkpoints.due(PAGES_MAX + 1), "now the rest can follow"


def test_after_the_rest_the_log_begins_anew(db: apsw.Connection, checkpoints: Checkpoints, path: Path) -> None:
    write(db, notes=PAGES_MAX)
    checkpoints.due(PAGES_MAX)
    write(db, notes=3)
    checkpoints.finish(db)
    log = path.with_name(path.name + "-wal")
    size = log.stat().st_size
    write(db, notes=PAGES_MAX // 2)
    assert log.stat().st_size == size, "written from its beginning, in the room it has"
    assert not checkpoints.due(PAGES_MAX - 1)


def test_commits_wait_for_a_copy_that_falls_far_behind(checkpoints: Checkpoints) -> None:
    assert not checkpoints.due(PAGES_MAX)
    assert checkpoints.due(PAGES_MAX + 4 * PAGES_MAX), "whether it has come to an end or not"


def test_who_reads_the_file_is_not_waited_for_at_every_commit(
    db: apsw.Connection, checkpoints: Checkpoints, path: Path
) -> None:
    write(db, notes=1)
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM note").fetchall()
    write(db, notes=PAGES_MAX)
    checkpoints.due(3 * PAGES_MAX)
    checkpoints.finish(db)
    assert not checkpoints.due(3 * PAGES_MAX + 1)
    checkpoints.wait()
    assert not checkpoints.due(3 * PAGES_MAX + 2), "it begins again only when the log has grown as much again"
    reader.close()
