"""Who may use an embedded store's file, and what refuses a second owner that does not see the first one's lock."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.client.errors import OwnerAccessDenied, OwnerNotStarted
from penstock.store.ownership.record import Record, write_record
from tests.end_to_end.running import RunningServer
from tests.support.embedded import EmbeddedFile, in_child, owner_number

STRANGER = 65_534
FRIENDS = 54_321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def shared() -> Iterator[EmbeddedFile]:
    """A file in a folder that other users can look into."""
    with tempfile.TemporaryDirectory(prefix="penstock-shared-") as folder:
        Path(folder).chmod(0o755)
        with closing(EmbeddedFile(Path(folder) / "jobs.db")) as file:
            yield file


# -- files ----------------------------------------------------------------------------------------


def test_new_files_are_private(file: EmbeddedFile) -> None:
    before = os.umask(0)
    try:
        file.dial().close()
    finally:
        os.umask(before)
    found = {place.name: stat.S_IMODE(place.stat().st_mode) for place in file.path.parent.iterdir()}
    assert set(found) == {"jobs.db", "jobs.db-shm", "jobs.db-wal", "jobs.db.lock", "jobs.db.log", "jobs.db.sock"}
    assert set(found.values()) == {0o600}


def test_the_files_of_a_plain_server_are_private_too(file: EmbeddedFile, tmp_path: Path) -> None:
    with RunningServer(tmp_path, "--port", "0", "--store", f"sqlite:{file.path}"):
        found = {place.name: stat.S_IMODE(place.stat().st_mode) for place in tmp_path.glob("jobs.db*")}
    assert found == dict.fromkeys(["jobs.db", "jobs.db-shm", "jobs.db-wal", "jobs.db.lock"], 0o600)


def test_lock_and_socket_take_the_mode_of_a_database_that_exists(file: EmbeddedFile) -> None:
    file.path.touch()
    file.path.chmod(0o660)
    Path(f"{file.path}.lock").touch(0o644)
    file.dial().close()
    found = {place.name: stat.S_IMODE(place.stat().st_mode) for place in file.path.parent.iterdir()}
    assert {found["jobs.db"], found["jobs.db.lock"], found["jobs.db.sock"], found["jobs.db-wal"]} == {0o660}


@as_root
def test_a_group_can_share_a_file_and_a_stranger_is_refused(shared: EmbeddedFile) -> None:
    shared.path.touch()
    os.chown(shared.path, -1, FRIENDS)
    shared.path.chmod(0o660)
    shared.dial().close()

    def look() -> int:
        return owner_number(shared.dial(shared.dialer()))

    assert in_child(look, user=STRANGER, groups=[FRIENDS]) == "1"
    assert OwnerAccessDenied.__name__ in in_child(look, user=STRANGER)


@as_root
def test_a_user_who_may_not_use_the_file_is_refused_whatever_the_socket_allows(shared: EmbeddedFile) -> None:
    shared.dial().close()
    Path(f"{shared.path}.sock").chmod(0o666)

    told = in_child(shared.dial, user=STRANGER)
    assert "OwnerAccessDenied" in told
    assert "may not use this store" in told


@as_root
def test_a_folder_that_cannot_be_written_is_a_clear_error(shared: EmbeddedFile) -> None:
    told = in_child(shared.dial, user=STRANGER)
    assert "cannot be opened: Permission denied" in told
    assert "jobs.db.lock" in told


# -- a second owner -------------------------------------------------------------------------------


def test_without_the_lock_file_a_second_owner_is_refused(file: EmbeddedFile) -> None:
    file.dial().close()
    file.note_processes()
    Path(f"{file.path}.lock").unlink()
    Path(f"{file.path}.sock").unlink()
    with pytest.raises(OwnerNotStarted, match=r"in use by another process.*lock file was removed"):
        file.dial()


def test_a_hard_link_to_a_file_in_use_is_refused(file: EmbeddedFile, tmp_path: Path) -> None:
    file.dial().close()
    link = tmp_path / "link.db"
    link.hardlink_to(file.path)
    with pytest.raises(OwnerNotStarted, match="by another name"):
        file.dial(file.dialer(path=link))


def test_a_symbolic_link_leads_to_the_same_owner(file: EmbeddedFile, tmp_path: Path) -> None:
    file.dial().close()
    (tmp_path / "folder").mkdir()
    link = tmp_path / "folder" / "link.db"
    link.symlink_to(file.path)
    with file.dial(file.dialer(path=link)) as connected:
        assert owner_number(connected) == 1


def leave_record(file: EmbeddedFile, boot: str) -> None:
    with Path(f"{file.path}.lock").open("wb") as lock:
        record = Record(state="ready", pid=4711, version="9", schema=1, boot=boot, since_ms=0, socket="jobs.db.sock")
        write_record(lock.fileno(), record)


def test_a_file_in_use_by_another_kernel_is_refused_until_its_owner_is_gone(file: EmbeddedFile) -> None:
    leave_record(file, "another-boot")
    with pytest.raises(OwnerNotStarted, match=r"another machine.*pid 4711"):
        file.dial()
    leave_record(file, "another-boot")
    long_ago = Path(f"{file.path}.lock").stat().st_mtime - 16
    os.utime(f"{file.path}.lock", (long_ago, long_ago))
    with file.dial() as connected:
        assert owner_number(connected) == 1


def test_a_record_of_a_dead_owner_on_this_kernel_is_in_nobodys_way(file: EmbeddedFile) -> None:
    leave_record(file, Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with file.dial() as connected:
        assert owner_number(connected) == 1


def test_the_record_is_one_line_that_says_who_owns_the_file(file: EmbeddedFile) -> None:
    file.dial().close()
    line = Path(f"{file.path}.lock").read_bytes()
    assert line.count(b"\n") == 1
    told = msgspec.json.decode(line)
    assert told["state"] == "ready"
    assert told["socket"] == "jobs.db.sock"
    assert set(told) == {"state", "pid", "version", "schema", "boot", "since_ms", "socket", "error"}
