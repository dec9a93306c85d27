"""Connections to the database: few, kept open, and never trusted after a doubt."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import asyncpg

from penstock.domain.errors import StoreUrlInvalid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

APPLICATION_NAME = "penstock"
"""What our sessions are called in the database: the scan floors find our transactions by it."""

CONNECT_TIMEOUT_S = 10.0
STATEMENT_TIMEOUT_S = 10.0
"""How long one statement may take. Its outcome is unknown then, and is looked for like that of a lost connection."""

STATEMENTS_CACHED_MAX = 100

_COMMITTED_HERE_ONLY = frozenset({"01000", "57P01"})
"""The codes of the warnings that say: committed, but not known to be on a synchronous standby."""


class ConnectionLost(ConnectionError):
    """The connection broke, or may have: what was under way may or may not have been committed."""


class CommitUnconfirmed(ConnectionLost):
    """The server gave up waiting for its synchronous standby: committed, but perhaps not there after a failover."""


class Session:
    """One connection. Every error that leaves a commit unknown is raised as `ConnectionLost`, and ends it."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection
        self._warning: str | None = None
        connection.add_log_listener(self._note)

    @classmethod
    async def open(cls, dsn: str) -> Session:
        """Connect; raise `ConnectionLost` if the database cannot be reached now, `StoreUrlInvalid` if it never can."""
        try:
            connection = await asyncpg.connect(
                dsn,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=STATEMENT_TIMEOUT_S,
                statement_cache_size=STATEMENTS_CACHED_MAX,
                server_settings={
                    "application_name": APPLICATION_NAME,
                    # Each statement is to see what was committed before it, whatever the server's default is.
                    "default_transaction_isolation": "read committed",
                    # Plans that were made while a table was small are kept while it grows, until it is analyzed.
                    "enable_seqscan": "off",
                },
            )
        except (asyncpg.ClientConfigurationError, ValueError) as error:
            raise StoreUrlInvalid(f"The database's address cannot be understood: {error}") from error
        except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresError) as error:
            raise ConnectionLost(_told(error)) from error
        session = cls(connection)
        # Acknowledged means durable, whatever the server's default is.
        await session.fetch(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        return session

    @property
    def usable(self) -> bool:
        """Whether it may be used again."""
        return not self._connection.is_closed()

    @property
    def raw(self) -> asyncpg.Connection[asyncpg.Record]:
        """The connection itself, for whoever listens on it."""
        return self._connection

    async def listen(self, channel: str, heard: Callable[[Any, int, str, object], None]) -> None:
        """Have `heard` called with whatever is notified on a channel."""
        try:
            await self._connection.add_listener(channel, heard)
        except BaseException as error:
            self._judge(error)
            raise

    async def fetch(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        """Run a statement and return its rows; outside of `transaction` it is committed then."""
        try:
            rows = await self._connection.fetch(statement, *arguments)
        except BaseException as error:
            self._judge(error)
            raise
        self._check_confirmed()
        return rows

    async def fetch_many(self, statement: str, rows: list[Sequence[object]]) -> None:
        """Run a statement once for each row of arguments."""
        try:
            await self._connection.executemany(statement, rows)
        except BaseException as error:
            self._judge(error)
            raise
        self._check_confirmed()

    async def fetchrow(self, statement: str, *arguments: object) -> asyncpg.Record | None:
        """Run a statement and return its first row."""
        rows = await self.fetch(statement, *arguments)
        return rows[0] if rows else None

    async def fetchval(self, statement: str, *arguments: object) -> Any:  # noqa: ANN401 # A value of the database's types.
        """Run a statement and return the first value of its first row."""
        row = await self.fetchrow(statement, *arguments)
        return None if row is None else row[0]

    async def run_script(self, script: str) -> None:
        """Run statements that take no arguments."""
        try:
            await self._connection.execute(script)
        except BaseException as error:
            self._judge(error)
            raise
        self._check_confirmed()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commit what is done inside at its end, or roll it back if that raises."""
        await self.run_script("BEGIN")
        try:
            yield
        except BaseException:
            if self.usable:
                await self.run_script("ROLLBACK")
            raise
        await self.run_script("COMMIT")

    async def close(self) -> None:
        """Say goodbye; or, if the server does not answer, just leave."""
        try:
            await self._connection.close(timeout=1)
        except (OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
            self._connection.terminate()

    def terminate(self) -> None:
        """Leave without a word."""
        if not self._connection.is_closed():
            self._connection.terminate()

    def _note(self, _: object, message: asyncpg.PostgresLogMessage) -> None:
        fields = message.as_dict()
        if fields.get("severity_en") == "WARNING" and fields.get("sqlstate") in _COMMITTED_HERE_ONLY:
            self._warning = fields.get("message", "the commit is not confirmed")

    def _check_confirmed(self) -> None:
        # asyncpg schedules the listener before it wakes whoever awaits the statement, so the warning is known here.
        if self._warning is not None:
            warning, self._warning = self._warning, None
            raise CommitUnconfirmed(warning)

    def _judge(self, error: BaseException) -> None:
        """Raise `ConnectionLost` for an error that leaves the outcome unknown; leave the connection after any such."""
        if isinstance(error, asyncpg.PostgresError) and not isinstance(error, _SERVER_LEAVES):
            return
        if not isinstance(error, Exception):
            # Cancelled in the middle of a statement: the connection may still be busy with it.
            self.terminate()
            return
        lost = (
            isinstance(error, (OSError, asyncpg.InternalClientError, *_SERVER_LEAVES)) or self._connection.is_closed()
        )
        self.terminate()
        if lost:
            raise ConnectionLost(_told(error)) from error


_SERVER_LEAVES = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,  # After a failover, the old primary or a standby.
    asyncpg.IdleInTransactionSessionTimeoutError,
)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class Pool:
    """At most `size` sessions, opened when they are needed, the one used last given out first.

    `lost` is called whenever one breaks: what was learned from the server before may not hold for the one after.
    """

    def __init__(self, dsn: str, *, size: int, lost: Callable[[], None]) -> None:
        self._dsn = dsn
        self._idle: list[Session] = []
        self._places = asyncio.Semaphore(size)
        self._lost = lost

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Lend a session. Raises `ConnectionLost` if none can be had now."""
        async with self._places:
            session = self._take() or await Session.open(self._dsn)
            try:
                yield session
            except ConnectionLost:
                session.terminate()
                self._drop_idle()
                self._lost()
                raise
            finally:
                if session.usable:
                    self._idle.append(session)

    async def close(self) -> None:
        """Close the sessions; nobody uses one any more."""
        while self._idle:
            await self._idle.pop().close()

    def _take(self) -> Session | None:
        while self._idle:
            session = self._idle.pop()
            if session.usable:
                return session
        return None

    def _drop_idle(self) -> None:
        # They are likely lost as well, and would each cost somebody an attempt to find out.
        while self._idle:
            self._idle.pop().terminate()
