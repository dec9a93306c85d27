"""The inbox: a table in the user's database that records which effects of jobs were committed with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client.durations import Duration, milliseconds
from penstock.client.errors import AttemptStale, NoTransaction
from penstock.client.transactions.connections import Dialect, Statement, UserConnection, user_connection
from penstock.domain.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

NAME_LENGTH_MAX = 150
SWEEP_ROWS_MAX = 1_000

_TABLE = """CREATE TABLE IF NOT EXISTS penstock_inbox (
    job_id varchar(36) NOT NULL,
    name varchar(150) NOT NULL,
    attempt bigint NOT NULL,
    done_at_ms bigint NOT NULL,
    PRIMARY KEY (job_id, name){more}
){options}"""
_INDEX = "CREATE INDEX IF NOT EXISTS penstock_inbox_done ON penstock_inbox (done_at_ms)"
_PLAIN = (_TABLE.format(more="", options=""), _INDEX)
_MYSQL = (
    _TABLE.format(
        more=",\n    KEY penstock_inbox_done (done_at_ms)", options=" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    ),
)
_TABLES: dict[Dialect, tuple[str, ...]] = {"postgresql": _PLAIN, "sqlite": _PLAIN, "mysql": _MYSQL}

_VALUES = "(job_id, name, attempt, done_at_ms) VALUES (?, ?, ?, ?)"
_INSERTS: dict[Dialect, str] = {
    "postgresql": f"INSERT INTO penstock_inbox {_VALUES} ON CONFLICT DO NOTHING",
    "sqlite": f"INSERT INTO penstock_inbox {_VALUES} ON CONFLICT DO NOTHING",
    "mysql": f"INSERT IGNORE INTO penstock_inbox {_VALUES}",
    "other": f"INSERT INTO penstock_inbox {_VALUES}",
}
_LAST_ATTEMPT = "SELECT MAX(attempt) FROM penstock_inbox WHERE job_id = ?"
_FOUND = "SELECT attempt FROM penstock_inbox WHERE job_id = ? AND name = ?"
_RAISE_ATTEMPT = "UPDATE penstock_inbox SET attempt = ? WHERE job_id = ? AND name = ? AND attempt < ?"
_DELETE = "DELETE FROM penstock_inbox WHERE job_id = ? AND name = ?"

_SWEEP = (
    "DELETE FROM penstock_inbox WHERE (job_id, name) IN "
    "(SELECT job_id, name FROM penstock_inbox WHERE done_at_ms < ? ORDER BY done_at_ms LIMIT ?)"
)
_SWEEPS: dict[Dialect, str] = {
    "postgresql": _SWEEP,
    "sqlite": _SWEEP,
    "mysql": "DELETE FROM penstock_inbox WHERE done_at_ms < ? ORDER BY done_at_ms LIMIT ?",
}

_clock = SystemClock()


class Inbox:
    """The table `penstock_inbox` in your own database, which `ctx.once(conn)` writes to.

    Nothing here commits: what it does becomes lasting with your transaction.
    """

    @staticmethod
    def statements(dialect: Dialect) -> tuple[str, ...]:
        """Return the statements that make the table, for a migration of yours."""
        return statements_for(dialect, _TABLES, "penstock_inbox")

    async def create(self, connection: object) -> None:
        """Make the table unless it is there."""
        found = user_connection(connection)
        await found.play_async(creation(self.statements(found.dialect)))

    def create_sync(self, connection: object) -> None:
        """As `create`, for code without an event loop."""
        found = user_connection(connection)
        found.play(creation(self.statements(found.dialect)))

    async def sweep(self, connection: object, older_than: Duration, *, limit: int = SWEEP_ROWS_MAX) -> int:
        """Delete up to `limit` rows of effects that were done longer ago than this; return how many.

        Keep rows for longer than any of your jobs can be tried again, or that job's effect is done once more.
        """
        found = user_connection(connection)
        return await found.play_async(_sweep(found.dialect, milliseconds(older_than, "older_than"), limit))

    def sweep_sync(self, connection: object, older_than: Duration, *, limit: int = SWEEP_ROWS_MAX) -> int:
        """As `sweep`, for code without an event loop."""
        found = user_connection(connection)
        return found.play(_sweep(found.dialect, milliseconds(older_than, "older_than"), limit))


class Once:
    """`with` or `async with` block in which an effect is done once for a job, in the transaction of a connection.

    Entered, it says whether the effect is still to be done. A second attempt that runs at the same time waits until the
    first one's transaction has ended.
    """

    def __init__(self, connection: object, job_id: str, attempt: int, name: object) -> None:
        if not isinstance(name, str) or len(name) > NAME_LENGTH_MAX:
            raise ValueError(f"The name of an effect has up to {NAME_LENGTH_MAX} characters, not {name!r}.")
        self._connection = user_connection(connection)
        self._job_id = job_id
        self._attempt = attempt
        self._name: str = name
        self._first = False

    def __enter__(self) -> bool:
        check_transaction(self._connection, "ctx.once")
        self._first = self._connection.play(self._begin())
        return self._first

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._first and isinstance(error, Exception):
            try:
                self._connection.play(self._forget())
            except Exception as failed:  # noqa: BLE001 - of the user's library, and the block's own error is raised
                error.add_note(_not_forgotten(failed))

    async def __aenter__(self) -> bool:
        check_transaction(self._connection, "ctx.once")
        self._first = await self._connection.play_async(self._begin())
        return self._first

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._first and isinstance(error, Exception):
            try:
                await self._connection.play_async(self._forget())
            except Exception as failed:  # noqa: BLE001 - as above
                error.add_note(_not_forgotten(failed))

    def _begin(self) -> Generator[Statement, Any, bool]:
        """Insert the row and return whether it is new; raises `AttemptStale` if a later attempt has one."""
        dialect, job_id, name = self._connection.dialect, self._job_id, self._name
        if dialect == "other" and (yield Statement(_FOUND, (job_id, name), rows=True)):
            inserted = 0
        else:
            # The insert comes before any look: it takes the lock that two attempts meet at.
            row = (job_id, name, self._attempt, _clock.wall_ms())
            inserted = yield Statement(_INSERTS[dialect], row)
        (last,) = (yield Statement(_LAST_ATTEMPT, (job_id,), rows=True))[0]
        if last is not None and last > self._attempt:
            if inserted:
                yield from self._forget()
            raise AttemptStale(
                f"Attempt {self._attempt} of job {job_id} is over: attempt {last} has committed an effect. "
                "Roll back, and leave the rest to that attempt."
            )
        if not inserted:
            yield Statement(_RAISE_ATTEMPT, (self._attempt, job_id, name, self._attempt))
        return bool(inserted)

    def _forget(self) -> Generator[Statement, Any, None]:
        """Remove the row again: who catches the error and commits must not find the effect recorded."""
        yield Statement(_DELETE, (self._job_id, self._name))


def check_transaction(connection: UserConnection, what: str) -> None:
    """Raise `NoTransaction` if the connection is known to commit each statement by itself."""
    if connection.in_transaction() is False:
        raise NoTransaction(
            f"{what} needs a transaction, and this connection of {connection.library} commits each statement by "
            "itself. Begin a transaction first, and commit it together with your own changes."
        )


def statements_for(dialect: Dialect, tables: dict[Dialect, tuple[str, ...]], table: str) -> tuple[str, ...]:
    """Return the statements that make a table; raises `TypeError` for a database that they are not known for."""
    if dialect not in tables:
        raise TypeError(
            f"The statements that make {table} are known for {', '.join(tables)}. For another database make a table "
            "with the columns that docs/transactions.md names."
        )
    return tables[dialect]


def creation(statements: tuple[str, ...]) -> Generator[Statement, Any, None]:
    """Run statements that have no parameters."""
    for statement in statements:
        yield Statement(statement)


def _sweep(dialect: Dialect, older_ms: int, limit: int) -> Generator[Statement, Any, int]:
    if type(limit) is not int or not 1 <= limit <= SWEEP_ROWS_MAX:
        raise ValueError(f"limit is from 1 to {SWEEP_ROWS_MAX:,}, not {limit!r}. Sweep again for more.")
    if dialect not in _SWEEPS:
        raise TypeError(f"How to sweep penstock_inbox is known for {', '.join(_SWEEPS)}.")
    removed: int = yield Statement(_SWEEPS[dialect], (_clock.wall_ms() - older_ms, limit))
    return removed


def _not_forgotten(failed: Exception) -> str:
    return f"The row of ctx.once could not be removed, so roll back this transaction: {failed}"
