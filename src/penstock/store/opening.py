"""Opens the store that a URL names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.domain.clock import SystemClock
from penstock.domain.errors import StoreUrlInvalid
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import RandomIds
from penstock.domain.limits import Limits

if TYPE_CHECKING:
    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.job_limits import JobLimits
    from penstock.store.port import Store

_FORMS = "A store is named as sqlite:PATH, memory: or postgresql://HOST/DATABASE."


async def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    limits: Limits | None = None,
    job_limits: JobLimits | None = None,
    failpoints: Failpoints | None = None,
) -> Store:
    """Open `sqlite:PATH` (made with its folder where it is missing), `memory:` or `postgresql://…`.

    Raises `StoreUrlInvalid` for any other text, `StoreInUse` and `StoreIncompatible` as the stores do. What is left out
    is the system's clock, random ids, the usual limits and no failpoints.
    """
    clock = clock or SystemClock()
    ids = ids or RandomIds()
    limits = limits or Limits()
    failpoints = Failpoints() if failpoints is None else failpoints
    scheme, colon, rest = url.partition(":")
    if not colon:
        message = f"The store's address has no scheme. {_FORMS}"
        raise StoreUrlInvalid(message)

    if scheme in ("postgresql", "postgres"):
        if not rest.startswith("//"):
            message = f"The store's address lacks the // after its scheme. {_FORMS}"
            raise StoreUrlInvalid(message)
        # Only who uses PostgreSQL pays for loading its driver.
        from penstock.store.postgres import PostgresStore  # noqa: PLC0415

        return await PostgresStore.open(
            url, clock=clock, ids=ids, limits=limits, job_limits=job_limits, failpoints=failpoints
        )

    from penstock.store.sqlite import SqliteStore  # noqa: PLC0415  # Likewise.

    if scheme == "memory" and not rest:
        path = ":memory:"
    elif scheme == "sqlite" and rest:
        path = _file_path(rest)
    else:
        message = f"There is no store of the kind {scheme}:{'' if scheme == 'sqlite' else rest[:20]} here. {_FORMS}"
        raise StoreUrlInvalid(message)
    return await SqliteStore.open(
        path, clock=clock, ids=ids, limits=limits, job_limits=job_limits, failpoints=failpoints
    )


def sqlite_file(url: str) -> str | None:
    """Return the path of the file that `sqlite:PATH` names, making its folder; None if the URL names another store."""
    scheme, _, rest = url.partition(":")
    return _file_path(rest) if scheme == "sqlite" and rest else None


def _file_path(rest: str) -> str:
    """Make the folder of a database file, and give the file's path; `sqlite:///PATH` is understood too."""
    if rest.startswith("///"):
        rest = rest[2:]
    elif rest.startswith("//"):
        message = f"A SQLite store is a file, on no other host. {_FORMS}"
        raise StoreUrlInvalid(message)
    path = Path(rest).expanduser()
    if rest.endswith("/") or path.is_dir():
        message = f"The store's address names a folder, {rest}, where a file should be. {_FORMS}"
        raise StoreUrlInvalid(message)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"The store's folder {path.parent} cannot be made: {error.strerror}."
        raise StoreUrlInvalid(message) from error
    return str(path)
