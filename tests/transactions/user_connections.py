"""Every kind of connection that a user may have, opened on a database of the user's own."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import asyncpg
import django
import django.db
import psycopg
import sqlalchemy
import sqlalchemy.ext.asyncio
import sqlalchemy.orm
from django.apps import apps
from django.conf import settings

USER = "user"
"""Django's alias of the database."""


class Opened:
    """A connection, and how its user ends the transaction."""

    def __init__(
        self, connection: Any, commit: Callable[[], Any], rollback: Callable[[], Any], *, asynchronous: bool = False
    ) -> None:
        self.connection = connection
        self._commit = commit
        self._rollback = rollback
        self.asynchronous = asynchronous

    async def commit(self) -> None:
        await _done(self._commit())

    async def rollback(self) -> None:
        await _done(self._rollback())


async def _done(result: Awaitable[object] | object) -> None:
    if isinstance(result, Awaitable):
        await result


Opener = Callable[[str], AbstractAsyncContextManager[Opened]]
"""Opens a connection and begins a transaction on it: on a path of SQLite or a DSN of PostgreSQL."""


# -- SQLite ---------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def sqlite3_connection(path: str) -> AsyncIterator[Opened]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = lambda _, row: {"made": "otherwise", "row": row}
        yield Opened(connection, connection.commit, connection.rollback)


@contextlib.asynccontextmanager
async def sqlite3_begun(path: str) -> AsyncIterator[Opened]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield Opened(connection, connection.commit, connection.rollback)


@contextlib.asynccontextmanager
async def sqlite3_cursor(path: str) -> AsyncIterator[Opened]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        yield Opened(connection.cursor(), connection.commit, connection.rollback)


@contextlib.asynccontextmanager
async def sqlalchemy_sqlite(path: str) -> AsyncIterator[Opened]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        yield Opened(connection, connection.commit, connection.rollback)
    engine.dispose()


@contextlib.asynccontextmanager
async def sqlalchemy_sqlite_session(path: str) -> AsyncIterator[Opened]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with sqlalchemy.orm.Session(engine) as session:
        yield Opened(session, session.commit, session.rollback)
    engine.dispose()


@contextlib.asynccontextmanager
async def django_sqlite(path: str) -> AsyncIterator[Opened]:
    with _django({"ENGINE": "django.db.backends.sqlite3", "NAME": path}) as opened:
        yield opened


# -- PostgreSQL -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def psycopg_connection(dsn: str) -> AsyncIterator[Opened]:
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
        yield Opened(connection, connection.commit, connection.rollback)


@contextlib.asynccontextmanager
async def psycopg_raw_cursors(dsn: str) -> AsyncIterator[Opened]:
    with psycopg.connect(dsn, cursor_factory=psycopg.RawCursor) as connection:
        yield Opened(connection, connection.commit, connection.rollback)


@contextlib.asynccontextmanager
async def psycopg_cursor(dsn: str) -> AsyncIterator[Opened]:
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        yield Opened(cursor, connection.commit, connection.rollback)


@contextlib.asynccontextmanager
async def psycopg_async(dsn: str) -> AsyncIterator[Opened]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        yield Opened(connection, connection.commit, connection.rollback, asynchronous=True)


@contextlib.asynccontextmanager
async def psycopg_async_cursor(dsn: str) -> AsyncIterator[Opened]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection, connection.cursor() as cursor:
        yield Opened(cursor, connection.commit, connection.rollback, asynchronous=True)


@contextlib.asynccontextmanager
async def asyncpg_connection(dsn: str) -> AsyncIterator[Opened]:
    connection = await asyncpg.connect(dsn)
    async with _asyncpg(connection) as opened:
        yield opened
    await connection.close()


@contextlib.asynccontextmanager
async def asyncpg_of_a_pool(dsn: str) -> AsyncIterator[Opened]:
    pool = await asyncpg.create_pool(dsn, min_size=1, max_size=1)
    async with pool.acquire() as connection, _asyncpg(connection) as opened:
        yield opened
    await pool.close()


@contextlib.asynccontextmanager
async def _asyncpg(connection: Any) -> AsyncIterator[Opened]:
    transaction = connection.transaction()
    await transaction.start()
    yield Opened(connection, transaction.commit, transaction.rollback, asynchronous=True)


