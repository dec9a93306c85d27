"""Runs statements inside the transaction of a connection that belongs to the user, whatever library made it.

No library is imported for this: a connection is recognised by the names of its classes. Nothing here ever commits,
rolls back or closes anything.
"""

from __future__ import annotations

import inspect
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

T = TypeVar("T")

Dialect = Literal["postgresql", "sqlite", "mysql", "other"]
Row = tuple[Any, ...]

ACCEPTED = (
    "a connection or cursor of psycopg 3, a connection of asyncpg, a Connection, AsyncConnection, Session or "
    "AsyncSession of SQLAlchemy, a Django connection, a sqlite3.Connection, or another DB-API connection"
)
_DIALECTS: dict[str, Dialect] = {
    "postgresql": "postgresql",
    "sqlite": "sqlite",
    "mysql": "mysql",
    "mariadb": "mysql",
}
"""By the name that SQLAlchemy and Django have for it."""
_DRIVERS: dict[str, Dialect] = {
    "MySQLdb": "mysql",
    "mariadb": "mysql",
    "mysql": "mysql",
    "pg8000": "postgresql",
    "psycopg2": "postgresql",
    "pymysql": "mysql",
    "pysqlite3": "sqlite",
    "sqlite3": "sqlite",
}
"""By the package of a DB-API connection's class."""
_IDLE = 0
"""As libpq counts a connection's states: no transaction is open."""


class Statement(NamedTuple):
    """SQL with `?` wherever a parameter goes, and nowhere else."""

    sql: str
    parameters: Sequence[object] = ()
    rows: bool = False
    """Whether it returns rows. Then they are its result; otherwise the number of rows that it changed is."""


