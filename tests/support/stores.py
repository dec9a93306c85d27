"""Where the stores of tests are kept, and how they are opened, closed and opened again."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest

from penstock.domain.clock import Clock
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import IdSource
from penstock.domain.job_limits import JobLimits
from penstock.domain.limits import Limits
from penstock.engine import Engine
from penstock.store.port import Store
from penstock.store.postgres import PostgresStore
from penstock.store.sqlite import SqliteStore
from penstock.testing import CountedIds, ManualClock
from tests.support.postgres import PostgresServer


class Opener(Protocol):
    """Opens a store on one place; called again, it opens that same place once more."""

    async def __call__(self, *, clock: Clock, ids: IdSource, limits: Limits, failpoints: Failpoints) -> Store: ...

    async def url(self) -> str:
        """Return the place's address, as `Engine.open` takes it."""


Reopen = Callable[[], Awaitable[Store]]
"""Closes a store and opens it again, as a restart does."""


class SqliteFile:
    """Keeps a store in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __call__(self, *, clock: Clock, ids: IdSource, limits: Limits, failpoints: Failpoints) -> Store:
        return await SqliteStore.open(str(self._path), clock=clock, ids=ids, limits=limits, failpoints=failpoints)

    async def url(self) -> str:
        return f"sqlite:{self._path}"


def sqlite_at(path: Path) -> Opener:
    """Keep a store in a file."""
    return SqliteFile(path)


class PostgresDatabase:
    """Keeps a store in a database of its own, which is made when it is first opened, and dropped in the end.

    `copied` makes it from one that has the schema already, which is quicker; all copies have the same secret.
    """

    _templates: dict[PostgresServer, str] = {}  # noqa: RUF012 # Shared on purpose: one template for each server.

    def __init__(self, server: PostgresServer, *, copied: bool = True) -> None:
        self._server = server
        self._copied = copied
        self._name: str | None = None

    async def __call__(self, *, clock: Clock, ids: IdSource, limits: Limits, failpoints: Failpoints) -> Store:
        dsn = await self.url()
        return await PostgresStore.open(dsn, clock=clock, ids=ids, limits=limits, failpoints=failpoints)

    async def url(self) -> str:
        if self._name is None:
            template = await self._template() if self._copied else "template1"
            self._name = self._server.create_database(template)
        return self.dsn

    @property
    def dsn(self) -> str:
        """Where it is, once it was opened."""
        assert self._name is not None
        return self._server.dsn(self._name)

    def drop(self) -> None:
        if self._name is not None:
            self._server.drop_database(self._name)

    async def _template(self) -> str:
        if self._server not in self._templates:
            first = PostgresDatabase(self._server, copied=False)
            store = await first(clock=ManualClock(), ids=CountedIds(), limits=Limits(), failpoints=Failpoints())
            await store.close()
            assert first._name is not None
            self._templates[self._server] = first._name
        return self._templates[self._server]


class Home:
    """One place with the settings that its stores are opened with; closes in the end whatever it opened."""

    def __init__(self, opener: Opener, *, clock: Clock, ids: IdSource, limits: Limits, failpoints: Failpoints) -> None:
        self._opener = opener
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._failpoints = failpoints
        self._opened = contextlib.AsyncExitStack()

    async def open(self, *, clock: Clock | None = None, failpoints: Failpoints | None = None) -> Store:
        """Open a store here, as the fixtures say or with a clock or failpoints of its own."""
        store = await self._opener(
            clock=clock or self._clock,
            ids=self._ids,
            limits=self._limits,
            failpoints=self._failpoints if failpoints is None else failpoints,
        )
        self._opened.push_async_callback(store.close)
        return store

    async def engine(
        self, *, limits: Limits | None = None, job_limits: JobLimits | None = None, upkeep: bool = False
    ) -> Engine:
        """Open an engine here, as the fixtures say or under limits of its own."""
        opened = Engine.open(
            await self._opener.url(),
            clock=self._clock,
            ids=self._ids,
            limits=limits or self._limits,
            job_limits=job_limits,
            failpoints=self._failpoints,
            upkeep=upkeep,
        )
        return await self._opened.enter_async_context(opened)

    async def close(self) -> None:
        """Close everything that was opened here, the last one first."""
        await self._opened.aclose()


def working(engine: Engine) -> Engine:
    """Return an engine on the same store whose background work begins with `async with`, where a test wants it to."""
    return Engine(engine.store, clock=engine.clock, ids=engine.ids, limits=engine.limits)


on_sqlite = pytest.mark.parametrize("opener", ["sqlite"], indirect=True)
"""Run a test that is about one process and its file there alone."""

on_postgres = pytest.mark.parametrize("opener", ["postgres"], indirect=True)
"""Run a test that is about several nodes or lost connections where there are such: on PostgreSQL."""
