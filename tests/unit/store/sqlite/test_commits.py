"""Group commit: many calls in one transaction, each with its own outcome, and nobody left waiting."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from penstock.domain.errors import PurgeInProgress, StoreUnavailable
from penstock.store.sqlite import checkpoints as checkpoints_module
from penstock.store.sqlite import log_sync as log_sync_module
from penstock.store.sqlite.calls import Call, Work
from penstock.store.sqlite.commits import Commits
from penstock.store.sqlite.connection import PAGE_BYTES, connect

if TYPE_CHECKING:
    from penstock.store.sqlite.log_sync import Synced


class Notes:
    """A table of notes, a cached count of them, and what was told about transactions."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        self.cached: int | None = None
        self.begun = 0
        self.under_way = asyncio.Event()
        self.dropped = 0
        self.commits = 0
        self.fail_after_commit = False
        db.execute("CREATE TABLE note (text TEXT UNIQUE); CREATE TABLE tally (id INTEGER PRIMARY KEY, total INTEGER)")

    def begin(self) -> None:
        self.begun += 1
        self.under_way.set()

    def save(self) -> None:
        self.db.execute("REPLACE INTO tally VALUES (1, ?)", (self.count(),))

    def drop(self) -> None:
        self.cached = None
        self.dropped += 1

    def committed(self) -> None:
        self.commits += 1
        if self.fail_after_commit:
            message = "a bug of ours"
            raise AssertionError(message)

    def count(self) -> int:
        if self.cached is None:
            self.cached = self.db.execute("SELECT count(*) FROM note").get
        assert self.cached is not None
        return self.cached

    def write(self, text: str, error: Exception | None = None) -> int:
        """Write a note and count it; then fail, if so wished, with half of the work done."""
        counted = self.count()
        self.db.execute("INSERT INTO note (text) VALUES (?)", (text,))
        self.cached = counted + 1
        if error is not None:
            raise error
        return self.cached

    def work(self, text: str, error: Exception | None = None) -> Work[int]:
        return Work(partial(self.write, text, error))

    def texts(self) -> list[str]:
        return [row[0] for row in self.db.execute("SELECT text FROM note ORDER BY rowid")]


def run_all(calls: Sequence[Work[object]]) -> None:
    for call in calls:
        try:
            call.answer = call.run()
        except PurgeInProgress as error:
            call.error = error


@pytest.fixture
def db(path: Path) -> apsw.Connection:
    return connect(str(path))


@pytest.fixture
def notes(db: apsw.Connection) -> Notes:
    return Notes(db)


@pytest.fixture
async def commits(db: apsw.Connection, notes: Notes) -> AsyncIterator[Commits]:
    db.set_busy_timeout(0)
    lane = Commits(db, notes, {Work: run_all}, pending_max=100, in_memory=False)
    yield lane
    if not lane.closed:
        await lane.close()


async def done(future: asyncio.Future[Any]) -> object:
    """Return a call's answer, or what it raised."""
    outcomes: list[object] = await asyncio.gather(future, return_exceptions=True)
    return outcomes[0]


async def test_who_wants_to_be_told_is_told_after_the_commit_whatever_others_make_of_it(
    commits: Commits, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[object, object]] = []
    end = asyncio.get_running_loop().create_future()

    def fail(answer: int | None, error: BaseException | None) -> None:
        told.append((answer, type(error)))
        raise RuntimeError("a bug of the caller")

    failure = PurgeInProgress("not now")
    commits.begin(notes.work("a"), lambda *what: told.append(what))
    commits.begin(notes.work("b"), fail)
    commits.begin(notes.work("c", failure), lambda *what: told.append(what))
    commits.begin(notes.work("d"), lambda *_: end.set_result(notes.commits))
    assert await end == 1
    assert told == [(1, None), (2, type(None)), (None, RuntimeError), (None, failure)]
    assert notes.texts()[:2] == ["a", "b"]
    assert "a bug of the caller" in caplog.text