class UserConnection(ABC):
    """A connection of the user, and the transaction that is open on it or that its next statement begins."""

    is_async: ClassVar[bool] = False
    """Whether statements have to be awaited, with `run_async`."""

    def __init__(self, connection: Any, dialect: Dialect, library: str) -> None:  # noqa: ANN401 - what the user has
        self.connection = connection
        self.dialect = dialect
        self.library = library
        """What to call it in messages, such as `psycopg`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.library}, {self.dialect})"

    @abstractmethod
    def in_transaction(self) -> bool | None:
        """Return whether the next change waits for a commit of the user's, or None where nobody can know.

        False means that the connection commits each statement by itself.
        """

    def run(self, statement: Statement) -> Any:  # noqa: ANN401, ARG002 - rows or a number; only async ones refuse
        """Run a statement in the user's transaction; raises what the user's library raises."""
        raise TypeError(f"A connection of {self.library} is async: use `async with` or `await` with it.")

    async def run_async(self, statement: Statement) -> Any:  # noqa: ANN401 - as above
        """As `run`, for a connection of either kind. A synchronous one blocks the event loop meanwhile."""
        return self.run(statement)

    def play(self, script: Generator[Statement, Any, T]) -> T:
        """Run the statements of a script, sending it the result of each, and return what it returns."""
        try:
            statement = next(script)
            while True:
                statement = script.send(self.run(statement))
        except StopIteration as end:
            result: T = end.value
            return result

    async def play_async(self, script: Generator[Statement, Any, T]) -> T:
        """As `play`, for a connection of either kind."""
        try:
            statement = next(script)
            while True:
                statement = script.send(await self.run_async(statement))
        except StopIteration as end:
            result: T = end.value
            return result


def user_connection(connection: object) -> UserConnection:
    """Return how to run statements on what the user has; raises `TypeError` for anything else."""
    if isinstance(connection, UserConnection):
        return connection
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__}
    for name, adapt in _KNOWN.items():
        if name in names:
            return adapt(connection)
    if _is_cursor(connection):
        return user_connection(connection.connection)  # type: ignore[attr-defined] # `_is_cursor` has seen it
    if _is_dbapi(connection):
        return _dbapi(connection)
    raise TypeError(_refusal(connection))


# -- the libraries --------------------------------------------------------------------------------


class DbApi(UserConnection):
    """Any DB-API connection. Each statement gets a cursor of its own, so cursors of the user keep their results."""

    def __init__(self, connection: Any, dialect: Dialect, library: str, paramstyle: str) -> None:  # noqa: ANN401
        super().__init__(connection, dialect, library)
        self._paramstyle = paramstyle

    def in_transaction(self) -> bool | None:
        autocommit = getattr(self.connection, "autocommit", None)
        if autocommit is True:
            return False
        return None if autocommit is None or callable(autocommit) else True

    def run(self, statement: Statement) -> Any:  # noqa: ANN401 - as the base says
        sql, parameters = _written(statement, self._paramstyle)
        cursor = self._cursor()
        try:
            cursor.execute(sql, parameters)
            return _tuples(cursor.fetchall()) if statement.rows else cursor.rowcount
        finally:
            cursor.close()

    def _cursor(self) -> Any:  # noqa: ANN401 - of the user's library
        return self.connection.cursor()


class Sqlite3(DbApi):
    """`sqlite3.Connection` of the standard library."""

    def in_transaction(self) -> bool:
        connection = self.connection
        if connection.in_transaction:
            return True
        autocommit = getattr(connection, "autocommit", -1)  # Python 3.12 has it, and -1 means: as before.
        if isinstance(autocommit, bool):
            return not autocommit
        return connection.isolation_level is not None  # The first change begins a transaction.

    def _cursor(self) -> Any:  # noqa: ANN401 - as the base says
        cursor = self.connection.cursor()
        cursor.row_factory = None  # The user's may make dictionaries.
        return cursor


class Psycopg2(DbApi):
    """A connection of psycopg 2."""

    def in_transaction(self) -> bool:
        return _libpq_in_transaction(self.connection)


class Psycopg(UserConnection):
    """`psycopg.Connection`."""

    def in_transaction(self) -> bool:
        return _libpq_in_transaction(self.connection)

    def run(self, statement: Statement) -> Any:  # noqa: ANN401 - as the base says
        psycopg: Any = sys.modules["psycopg"]
        sql, parameters = _written(statement, "format")
        # Not the connection's own kind of cursor: that may take other placeholders and make other rows.
        with psycopg.Cursor(self.connection, row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall() if statement.rows else cursor.rowcount


class PsycopgAsync(UserConnection):
    """`psycopg.AsyncConnection`."""

    is_async = True

    def in_transaction(self) -> bool:
        return _libpq_in_transaction(self.connection)

    async def run_async(self, statement: Statement) -> Any:  # noqa: ANN401 - as the base says
        psycopg: Any = sys.modules["psycopg"]
        sql, parameters = _written(statement, "format")
        async with psycopg.AsyncCursor(self.connection, row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(sql, parameters)
            return await cursor.fetchall() if statement.rows else cursor.rowcount


class Asyncpg(UserConnection):
    """`asyncpg.Connection`, or what a pool of asyncpg hands out."""

    is_async = True

    def in_transaction(self) -> bool:
        return bool(self.connection.is_in_transaction())

    async def run_async(self, statement: Statement) -> Any:  # noqa: ANN401 - as the base says
        sql, parameters = _written(statement, "dollar")
        if statement.rows:
            return _tuples(await self.connection.fetch(sql, *parameters))
        status: str = await self.connection.execute(sql, *parameters)
        count = status.rpartition(" ")[2]  # INSERT 0 1
        return int(count) if count.isdigit() else 0


class SqlAlchemy(UserConnection):
    """`Connection` and `Session` of SQLAlchemy."""

    def in_transaction(self) -> bool:
        return _alchemy_in_transaction(self._opened())

    def run(self, statement: Statement) -> Any:  # noqa: ANN401 - as the base says
        sql, parameters = _written(statement, "named")
        text = sys.modules["sqlalchemy"].text
        result = self._opened().execute(text(sql), parameters)
        return _tuples(result.fetchall()) if statement.rows else result.rowcount

    def _opened(self) -> Any:  # noqa: ANN401 - of the user's library
        """Return the connection of a session, whose transaction it begins, or the connection itself."""
        connection = self.connection
        return connection.connection() if _is_session(connection) else connection


class SqlAlchemyAsync(UserConnection):
    """`AsyncConnection` and `AsyncSession` of SQLAlchemy."""

    is_async = True

    def in_transaction(self) -> bool | None:
        connection = self.connection
        if not _is_session(connection):
            return _alchemy_in_transaction(connection.sync_connection)
        if not _alchemy_in_transaction(connection.get_bind()):
            return False
        return True if connection.in_transaction() else None

    async def run_async(self, statement: Statement) -> Any:  # noqa: ANN401 - as the base says
        sql, parameters = _written(statement, "named")
        text = sys.modules["sqlalchemy"].text
        connection = self.connection
        opened = await connection.connection() if _is_session(connection) else connection
        result = await opened.execute(text(sql), parameters)
        return _tuples(result.fetchall()) if statement.rows else result.rowcount


class Django(UserConnection):
    """`django.db.connection` and `connections["alias"]`."""

    def in_transaction(self) -> bool:
        return bool(self.connection.in_atomic_block) or not self.connection.get_autocommit()

    def run(self, statement: Statement) -> Any:  # noqa: ANN401 - as the base says
        sql, parameters = _written(statement, "format")
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return _tuples(cursor.fetchall()) if statement.rows else cursor.rowcount


def _alchemy(connection: Any) -> UserConnection:  # noqa: ANN401 - what the user has
    return SqlAlchemy(connection, _alchemy_dialect(connection), "SQLAlchemy")


def _alchemy_async(connection: Any) -> UserConnection:  # noqa: ANN401 - as above
    return SqlAlchemyAsync(connection, _alchemy_dialect(connection), "SQLAlchemy")


def _alchemy_dialect(connection: Any) -> Dialect:  # noqa: ANN401 - as above
    bound = connection.get_bind() if _is_session(connection) else connection
    return _DIALECTS.get(bound.dialect.name, "other")


def _django(connection: Any) -> UserConnection:  # noqa: ANN401 - as above
    vendor = getattr(connection, "vendor", None)
    if vendor is None:  # Django wraps connections to caches in the same class.
        raise TypeError(_refusal(connection))
    return Django(connection, _DIALECTS.get(vendor, "other"), "Django")


_KNOWN: dict[str, Callable[[Any], UserConnection]] = {
    "asyncpg.connection.Connection": lambda found: Asyncpg(found, "postgresql", "asyncpg"),
    "asyncpg.pool.PoolConnectionProxy": lambda found: Asyncpg(found, "postgresql", "asyncpg"),
    "django.db.backends.base.base.BaseDatabaseWrapper": _django,
    "django.utils.connection.ConnectionProxy": _django,
    "psycopg.AsyncConnection": lambda found: PsycopgAsync(found, "postgresql", "psycopg"),
    "psycopg.Connection": lambda found: Psycopg(found, "postgresql", "psycopg"),
    "psycopg2.extensions.connection": lambda found: Psycopg2(found, "postgresql", "psycopg2", "pyformat"),
    "sqlalchemy.engine.base.Connection": _alchemy,
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": _alchemy_async,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": _alchemy_async,
    "sqlalchemy.ext.asyncio.session.AsyncSession": _alchemy_async,
    "sqlalchemy.orm.scoping.scoped_session": _alchemy,
    "sqlalchemy.orm.session.Session": _alchemy,
    "sqlite3.Connection": lambda found: Sqlite3(found, "sqlite", "sqlite3", "qmark"),
}
"""By the full name of a class, which the connection's own class may be derived from."""


