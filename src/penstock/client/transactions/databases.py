"""The database that a relay reads an outbox from: PostgreSQL, SQLite, or what a function of the user connects to."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from penstock.client.errors import RelayFailed
from penstock.client.transactions.connections import Dialect, UserConnection, user_connection
from penstock.client.transactions.outbox import CHANNEL
from penstock.client.urls import without_password
from penstock.domain.errors import ExtraMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from penstock.client.transactions.connections import Statement
    from penstock.domain.failpoints import Failpoints

CONNECT_S = 10.0
COMMAND_S = 30.0
T = TypeVar("T")


class DatabaseLost(Exception):
    """A statement failed, or no connection could be made; the message is the database's own."""


class Database(ABC):
    """One connection, which is opened again after an error."""

    dialect: Dialect = "other"
    shown = ""
    """Where it is, as it may be shown."""
    notifies = False
    """Whether new rows end a `wait`."""

    def __init__(self, failpoints: Failpoints) -> None:
        self._failpoints = failpoints

    async def run(self, verb: str, script: Generator[Statement, Any, T], *, write: bool = True) -> T:
        """Run a script in a transaction of its own and commit it; raises `DatabaseLost`, after which it may be there.

        Passes the failpoints `relay.VERB.begun` before the commit, and `relay.VERB.committed` after it.
        """
        try:
            result = await self._play(script, verb, write=write)
        except RelayFailed:
            raise
        except self._errors() as error:
            await self.close()
            raise DatabaseLost(_said(error)) from error
        except BaseException:
            await self.close()
            raise
        await self._failpoints.reach(f"relay.{verb}.committed")
        return result

    async def wait(self, seconds: float) -> None:
        """Return after this time, or earlier if rows were added."""
        await asyncio.sleep(seconds)

    @abstractmethod
    async def close(self) -> None:
        """Close the connection, without a commit."""

    @abstractmethod
    async def _play(self, script: Generator[Statement, Any, T], verb: str, *, write: bool) -> T: ...

    @abstractmethod
    def _errors(self) -> tuple[type[BaseException], ...]: ...


class PostgresDatabase(Database):
    """PostgreSQL, by asyncpg. New rows are notified."""

    dialect: Dialect = "postgresql"

    def __init__(self, url: str, failpoints: Failpoints) -> None:
        super().__init__(failpoints)
        try:
            import asyncpg  # noqa: PLC0415 - an extra
        except ImportError:
            raise ExtraMissing(
                "To relay from PostgreSQL asyncpg is needed: pip install 'penstock[postgres]'."
            ) from None
        self._asyncpg: Any = asyncpg
        self._url = url
        self.shown = without_password(url)
        self._connection: Any = None
        self._added = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._added.wait()
        except TimeoutError:
            pass
        self._added.clear()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self.notifies = False
        if connection is not None:
            connection.terminate()

    async def _play(self, script: Generator[Statement, Any, T], verb: str, *, write: bool) -> T:  # noqa: ARG002 - it takes no lock either way
        if self._connection is None:
            self._connection = await self._connect()
        async with self._connection.transaction():
            result = await user_connection(self._connection).play_async(script)
            await self._failpoints.reach(f"relay.{verb}.begun")
        return result

    async def _connect(self) -> Any:  # noqa: ANN401 - asyncpg's own
        try:
            # Prepared statements do not survive poolers between the two.
            connection = await self._asyncpg.connect(
                self._url, timeout=CONNECT_S, command_timeout=COMMAND_S, statement_cache_size=0
            )
        except self._asyncpg.InterfaceError:  # Some of these are of both kinds.
            raise
        except ValueError:  # Its text may have a part of the password.
            raise RelayFailed(
                "The URL of the database cannot be read. In a password, / is %2F, # is %23, ? is %3F and @ is %40."
            ) from None
        await connection.add_listener(CHANNEL, self._notified)
        self.notifies = True
        return connection

    def _notified(self, *_: object) -> None:
        self._added.set()

    def _errors(self) -> tuple[type[BaseException], ...]:
        return (self._asyncpg.PostgresError, self._asyncpg.InterfaceError, OSError, TimeoutError)


