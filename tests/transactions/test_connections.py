from __future__ import annotations

import contextlib
import sqlite3
import sys
import types
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import asyncpg
import django.db
import psycopg
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio
from django.utils.connection import ConnectionProxy

from penstock.client.transactions.connections import Statement, UserConnection, user_connection
from tests.transactions.user_connections import KINDS, POSTGRES, SQLITE, Opened, path_of

TABLE = "CREATE TABLE things (name text PRIMARY KEY, at bigint, data text)"
LARGE = 1_763_456_789_012
ODD = "100 % of ?: \\ ' \" :p1 ünï"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def opening(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> AbstractAsyncContextManager[Opened]:
    """Opens a connection of each kind to a database that has a table."""
    place = path_of(tmp_path) if kind in SQLITE else request.getfixturevalue("user_dsn")
    if kind in SQLITE:
        with contextlib.closing(sqlite3.connect(place)) as connection:
            connection.execute(TABLE)
    else:
        with psycopg.connect(place) as connected:
            connected.execute(TABLE)
    return KINDS[kind](place)


async def _insert(connection: UserConnection, name: str) -> int:
    statement = Statement("INSERT INTO things (name, at, data) VALUES (?, CAST(? AS bigint), ?)", (name, LARGE, ODD))
    count: int = await connection.run_async(statement)
    return count


async def _names(connection: UserConnection) -> list[tuple[Any, ...]]:
    statement = Statement("SELECT name, at, data FROM things WHERE name <> '100%' ORDER BY name", rows=True)
    rows: list[tuple[Any, ...]] = await connection.run_async(statement)
    return rows


async def test_a_statement_runs_in_the_users_transaction(
    opening: AbstractAsyncContextManager[Opened], kind: str
) -> None:
    async with opening as opened:
        connection = user_connection(opened.connection)
        assert connection.dialect == ("sqlite" if kind in SQLITE else "postgresql")
        assert connection.is_async is opened.asynchronous
        assert connection.in_transaction() in {True, None}
        assert await _insert(connection, "one") == 1
        assert connection.in_transaction() is True
        assert await _names(connection) == [("one", LARGE, ODD)]
        await opened.rollback()
        if "begun" in kind or "asyncpg" in kind.split("-")[:1]:
            return  # Their users begin each transaction themselves.
        assert await _names(connection) == []
        await _insert(connection, "two")
        await opened.commit()
        await opened.rollback()
        assert await _names(connection) == [("two", LARGE, ODD)]


async def test_sync_code_can_use_it_unless_it_is_async(opening: AbstractAsyncContextManager[Opened], kind: str) -> None:
    async with opening as opened:
        connection = user_connection(opened.connection)
        if opened.asynchronous:
            with pytest.raises(TypeError, match="is async"):
                connection.run(Statement("SELECT 1", rows=True))
        else:
            assert connection.run(Statement("SELECT 1", rows=True)) == [(1,)]


async def test_a_failed_statement_raises_the_librarys_own_error(
    opening: AbstractAsyncContextManager[Opened], kind: str
) -> None:
    async with opening as opened:
        connection = user_connection(opened.connection)
        with pytest.raises(Exception, match="no_such_table") as caught:
            await connection.run_async(Statement("SELECT 1 FROM no_such_table", rows=True))
        assert not type(caught.value).__module__.startswith("penstock")


def test_a_cursor_keeps_what_its_user_has_not_read_yet(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path_of(tmp_path))) as connection:
        connection.execute(TABLE)
        cursor = connection.execute("SELECT 1 UNION SELECT 2")
        user_connection(cursor).run(Statement("INSERT INTO things (name) VALUES (?)", ("one",)))
        assert cursor.fetchall() == [(1,), (2,)]


# -- connections that commit by themselves --------------------------------------------------------


def test_sqlite3_in_autocommit_is_seen(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path_of(tmp_path), isolation_level=None)) as connection:
        assert user_connection(connection).in_transaction() is False
        connection.execute("BEGIN")
        assert user_connection(connection).in_transaction() is True


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit attribute before Python 3.12")
def test_sqlite3s_newer_autocommit_is_seen(tmp_path: Path) -> None:
    for autocommit in (True, False):
        arguments: dict[str, Any] = {"autocommit": autocommit}
        with contextlib.closing(sqlite3.connect(path_of(tmp_path), **arguments)) as connection:
            assert user_connection(connection).in_transaction() is not autocommit


async def test_postgresql_connections_in_autocommit_are_seen(user_dsn: str) -> None:
    with psycopg.connect(user_dsn, autocommit=True) as connected:
        assert user_connection(connected).in_transaction() is False
        with connected.transaction():
            assert user_connection(connected).in_transaction() is True
    connection = await asyncpg.connect(user_dsn)
    assert user_connection(connection).in_transaction() is False
    await connection.close()


def test_sqlalchemy_in_autocommit_is_seen(tmp_path: Path) -> None:
    url = f"sqlite:///{path_of(tmp_path)}"
    whole = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    engine = sqlalchemy.create_engine(url)
    with whole.connect() as connection:
        assert user_connection(connection).in_transaction() is False
    with engine.connect() as connection:
        assert user_connection(connection).in_transaction() is True
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert user_connection(connection).in_transaction() is False
    whole.dispose()
    engine.dispose()