def _dbapi(connection: Any) -> UserConnection:  # noqa: ANN401 - as above
    for kind in type(connection).__mro__:
        package = kind.__module__
        while package:
            paramstyle = getattr(sys.modules.get(package), "paramstyle", None)
            if isinstance(paramstyle, str):
                library = package.partition(".")[0]
                return DbApi(connection, _DRIVERS.get(library, "other"), package, paramstyle)
            package = package.rpartition(".")[0]
    raise TypeError(_refusal(connection))


def _is_cursor(found: object) -> bool:
    return callable(getattr(found, "execute", None)) and _is_connection(getattr(found, "connection", None))


def _is_connection(found: object) -> bool:
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(found).__mro__}
    return not names.isdisjoint(_KNOWN) or _is_dbapi(found)


def _is_dbapi(found: object) -> bool:
    verbs = [getattr(type(found), verb, None) for verb in ("cursor", "commit", "rollback")]
    return all(callable(verb) and not inspect.iscoroutinefunction(verb) for verb in verbs)


def _is_session(connection: Any) -> bool:  # noqa: ANN401 - as above
    return hasattr(connection, "get_bind")


def _libpq_in_transaction(connection: Any) -> bool:  # noqa: ANN401 - as above
    """The first statement begins a transaction, unless the connection commits each by itself."""
    return int(connection.info.transaction_status) != _IDLE or not connection.autocommit


def _alchemy_in_transaction(connection: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether a connection, or those of an engine, wait for a commit."""
    options = connection.get_execution_options()
    dialect = connection.dialect
    level = options.get("isolation_level") or getattr(dialect, "_on_connect_isolation_level", None)
    return str(level).upper() != "AUTOCOMMIT"


def _refusal(found: object) -> str:
    kind = type(found)
    name = f"{kind.__module__}.{kind.__qualname__}"
    hint = ""
    if "Pool" in kind.__name__ or hasattr(found, "acquire") or kind.__name__.endswith(("Engine", "sessionmaker")):
        hint = " Take a connection from it: the one that your transaction is open on."
    elif inspect.iscoroutinefunction(getattr(kind, "commit", None)):
        hint = " SQLAlchemy's AsyncConnection makes async drivers of other databases work."
    return f"Expected {ACCEPTED}, not {name}.{hint}"


# -- statements -----------------------------------------------------------------------------------

_PLACE = re.compile(r"[?%]")


def _written(statement: Statement, paramstyle: str) -> tuple[str, Any]:
    """Return a statement and its parameters as a library wants them."""
    count = 0

    def place(found: re.Match[str]) -> str:
        nonlocal count
        if found.group() == "%":
            return "%%" if paramstyle in {"format", "pyformat"} else "%"
        count += 1
        return _PLACES[paramstyle](count)

    if paramstyle not in _PLACES:
        raise TypeError(f"The paramstyle {paramstyle!r} is none of DB-API's: {', '.join(_PLACES)}.")
    sql = _PLACE.sub(place, statement.sql)
    assert count == len(statement.parameters), statement.sql
    if paramstyle in {"named", "pyformat"}:
        return sql, {f"p{number}": value for number, value in enumerate(statement.parameters, 1)}
    return sql, tuple(statement.parameters)


_PLACES: dict[str, Callable[[int], str]] = {
    "qmark": lambda _: "?",
    "numeric": lambda number: f":{number}",
    "named": lambda number: f":p{number}",
    "format": lambda _: "%s",
    "pyformat": lambda number: f"%(p{number})s",
    "dollar": lambda number: f"${number}",
}
"""How each `paramstyle` of DB-API, and asyncpg, writes a parameter."""


def _tuples(rows: Iterable[Any]) -> list[Row]:
    return [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in rows]
