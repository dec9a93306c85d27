"""Connections to PostgreSQL on a thread with an event loop of its own, for callers on any thread."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import threading
from typing import TYPE_CHECKING, Any

from penstock.client import forking
from penstock.client.errors import RecordsInvalid, RecordsUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from concurrent.futures import Future
    from types import ModuleType

CONNECTIONS = 4
CONNECT_S = 10.0
STATEMENT_S = 10.0
ANSWER_S = 30.0
"""How long a caller waits for an answer, waiting for a connection included."""
TRIES = 3
"""How often a statement is run that a lost connection may or may not have taken with it. All can be repeated."""
TRY_PAUSE_S = 0.2


def driver() -> ModuleType:
    """Return asyncpg; raises `RecordsInvalid` where it is not installed."""
    try:
        import asyncpg  # noqa: PLC0415 - only who uses it needs it
    except ImportError:
        raise RecordsInvalid("PostgresRecords needs asyncpg: pip install 'penstock[postgres]'.") from None
    return asyncpg


class PostgresThread:
    """Runs statements of one process, from the first call on. A forked child begins anew."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = threading.Lock()
        self._running: _Running | None = None
        forking.register(self)

    def run(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:  # noqa: ANN401 - as the work returns
        """Run work with a connection, and again if that is lost; raises `RecordsUnavailable`."""
        with self._lock:
            if self._running is None:
                self._running = _Running(self._dsn, driver())
            running = self._running
        future = running.submit(work)
        try:
            return future.result(ANSWER_S)
        except TimeoutError:
            future.cancel()
            raise RecordsUnavailable(f"PostgreSQL did not answer within {ANSWER_S:g} seconds.") from None
        except BaseException:
            future.cancel()  # An interrupt: nobody waits for it any more.
            raise

    def close(self) -> None:
        """Close the connections and end the thread. The next call begins anew."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            running.close()

    def descriptors(self) -> Iterable[int]:
        """Return what a forked child must not keep."""
        return [] if self._running is None else self._running.descriptors()

    def forget(self) -> None:
        """Be as new, in a forked child."""
        # The parent's loop is kept as it is: to take it apart here would disturb its connections.
        _inherited.append(self._running)
        self._lock = threading.Lock()
        self._running = None


_inherited: list[object] = []


class _Running:
    """The thread, its event loop and its connections."""

    def __init__(self, dsn: str, asyncpg: ModuleType) -> None:
        self._dsn = dsn
        self._asyncpg = asyncpg
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._places = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[Any] = []
        # A daemon, so that a program that forgets to close can end. Nothing that was answered is lost by that.
        self._thread = threading.Thread(target=self._work, name="penstock-idempotency-postgres", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Future[Any]:
        """Run work on the thread."""
        return asyncio.run_coroutine_threadsafe(self._repeat(work), self._loop)

    def close(self) -> None:
        """Close the connections, end the thread, and wait for that."""
        future = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        with contextlib.suppress(TimeoutError):
            future.result(ANSWER_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_S)

    def descriptors(self) -> Iterable[int]:
        """Return those of the loop and of all connections."""
        # The selector has one of its own where it is more than a list; what it waits for are the connections.
        own = getattr(self._selector, "fileno", None)
        return [*([] if own is None else [own()]), *list(self._selector.get_map())]

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _close(self) -> None:
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=1)
            except (OSError, TimeoutError, self._asyncpg.InterfaceError, self._asyncpg.PostgresError):
                connection.terminate()

    async def _repeat(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:  # noqa: ANN401 - as the work returns
        for attempt in range(1, TRIES + 1):
            try:
                return await self._once(work)
            except _Lost as lost:
                if attempt == TRIES:
                    raise RecordsUnavailable(f"PostgreSQL cannot be reached: {lost}.") from lost.__cause__
                await asyncio.sleep(TRY_PAUSE_S * attempt)
        raise AssertionError("the last try returns or raises")

    async def _once(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:  # noqa: ANN401 - as the work returns
        asyncpg = self._asyncpg
        async with self._places:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                answer = await work(connection)
            except asyncpg.PostgresError as error:
                if isinstance(error, _leaving(asyncpg)) or connection.is_closed():
                    connection.terminate()
                    raise _Lost(_told(error)) from error
                self._idle.append(connection)
                raise RecordsUnavailable(f"PostgreSQL refused: {_told(error)}.") from error
            except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
                connection.terminate()
                raise _Lost(_told(error)) from error
            except BaseException:
                # Refused by us, or given up in the middle of a statement: the connection may still be busy with it.
                connection.terminate()
                raise
            self._idle.append(connection)
            return answer

    async def _connect(self) -> Any:  # noqa: ANN401 - a connection of asyncpg
        asyncpg = self._asyncpg
        try:
            return await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_S,
                command_timeout=STATEMENT_S,
                server_settings={
                    "application_name": "penstock-idempotency",
                    # Each statement sees what was committed before it, and what it changed is on disk.
                    "default_transaction_isolation": "read committed",
                    "synchronous_commit": "on",
                },
            )
        except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
            raise RecordsUnavailable(f"PostgreSQL refuses the connection: {_told(error)}.") from error
        except (asyncpg.ClientConfigurationError, ValueError) as error:
            raise RecordsInvalid(f"The address of PostgreSQL cannot be understood: {error}.") from error
        except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresError) as error:
            raise _Lost(_told(error)) from error


class _Lost(Exception):
    """The connection is lost, or there is none: what was under way may or may not have happened."""


def _leaving(asyncpg: ModuleType) -> tuple[type[Exception], ...]:
    return (
        asyncpg.PostgresConnectionError,
        asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError,
        asyncpg.CannotConnectNowError,
        asyncpg.ReadOnlySQLTransactionError,  # After a failover, the old primary or a standby.
    )


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