async def test_calls_that_wait_together_share_a_commit(commits: Commits, notes: Notes) -> None:
    answers = await asyncio.gather(*(commits.run(notes.work(str(n))) for n in range(50)))
    assert answers == list(range(1, 51))
    assert notes.commits == 1


async def test_calls_that_arrive_during_a_commit_share_the_next(commits: Commits, notes: Notes) -> None:
    first = commits.run(notes.work("first"))
    await notes.under_way.wait()
    later = [commits.run(notes.work(str(n))) for n in range(20)]
    await asyncio.gather(first, *later)
    assert notes.commits == 2


async def test_a_call_that_fails_leaves_the_others_whole(commits: Commits, notes: Notes) -> None:
    calls = [
        notes.work("before"),
        notes.work("half", ZeroDivisionError()),
        notes.work("after"),
    ]
    before, failed, after = await asyncio.gather(*(commits.run(call) for call in calls), return_exceptions=True)
    assert (before, after) == (1, 2)
    assert isinstance(failed, ZeroDivisionError)
    assert notes.texts() == ["before", "after"]
    assert notes.commits == 1


async def test_what_sqlite_refuses_stays_with_the_call_too(commits: Commits, notes: Notes) -> None:
    calls = [notes.work("same"), notes.work("same")]
    first, second = await asyncio.gather(*(commits.run(call) for call in calls), return_exceptions=True)
    assert first == 1
    assert isinstance(second, StoreUnavailable)
    assert "UNIQUE" in second.reason
    assert notes.texts() == ["same"]


async def test_a_refusal_before_any_write_costs_no_second_run(commits: Commits, notes: Notes) -> None:
    def refuse() -> object:
        raise PurgeInProgress

    written, refused = commits.run(notes.work("kept")), commits.run(Work(refuse))
    assert await written == 1
    assert isinstance(await done(refused), PurgeInProgress)
    assert notes.begun == 1