@contextlib.asynccontextmanager
async def sqlalchemy_psycopg(dsn: str) -> AsyncIterator[Opened]:
    engine = sqlalchemy.create_engine(_alchemy(dsn, "psycopg"))
    with engine.connect() as connection:
        yield Opened(connection, connection.commit, connection.rollback)
    engine.dispose()


@contextlib.asynccontextmanager
async def sqlalchemy_session(dsn: str) -> AsyncIterator[Opened]:
    engine = sqlalchemy.create_engine(_alchemy(dsn, "psycopg"))
    with sqlalchemy.orm.Session(engine) as session:
        yield Opened(session, session.commit, session.rollback)
    engine.dispose()


@contextlib.asynccontextmanager
async def sqlalchemy_scoped_session(dsn: str) -> AsyncIterator[Opened]:
    engine = sqlalchemy.create_engine(_alchemy(dsn, "psycopg"))
    session = sqlalchemy.orm.scoped_session(sqlalchemy.orm.sessionmaker(engine))
    yield Opened(session, session.commit, session.rollback)
    session.remove()
    engine.dispose()


@contextlib.asynccontextmanager
async def sqlalchemy_async(dsn: str) -> AsyncIterator[Opened]:
    engine = sqlalchemy.ext.asyncio.create_async_engine(_alchemy(dsn, "asyncpg"))
    async with engine.connect() as connection:
        yield Opened(connection, connection.commit, connection.rollback, asynchronous=True)
    await engine.dispose()


@contextlib.asynccontextmanager
async def sqlalchemy_async_session(dsn: str) -> AsyncIterator[Opened]:
    engine = sqlalchemy.ext.asyncio.create_async_engine(_alchemy(dsn, "asyncpg"))
    async with sqlalchemy.ext.asyncio.AsyncSession(engine) as session:
        yield Opened(session, session.commit, session.rollback, asynchronous=True)
    await engine.dispose()


@contextlib.asynccontextmanager
async def django_postgres(dsn: str) -> AsyncIterator[Opened]:
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    place = {"NAME": parts["dbname"], "HOST": parts["host"], "USER": parts["user"]}
    with _django({"ENGINE": "django.db.backends.postgresql", **place}) as opened:
        yield opened


@contextlib.contextmanager
def _django(place: dict[str, Any]) -> Iterator[Opened]:
    if not settings.configured:
        settings.configure()  # Not when this module is imported: other tests may have settings of their own.
    if not apps.ready:
        django.setup()
    # Django refuses to run beside an event loop unless told so; these tests use one connection at a time.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    known = django.db.connections.settings
    known[USER] = django.db.connections.configure_settings({"default": {}, USER: place})[USER]
    connection = django.db.connections[USER]
    try:
        connection.set_autocommit(False)
        yield Opened(connection, connection.commit, connection.rollback)
    finally:
        connection.close()
        del django.db.connections[USER]
        del known[USER]
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


def _alchemy(dsn: str, driver: str) -> sqlalchemy.URL:
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    query = {"host": str(parts["host"])}
    return sqlalchemy.URL.create(
        f"postgresql+{driver}", username=str(parts["user"]), database=str(parts["dbname"]), query=query
    )


SQLITE: dict[str, Opener] = {
    "sqlite3": sqlite3_connection,
    "sqlite3-begun": sqlite3_begun,
    "sqlite3-cursor": sqlite3_cursor,
    "sqlalchemy-sqlite": sqlalchemy_sqlite,
    "sqlalchemy-sqlite-session": sqlalchemy_sqlite_session,
    "django-sqlite": django_sqlite,
}
POSTGRES: dict[str, Opener] = {
    "psycopg": psycopg_connection,
    "psycopg-raw-cursors": psycopg_raw_cursors,
    "psycopg-cursor": psycopg_cursor,
    "psycopg-async": psycopg_async,
    "psycopg-async-cursor": psycopg_async_cursor,
    "asyncpg": asyncpg_connection,
    "asyncpg-pool": asyncpg_of_a_pool,
    "sqlalchemy-psycopg": sqlalchemy_psycopg,
    "sqlalchemy-session": sqlalchemy_session,
    "sqlalchemy-scoped-session": sqlalchemy_scoped_session,
    "sqlalchemy-async": sqlalchemy_async,
    "sqlalchemy-async-session": sqlalchemy_async_session,
    "django-postgres": django_postgres,
}
KINDS: dict[str, Opener] = SQLITE | POSTGRES


def path_of(folder: Path) -> str:
    return str(folder / "user.db")
