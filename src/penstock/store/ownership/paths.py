"""The names of a database file and of the files beside it, and who may use them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from penstock.domain.errors import StoreUrlInvalid

STORE_FORMS = "A store is named as sqlite:PATH, memory: or postgresql://HOST/DATABASE."

PRIVATE = 0o600
"""The mode of new files."""


def lock_path(path: str) -> str:
    """Return the name of the lock file of a database."""
    return path + ".lock"


def socket_path(path: str) -> str:
    """Return the name of the socket on which a database's owner serves, unless its record names another."""
    return path + ".sock"


def canonical_path(path: str) -> str:
    """Return the one name by which a database is locked, however it was named."""
    return os.path.realpath(path)


def sharing_of(path: str) -> tuple[int, int | None]:
    """Return the mode and the group of a database file, for its lock and socket; if there is none, they are private."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return PRIVATE, None
    return stat.S_IMODE(found.st_mode), found.st_gid


def sqlite_file(url: str) -> str | None:
    """Return the path of the file that `sqlite:PATH` names, making its folder; None if the URL names another store."""
    scheme, _, rest = url.partition(":")
    return file_path(rest) if scheme == "sqlite" and rest else None


def file_path(rest: str) -> str:
    """Make the folder of a database file, and give the file's path; `sqlite:///PATH` is understood too."""
    if rest.startswith("///"):
        rest = rest[2:]
    elif rest.startswith("//"):
        message = f"A SQLite store is a file, on no other host. {STORE_FORMS}"
        raise StoreUrlInvalid(message)
    path = Path(rest).expanduser()
    if rest.endswith("/") or path.is_dir():
        message = f"The store's address names a folder, {rest}, where a file should be. {STORE_FORMS}"
        raise StoreUrlInvalid(message)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"The store's folder {path.parent} cannot be made: {error.strerror}."
        raise StoreUrlInvalid(message) from error
    return str(path)
