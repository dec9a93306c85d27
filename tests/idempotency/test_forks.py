"""Forked children use the same records, and do not disturb their parent."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from penstock import Idempotency, SQLiteRecords, errors
from penstock.client.idempotency import sqlite_records
from penstock.client.idempotency.records import Completed, Held, Records
from penstock.testing import ManualClock
from tests.idempotency.stores import DAY_MS, LEASE_MS, Opener, in_a_child

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_parent_and_child_share_records_and_no_connection(records: Records, clock: ManualClock) -> None:
    idem = Idempotency(records, clock=clock, lru=0)
    charge = idem(key="{order}", scope="s")(_pid)
    before = charge(1)

    def child() -> None:
        assert charge(1) == before
        assert charge(turn) == os.getpid()

    for turn in (2, 3):
        assert in_a_child(child) == 0
        assert charge(1) == before
        assert charge(turn) != os.getpid()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no list of open files here")
def test_no_connection_to_a_file_is_open_in_a_child(tmp_path: Path) -> None:
    """SQLite would take the parent's locks for the child's own."""
    records = SQLiteRecords(tmp_path / "records.db")
    records.create()
    assert "records.db" in _open_files()
    assert in_a_child(lambda: _same("records.db" in _open_files(), other=False)) == 0
    records.close()


def _open_files() -> str:
    return " ".join(str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.exists())


def _pid(order: int) -> int:
    return os.getpid()


def test_a_child_neither_completes_nor_gives_up_what_its_parent_holds(records: Records, clock: ManualClock) -> None:
    idem = Idempotency(records, clock=clock)
    with idem.lease("a") as lease:
        child = os.fork()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert isinstance(records.start(":a", "b", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint=""), Held)
            lease.complete("parent")
        else:
            lease.complete("child")
    if not child:
        os._exit(0)
    with idem.lease("a") as again:
        assert again.result == "parent"


def test_a_child_renews_nothing_of_its_parent(opener: Opener, clock: ManualClock) -> None:
    idem = Idempotency(opener(clock=clock), clock=clock)
    with idem.lease("a"):
        assert in_a_child(lambda: _same(idem.renewals.renew_due(), 0)) == 0


def _same(one: object, other: object) -> None:
    assert one == other


def test_forks_while_other_threads_use_the_records(opener: Opener) -> None:
    records = opener()
    idem = Idempotency(records)
    stop = threading.Event()
    failed: list[BaseException] = []

    def use(number: int) -> None:
        try:
            for turn in range(100_000):
                with idem.lease((number, turn)):
                    pass
                if stop.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()

    def child() -> None:
        with idem.lease(os.getpid(), scope="child") as lease:
            lease.complete(1)

    codes = [in_a_child(child) for _ in range(10)]
    stop.set()
    for thread in threads:
        thread.join(30)
    assert codes == [0] * 10
    assert failed == []


def test_what_is_in_memory_stays_with_its_process() -> None:
    records = SQLiteRecords(":memory:")
    with Idempotency(records).lease("a"):
        pass

    def child() -> None:
        with pytest.raises(errors.WrongProcess, match="Name a file"), Idempotency(records).lease("a"):
            pass

    assert in_a_child(child) == 0
    assert isinstance(records.start(":a", "b", lease_ms=1, ttl_ms=1, fingerprint=""), Completed)
    records.close()


@pytest.mark.slow
def test_processes_that_write_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """Each opens the new file itself, and runs the same keys."""
    path = tmp_path / "shared.db"
    ledger = tmp_path / "ledger"

    def work() -> None:
        with Idempotency(SQLiteRecords(path), wait=30, lru=0) as idem:

            @idem(key="{number}", scope="s")
            def note(number: int) -> int:
                with ledger.open("a") as lines:
                    lines.write(f"{number}\n")
                return number

            assert [note(number) for number in range(40)] == list(range(40))

    children = []
    for _ in range(5):
        child = os.fork()
        if not child:
            code = 1
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * 5
    assert sorted(map(int, ledger.read_text().split())) == list(range(40))


def test_two_threads_that_fork_take_turns(tmp_path: Path) -> None:
    """Otherwise the first to end its fork would unlock what the second has locked for its own."""
    records = SQLiteRecords(tmp_path / "records.db")
    order: list[str] = []

    def fork_too() -> None:
        sqlite_records.lock_for_fork()
        order.append("second begins")
        sqlite_records.unlock_after_fork()

    sqlite_records.lock_for_fork()
    other = threading.Thread(target=fork_too)
    other.start()
    other.join(0.05)
    records.after_fork()  # As far as the end of the first fork has come when the second looks.
    other.join(0.05)
    order.append("first ends")
    records.before_fork()
    sqlite_records.unlock_after_fork()
    other.join()
    assert order == ["first ends", "second begins"]
    records.close()
