"""Opens the store that a URL names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.clock import SystemClock
from penstock.domain.errors import ExtraMissing, StoreUrlInvalid
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import OrderedIds
from penstock.domain.limits import Limits
from penstock.store.ownership.paths import STORE_FORMS, file_path

if TYPE_CHECKING:
    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.job_limits import JobLimits
    from penstock.store.port import Store


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

    Raises `StoreUrlInvalid` for any other text, `ExtraMissing` where the driver of PostgreSQL is not installed, and
    `StoreInUse` and `StoreIncompatible` as the stores do. What is left out is the system's clock, random ids, the usual
    limits and no failpoints.
    """
    clock = clock or SystemClock()
    ids = ids or OrderedIds()
    limits = limits or Limits()
    failpoints = Failpoints() if failpoints is None else failpoints
    scheme, colon, rest = url.partition(":")
    if not colon:
        message = f"The store's address has no scheme. {STORE_FORMS}"
        raise StoreUrlInvalid(message)

    if scheme in ("postgresql", "postgres"):
        if not rest.startswith("//"):
            message = f"The store's address lacks the // after its scheme. {STORE_FORMS}"
            raise StoreUrlInvalid(message)
        # Only who uses PostgreSQL pays for loading its driver.
        try:
            from penstock.store.postgres import PostgresStore  # noqa: PLC0415
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            message = "A store on PostgreSQL needs asyncpg, which is not installed: pip install 'penstock[postgres]'."
            raise ExtraMissing(message) from None

        return await PostgresStore.open(
            url, clock=clock, ids=ids, limits=limits, job_limits=job_limits, failpoints=failpoints
        )

    from penstock.store.sqlite import SqliteStore  # noqa: PLC0415  # Likewise.

    if scheme == "memory" and not rest:
        path = ":memory:"
    elif scheme == "sqlite" and rest:
        path = file_path(rest)
    else:
        message = (
            f"There is no store of the kind {scheme}:{'' if scheme == 'sqlite' else rest[:20]} here. {STORE_FORMS}"
        )
        raise StoreUrlInvalid(message)
    return await SqliteStore.open(
        path, clock=clock, ids=ids, limits=limits, job_limits=job_limits, failpoints=failpoints
    )