async def test_an_async_session_in_autocommit_is_seen(user_dsn: str) -> None:
    url = user_dsn.replace("postgresql://", "postgresql+asyncpg://", 1)
    engine = sqlalchemy.ext.asyncio.create_async_engine(url)
    for whole in (
        sqlalchemy.ext.asyncio.create_async_engine(url, isolation_level="AUTOCOMMIT"),
        engine.execution_options(isolation_level="AUTOCOMMIT"),
    ):
        session = sqlalchemy.ext.asyncio.AsyncSession(whole)
        assert user_connection(session).in_transaction() is False
        await session.begin()
        assert user_connection(session).in_transaction() is False
    async with sqlalchemy.ext.asyncio.AsyncSession(engine) as session, session.begin():
        assert user_connection(session).in_transaction() is True


async def test_django_in_autocommit_is_seen(tmp_path: Path) -> None:
    async with SQLITE["django-sqlite"](path_of(tmp_path)) as opened:
        opened.connection.set_autocommit(True)
        assert user_connection(opened.connection).in_transaction() is False
        with django.db.transaction.atomic(using="user"):
            assert user_connection(opened.connection).in_transaction() is True


async def test_djangos_own_connection_object_is_taken(user_dsn: str) -> None:
    async with POSTGRES["django-postgres"](user_dsn):
        proxy = ConnectionProxy(django.db.connections, "user")
        connection = user_connection(proxy)
        assert connection.dialect == "postgresql"
        assert connection.run(Statement("SELECT 1", rows=True)) == [(1,)]


# -- other drivers --------------------------------------------------------------------------------


class _Cursor:
    """A cursor of a driver that is not installed here. It takes what its paramstyle says, and runs it on sqlite3."""

    def __init__(self, connection: _Connection) -> None:
        self.connection = connection
        self._cursor = connection.real.cursor()
        self.rowcount = -1

    def execute(self, sql: str, parameters: Any) -> None:
        self.connection.seen.append((sql, parameters))
        style = sys.modules[self.connection.driver].paramstyle
        if style == "format":
            sql = (sql % (("?",) * len(parameters))).replace("%%", "%")
        elif style == "pyformat":
            sql = sql % {key: f":{key}" for key in parameters}
        elif style == "numeric":  # A name to SQLite, which from Python 3.12 on says that it wants names for it.
            parameters = {str(number): value for number, value in enumerate(parameters, 1)}
        self._cursor.execute(sql, parameters)
        self.rowcount = self._cursor.rowcount

    def fetchall(self) -> list[dict[str, Any]]:
        names = [column[0] for column in self._cursor.description]
        return [dict(zip(names, row, strict=True)) for row in self._cursor.fetchall()]

    def close(self) -> None:
        self._cursor.close()


class _Connection:
    driver = ""

    def __init__(self, real: sqlite3.Connection) -> None:
        self.real = real
        self.seen: list[tuple[str, Any]] = []

    def cursor(self) -> _Cursor:
        return _Cursor(self)

    def commit(self) -> None:
        self.real.commit()

    def rollback(self) -> None:
        self.real.rollback()


@pytest.fixture
def drivers() -> Iterator[Any]:
    made: list[str] = []

    def make(package: str, paramstyle: str) -> type[_Connection]:
        module = types.ModuleType(package)
        module.paramstyle = paramstyle  # type: ignore[attr-defined] # as every DB-API module has
        sys.modules[package] = module
        made.append(package)
        return type("Connection", (_Connection,), {"__module__": f"{package}.connections", "driver": package})

    yield make
    for package in made:
        del sys.modules[package]


@pytest.mark.parametrize(
    ("package", "paramstyle", "dialect", "written"),
    [
        ("pymysql", "pyformat", "mysql", "VALUES (%(p1)s, CAST(%(p2)s AS bigint), %(p3)s)"),
        ("MySQLdb", "format", "mysql", "VALUES (%s, CAST(%s AS bigint), %s)"),
        ("somesql", "named", "other", "VALUES (:p1, CAST(:p2 AS bigint), :p3)"),
        ("othersql", "numeric", "other", "VALUES (:1, CAST(:2 AS bigint), :3)"),
        ("pysqlite3", "qmark", "sqlite", "VALUES (?, CAST(? AS bigint), ?)"),
    ],
)
async def test_any_dbapi_driver_works_by_its_paramstyle(
    drivers: Any, package: str, paramstyle: str, dialect: str, written: str
) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as real:
        real.execute(TABLE)
        theirs = drivers(package, paramstyle)(real)
        for given in (theirs, theirs.cursor()):
            real.execute("DELETE FROM things")
            connection = user_connection(given)
            assert connection.dialect == dialect
            assert connection.in_transaction() is None
            assert await _insert(connection, "one") == 1
            assert theirs.seen[-1][0].endswith(written)
            assert await _names(connection) == [("one", LARGE, ODD)]


# -- what is none ---------------------------------------------------------------------------------


class _AsyncDriver:
    def cursor(self) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


class _Pool:
    def acquire(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (None, ""),
        ("postgresql://somewhere", ""),
        (object(), ""),
        (_Connection(None), ""),  # type: ignore[arg-type] # never used
        (_Pool(), "Take a connection from it"),
        (sqlalchemy.create_engine("sqlite://"), "Take a connection from it"),
        (_AsyncDriver(), "SQLAlchemy's AsyncConnection"),
    ],
)
def test_anything_else_is_refused_with_what_is_accepted(given: object, hint: str) -> None:
    with pytest.raises(TypeError, match="Expected a connection or cursor of psycopg 3") as caught:
        user_connection(given)
    assert type(given).__qualname__ in str(caught.value)
    assert hint in str(caught.value)