class ThreadDatabase(Database):
    """A DB-API connection, in a thread of its own."""

    def __init__(self, connect: Callable[[], Any], shown: str, failpoints: Failpoints) -> None:
        super().__init__(failpoints)
        self._connect = connect
        self.shown = shown
        self._opened: UserConnection | None = None
        self._thread: _Thread | None = None

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.end(None if opened is None else opened.connection.close)

    async def _play(self, script: Generator[Statement, Any, T], verb: str, *, write: bool) -> T:
        if self._opened is None:
            self._opened = await self._in_thread(self._open)
            self.dialect = self._opened.dialect
        opened = self._opened
        if write:
            await self._in_thread(self._begin)
        result = await self._in_thread(lambda: opened.play(script))
        await self._failpoints.reach(f"relay.{verb}.begun")
        await self._in_thread(opened.connection.commit)
        return result

    def _open(self) -> UserConnection:
        connected = self._connect()
        try:
            connection = user_connection(connected)
        except TypeError as error:
            raise RelayFailed(f"{self.shown} has to return a DB-API connection. {error}") from None
        if connection.is_async:
            raise RelayFailed(f"{self.shown} has to return a DB-API connection, and this one is async.")
        if connection.in_transaction() is False:
            connection.connection.close()
            raise RelayFailed(f"The connection of {self.shown} commits each statement by itself. Turn autocommit off.")
        return connection

    def _begin(self) -> None:
        """A DB-API connection begins a transaction by itself."""

    async def _in_thread(self, do: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = _Thread()
        return await self._thread.call(do)

    def _errors(self) -> tuple[type[BaseException], ...]:
        return (Exception,)  # Each driver has its own.


class _Thread:
    """Makes calls one after the other. One that hangs is left behind, and keeps neither a relay nor its process."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._under_way: Future[Any] | None = None
        threading.Thread(target=self._work, name="penstock-relay-database", daemon=True).start()

    async def call(self, do: Callable[[], T]) -> T:
        """Return what a call returns; raises `TimeoutError` if that takes too long."""
        self._under_way = done = Future[T]()
        self._calls.put((do, done))
        try:
            async with asyncio.timeout(COMMAND_S):
                return await asyncio.wrap_future(done)
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no answer in {COMMAND_S:g} s") from error

    async def end(self, close: Callable[[], Any] | None) -> None:
        """Close and end, as soon as what is under way has returned; wait for that only if nothing is."""
        idle = self._under_way is None or self._under_way.done()

        def give_up() -> None:
            # It is of no use any more, whatever closing it raises.
            with contextlib.suppress(Exception):
                if close is not None:
                    close()

        closed = Future[None]()
        self._calls.put((give_up, closed))
        self._calls.put(None)
        if idle:
            await asyncio.wait({asyncio.wrap_future(closed)}, timeout=CONNECT_S)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            do, done = call
            if not done.set_running_or_notify_cancel():
                continue
            try:
                done.set_result(do())
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                done.set_exception(error)


class SqliteDatabase(ThreadDatabase):
    """A SQLite file."""

    def __init__(self, path: str, failpoints: Failpoints) -> None:
        super().__init__(self._open_file, f"sqlite:{path}", failpoints)
        self._path = path
        self.dialect = "sqlite"

    def _open_file(self) -> sqlite3.Connection:
        # A file that is not there is an error, and not an empty database.
        if not Path(self._path).is_file():
            raise sqlite3.OperationalError(f"there is no file {self._path}")
        connection = sqlite3.connect(f"file:{quote(self._path)}?mode=rw", uri=True, timeout=CONNECT_S)
        # Somebody may have put bytes there that are no text. Such a row is refused, and holds up no other.
        connection.text_factory = lambda data: data.decode(errors="surrogateescape")
        return connection

    def _begin(self) -> None:
        assert self._opened is not None
        # Claims of two relays do not meet, and none has to be given up half way for want of the lock.
        self._opened.connection.execute("BEGIN IMMEDIATE")


def open_database(url: str, failpoints: Failpoints) -> Database:
    """Return the database that a URL names; raises `RelayFailed`. Nothing is opened yet."""
    if url.startswith(("postgresql://", "postgres://")):
        return PostgresDatabase(url, failpoints)
    if url.startswith("sqlite:") and len(url) > len("sqlite:"):
        return SqliteDatabase(url.removeprefix("sqlite:"), failpoints)
    raise RelayFailed(
        f"The database is postgresql://HOST/NAME or sqlite:PATH, not {without_password(url)!r}. "
        "For another one, name a function that connects to it."
    )


def _said(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
