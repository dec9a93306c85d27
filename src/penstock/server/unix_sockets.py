"""Unix sockets: addresses of any length, a listener that appears all at once, and who is at the other end."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Generator

ADDRESS_BYTES_MAX = 107 if sys.platform == "linux" else 103
"""The longest name that bind(2) and connect(2) take."""

_SO_PEERGROUPS = 59
_GROUPS_MAX = 256
"""As many as Python reads of an option."""
_GROUP_BYTES = 4
_ROOT = 0


@contextlib.contextmanager
def short_address(path: str) -> Generator[str]:
    """Give a name of `path` that is short enough for bind(2) and connect(2), for as long as the block lasts."""
    folder, name = os.path.split(path)
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield path
    elif sys.platform == "linux" and len(os.fsencode(name)) < ADDRESS_BYTES_MAX - len("/proc/self/fd/123456/"):
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{descriptor}/{name}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory(prefix="ps-") as short:
            link = Path(short) / "s"
            link.symlink_to(path)
            yield str(link)


class UnixListener:
    """A socket that is bound aside, and takes its name only in `publish`: whoever finds it there can connect.

    So a stale socket of a dead process is replaced without an instant at which there is none.
    """

    def __init__(self, path: str, *, mode: int, group: int | None = None) -> None:
        """Bind aside. `mode` and `group` say who may connect. Raises `OSError`."""
        self.path = path
        folder, name = os.path.split(path)
        # Of a fixed length, however long the name is; the same one each time, so that none is left behind for good.
        self._aside = Path(folder) / f".penstock-{zlib.crc32(os.fsencode(name)):08x}.sock"
        self._identity: tuple[int, int] | None = None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # On Linux bind(2) takes the mode from here, so that it is never wider than this.
            with contextlib.suppress(OSError):
                os.fchmod(self.socket.fileno(), 0o600)
            self._aside.unlink(missing_ok=True)
            with short_address(str(self._aside)) as address:
                self.socket.bind(address)
            if group is not None and self._aside.stat().st_gid != group:
                with contextlib.suppress(PermissionError):
                    os.chown(self._aside, -1, group)
            self._aside.chmod(mode)
        except BaseException:
            self.socket.close()
            raise

    def publish(self) -> None:
        """Take the name, in the place of whatever had it. The socket must be listened on."""
        found = self._aside.stat()
        self._identity = found.st_dev, found.st_ino
        self._aside.rename(self.path)

    def retract(self) -> None:
        """Give the name up, unless another socket has it by now."""
        identity, self._identity = self._identity, None
        with contextlib.suppress(FileNotFoundError):
            found = Path(self.path).stat()
            if (found.st_dev, found.st_ino) == identity:
                Path(self.path).unlink()

    def descriptors(self) -> list[int]:
        """Return the descriptors of the socket and of all connections that it has accepted."""
        if self.socket.fileno() < 0:
            return []
        address = self.socket.getsockname()
        # Not all of them are known above: the event loop may just have accepted one.
        return [number for number in _open_descriptors() if _bound_to(number) == address]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.retract()
        self.socket.close()


def _open_descriptors() -> list[int]:
    return [int(entry.name) for entry in Path("/dev/fd").iterdir()]


def _bound_to(descriptor: int) -> object:
    """Return the address of a socket; None if the descriptor is none of a Unix socket."""
    try:
        found = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        return found.getsockname() if found.family == socket.AF_UNIX else None
    except OSError:
        return None
    finally:
        found.detach()


class Peers:
    """Who may use a socket: its own user, root, and whoever may read and write a file.

    The permissions of the socket say the same; but some systems ignore those.
    """

    def __init__(self, path: str | None) -> None:
        """`path` names the file; with None there is only the user, and root."""
        self._path = path

    def allow(self, connected: socket.socket) -> bool:
        """Return whether the process at the other end may use this server."""
        found = peer_of(connected)
        if found is None or found[0] in {_ROOT, os.geteuid()}:
            return True
        if self._path is None:
            return False
        user, groups = found
        try:
            file = Path(self._path).stat()
        except OSError:
            return False
        shift = 6 if user == file.st_uid else 3 if file.st_gid in groups else 0
        needed = (stat.S_IROTH | stat.S_IWOTH) << shift
        return file.st_mode & needed == needed


def peer_of(connected: socket.socket) -> tuple[int, frozenset[int]] | None:
    """Return the user and the groups of the process at the other end; None where the system does not say."""
    if sys.platform != "linux":
        return None
    form = "iII"
    _, user, group = struct.unpack(
        form, connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form))
    )
    try:
        listed = connected.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_MAX * _GROUP_BYTES)
    except OSError:
        listed = b""  # A kernel before 4.13, or more groups than that.
    return user, frozenset((group, *struct.unpack(f"{len(listed) // _GROUP_BYTES}I", listed)))