async def test_a_commit_that_fails_is_told_to_all_and_undone(commits: Commits, notes: Notes) -> None:
    await commits.run(notes.work("kept"))
    notes.db.set_commit_hook(lambda: True)
    calls = [notes.work(str(n)) for n in range(3)]
    outcomes = await asyncio.gather(*(commits.run(call) for call in calls), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    notes.db.set_commit_hook(None)
    assert await commits.run(notes.work("later")) == 2, "what was counted in vain is forgotten"
    assert notes.texts() == ["kept", "later"]


async def test_a_store_that_cannot_be_written_says_so_and_recovers(commits: Commits, notes: Notes, path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    assert isinstance(await done(commits.run(notes.work("locked out"))), StoreUnavailable)
    other.execute("ROLLBACK")
    other.close()
    assert await commits.run(notes.work("let in")) == 1


async def test_a_full_disk_is_told_and_what_was_acknowledged_stays(commits: Commits, notes: Notes) -> None:
    kept = [str(number).ljust(3_000) for number in range(5)]
    for text in kept:
        await commits.run(notes.work(text))
    notes.db.pragma("max_page_count", notes.db.pragma("page_count"))
    calls = [notes.work(str(number).ljust(30_000)) for number in range(3)]
    outcomes = await asyncio.gather(*(commits.run(call) for call in calls), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["The store failed: database or disk is full."] * 3
    notes.db.pragma("max_page_count", 1_000_000)
    assert await commits.run(notes.work("room again")) == 6
    assert notes.texts() == [*kept, "room again"]


class FailingSync:
    """A log on a disk that fails."""

    def start(self, synced: Synced) -> None:
        asyncio.get_running_loop().call_soon(synced, OSError(errno.EIO, "Input/output error"))

    def close(self) -> None:
        """Nothing was opened."""


async def test_a_log_that_cannot_be_synced_closes_the_store_to_all(
    commits: Commits, notes: Notes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await commits.run(notes.work("kept"))
    notes.under_way.clear()
    with monkeypatch.context() as patched:
        patched.setattr(commits, "_log", FailingSync())
        committed = commits.run(notes.work("who knows"))
        await notes.under_way.wait()
        gathered = commits.run(notes.work("too late"))
        told = await asyncio.gather(committed, gathered, return_exceptions=True)
    assert [type(outcome) for outcome in told] == [StoreUnavailable] * 2
    # The disk seems well again, but nobody knows what it has lost: only a restart can tell.
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        commits.run(notes.work("after"))
    assert notes.texts() == ["kept", "who knows"]
    assert "closed to all" in caplog.text


async def test_no_call_runs_before_the_one_before_is_durable(
    commits: Commits, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: asyncio.Queue[Synced] = asyncio.Queue()

    class SlowSync(FailingSync):
        def start(self, synced: Synced) -> None:
            syncs.put_nowait(synced)

    with monkeypatch.context() as patched:
        patched.setattr(commits, "_log", SlowSync())
        first = commits.run(notes.work("first"))
        durable = await syncs.get()
        second = commits.run(notes.work("second"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not first.done()
        assert notes.begun == 1
        durable(None)
        assert await first == 1
        (await syncs.get())(None)
        assert await second == 2


async def test_a_bug_in_what_follows_a_commit_hangs_nobody(commits: Commits, notes: Notes) -> None:
    notes.fail_after_commit = True
    assert isinstance(await done(commits.run(notes.work("durable"))), StoreUnavailable)
    notes.fail_after_commit = False
    assert await commits.run(notes.work("next")) == 2


async def test_who_is_cancelled_before_his_turn_is_not_served(commits: Commits, notes: Notes) -> None:
    cancelled = commits.run(notes.work("cancelled"))
    served = commits.run(notes.work("served"))
    cancelled.cancel()
    assert await served == 1
    assert notes.texts() == ["served"]


async def test_who_is_cancelled_during_the_commit_disturbs_nobody(commits: Commits, notes: Notes) -> None:
    cancelled = commits.run(notes.work("cancelled"))
    served = commits.run(notes.work("served"))
    await notes.under_way.wait()
    cancelled.cancel()
    assert await served == 2
    assert notes.texts() == ["cancelled", "served"]


async def test_more_than_may_wait_are_turned_away(db: apsw.Connection, notes: Notes) -> None:
    lane = Commits(db, notes, {Work: run_all}, pending_max=2, in_memory=False)
    waiting = [lane.run(notes.work(str(n))) for n in range(2)]
    with pytest.raises(StoreUnavailable, match="2 operations wait"):
        lane.run(notes.work("too many"))
    assert await asyncio.gather(*waiting) == [1, 2]
    await lane.close()


async def test_closing_does_what_is_pending_and_refuses_the_rest(commits: Commits, notes: Notes, path: Path) -> None:
    pending = [commits.run(notes.work(str(n))) for n in range(3)]
    await commits.close()
    assert [await future for future in pending] == [1, 2, 3]
    with pytest.raises(StoreUnavailable, match="closed"):
        commits.run(notes.work("late"))
    assert not path.with_name(path.name + "-wal").exists(), "the log is moved into the database"


async def test_the_log_stays_bounded_under_constant_load(
    db: apsw.Connection, notes: Notes, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints_module, "WAL_PAGES_MAX", 100)
    # However slow the disk is that the log is copied to.
    monkeypatch.setattr(checkpoints_module, "WAL_PAGES_HELD_UP", 100)
    lane = Commits(db, notes, {Work: run_all}, pending_max=100, in_memory=False)

    async def write(first: int) -> None:
        for number in range(first, 400, 4):
            await lane.run(notes.work(str(number).ljust(10_000)))

    await asyncio.gather(*(write(first) for first in range(4)))
    # At most both bounds, and the commits that passed them: four notes of three pages, and a few more.
    assert path.with_name(path.name + "-wal").stat().st_size < (100 + 100 + 50) * (PAGE_BYTES + 24)
    await lane.close()


async def test_someone_who_reads_the_file_holds_the_log_up_only_while_reading(
    db: apsw.Connection, notes: Notes, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints_module, "WAL_PAGES_MAX", 20)
    monkeypatch.setattr(checkpoints_module, "WAL_PAGES_HELD_UP", 20)
    lane = Commits(db, notes, {Work: run_all}, pending_max=100, in_memory=False)
    log = path.with_name(path.name + "-wal")

    async def write(names: range) -> None:
        for number in names:
            await lane.run(notes.work(str(number).ljust(10_000)))

    await write(range(2))
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM note").fetchall()
    await write(range(2, 40))
    held_up = log.stat().st_size
    reader.execute("COMMIT")
    reader.close()
    await write(range(40, 400))
    assert log.stat().st_size < held_up + (20 + 20 + 50) * (PAGE_BYTES + 24)
    await lane.close()


async def test_a_log_that_cannot_be_cut_keeps_nobody_waiting(
    db: apsw.Connection, notes: Notes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoints_module, "WAL_PAGES_MAX", 1)
    monkeypatch.setattr(checkpoints_module, "WAL_PAGES_HELD_UP", 0)

    def fail(_self: object, _db: apsw.Connection) -> None:
        raise MemoryError

    monkeypatch.setattr(checkpoints_module.Checkpoints, "finish", fail)
    lane = Commits(db, notes, {Work: run_all}, pending_max=100, in_memory=False)
    for number in range(5):
        assert await lane.run(notes.work(str(number))) == number + 1
    await lane.close()
    assert "could not be moved" in caplog.text


async def test_what_an_earlier_process_left_in_the_log_is_moved_and_synced_first(
    db: apsw.Connection, notes: Notes, path: Path, tmp_path: Path
) -> None:
    notes.write("left")
    copy = tmp_path / "copy.db"
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", f"{copy}{end}")
    assert copy.with_name("copy.db-wal").stat().st_size > 0
    opened = connect(str(copy))
    lane = Commits(opened, notes, {Work: run_all}, pending_max=100, in_memory=False)
    assert copy.with_name("copy.db-wal").stat().st_size == 0
    assert opened.execute("SELECT text FROM note").get == "left"
    await lane.close()
    db.close()


async def test_a_log_that_cannot_be_synced_is_not_opened(
    db: apsw.Connection, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(log_sync_module, "_sync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        Commits(db, notes, {Work: run_all}, pending_max=100, in_memory=False)
    db.close()


Handler = Callable[[Sequence[Any]], None]


def by_name(kind: str, done_in_order: list[str]) -> Handler:
    def handle(calls: Sequence[Any]) -> None:
        done_in_order.append(f"{kind}×{len(calls)}")
        run_all(calls)

    return handle


class LaterWork(Work[int]):
    """A second kind of call."""


async def test_a_checkpointer_that_cannot_open_its_file_says_so_at_once(tmp_path: Path) -> None:
    with pytest.raises(apsw.CantOpenError):
        checkpoints_module.Checkpoints(str(tmp_path / "missing" / "penstock.db"))


async def test_calls_of_a_kind_are_done_together(db: apsw.Connection, notes: Notes) -> None:
    order: list[str] = []
    handlers: dict[type[Call[Any]], Handler] = {Work: by_name("work", order), LaterWork: by_name("later", order)}
    lane = Commits(db, notes, handlers, pending_max=100, in_memory=True)
    kinds: list[type[Work[int]]] = [LaterWork, Work, LaterWork, Work, Work]
    await asyncio.gather(*(lane.run(kind(partial(notes.write, str(n)))) for n, kind in enumerate(kinds)))
    assert order == ["work×3", "later×2"]
    await lane.close()
