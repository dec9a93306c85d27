"""The outbox: a table in the user's database that holds jobs until a relay has enqueued them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET

from penstock.client.errors import OutboxInvalid, TaskInvalid
from penstock.client.reading import encode, new_id
from penstock.client.tasks.job import Job
from penstock.client.tasks.task import Call
from penstock.client.transactions.connections import Dialect, Statement, user_connection
from penstock.client.transactions.inbox import check_transaction, creation, statements_for
from penstock.domain.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

REQUEST_BYTES_MAX = 1_200_000
"""Of one row: a payload of 1 MiB, which is what the server takes, and all else that a job has."""
CALLS_MAX = 1_000
"""How many jobs one call adds."""
PAGE_MAX = 1_000
CHANNEL = "penstock_outbox"
"""What is notified on PostgreSQL when rows are added."""

_TABLE = """CREATE TABLE IF NOT EXISTS penstock_outbox (
    seq {seq},
    id varchar(36) NOT NULL UNIQUE,
    queue varchar(200) NOT NULL,
    request {text} NOT NULL,
    due_at_ms bigint NOT NULL DEFAULT 0,
    relay varchar(36),
    sends integer NOT NULL DEFAULT 0,
    first_sent_at_ms bigint,
    refused_at_ms bigint,
    reason {text}{more}
){options}"""
_WAITING = "CREATE INDEX IF NOT EXISTS penstock_outbox_waiting ON penstock_outbox (refused_at_ms, seq)"
_DUE = "CREATE INDEX IF NOT EXISTS penstock_outbox_due ON penstock_outbox (due_at_ms)"
_TABLES: dict[Dialect, tuple[str, ...]] = {
    "postgresql": (
        _TABLE.format(seq="bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", text="text", more="", options=""),
        _WAITING,
        _DUE,
        f"""CREATE OR REPLACE FUNCTION penstock_outbox_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('{CHANNEL}', '');
    RETURN NULL;
END
$$""",
        """CREATE OR REPLACE TRIGGER penstock_outbox_added AFTER INSERT ON penstock_outbox
FOR EACH STATEMENT EXECUTE FUNCTION penstock_outbox_added()""",
    ),
    "sqlite": (
        _TABLE.format(seq="INTEGER PRIMARY KEY AUTOINCREMENT", text="text", more="", options=""),
        _WAITING,
        _DUE,
    ),
    "mysql": (
        _TABLE.format(
            seq="bigint NOT NULL AUTO_INCREMENT PRIMARY KEY",
            text="longtext",
            more=",\n    KEY penstock_outbox_waiting (refused_at_ms, seq),\n    KEY penstock_outbox_due (due_at_ms)",
            options=" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        ),
    ),
}
_INSERT = "INSERT INTO penstock_outbox (id, queue, request) VALUES (?, ?, ?)"
_COUNT = "SELECT COUNT(*) FROM penstock_outbox WHERE refused_at_ms IS NULL"
_REFUSED = (
    "SELECT id, queue, request, reason, refused_at_ms, sends FROM penstock_outbox "
    "WHERE refused_at_ms IS NOT NULL ORDER BY seq"
)
_RETRY = (
    "UPDATE penstock_outbox SET refused_at_ms = NULL, reason = NULL, first_sent_at_ms = NULL, due_at_ms = 0 "
    "WHERE id = ? AND refused_at_ms IS NOT NULL"
)
_DISCARD = "DELETE FROM penstock_outbox WHERE id = ? AND refused_at_ms IS NOT NULL"

T = TypeVar("T")
_clock = SystemClock()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A row that the relay has set aside, as the server refused the job for good."""

    id: str
    queue: str
    request: str
    """The body of `POST /v1/jobs`."""
    reason: str
    refused_at_ms: int
    sends: int
    """How often it was sent."""


class Outbox:
    """The table `penstock_outbox` in your own database. `penstock relay` enqueues what is in it.

    A job that you add is enqueued if and only if your transaction commits. Nothing here commits by itself. Each method
    awaits a connection of either kind; those that end in `_sync` are for code without an event loop.
    """

    @staticmethod
    def statements(dialect: Dialect) -> tuple[str, ...]:
        """Return the statements that make the table, for a migration of yours."""
        return statements_for(dialect, _TABLES, "penstock_outbox")

    async def create(self, connection: object) -> None:
        """Make the table unless it is there."""
        found = user_connection(connection)
        await found.play_async(creation(self.statements(found.dialect)))

    def create_sync(self, connection: object) -> None:
        """As `create`, for code without an event loop."""
        found = user_connection(connection)
        found.play(creation(self.statements(found.dialect)))

    async def add(self, connection: object, call: Call[T]) -> Job[T]:
        """Add a call of a task to the outbox, in the transaction of this connection, and return its job.

        The job exists once a relay has enqueued it, after your commit; until then its methods raise `JobNotFound`.
        Raises `NoTransaction` if the connection commits each statement by itself, `OutboxInvalid` for a job that is
        too large, and `TaskInvalid` for what is no call, or one with `tx`.
        """
        return (await self.add_many(connection, [call]))[0]

    def add_sync(self, connection: object, call: Call[T]) -> Job[T]:
        """As `add`, for code without an event loop."""
        return self.add_many_sync(connection, [call])[0]

    async def add_many(self, connection: object, calls: Iterable[Call[T]]) -> list[Job[T]]:
        """Add up to 1,000 calls, in order. All are checked before the first is added."""
        found = user_connection(connection)
        check_transaction(found, "An outbox")
        given = list(calls)
        rows = [_row(call) for call in _checked(given)]
        await found.play_async(_insertion(rows))
        return [_handle(call, row[0]) for call, row in zip(given, rows, strict=True)]

    def add_many_sync(self, connection: object, calls: Iterable[Call[T]]) -> list[Job[T]]:
        """As `add_many`, for code without an event loop."""
        found = user_connection(connection)
        check_transaction(found, "An outbox")
        given = list(calls)
        rows = [_row(call) for call in _checked(given)]
        found.play(_insertion(rows))
        return [_handle(call, row[0]) for call, row in zip(given, rows, strict=True)]

    async def waiting(self, connection: object) -> int:
        """Return how many jobs wait to be enqueued."""
        return await user_connection(connection).play_async(_count())

    def waiting_sync(self, connection: object) -> int:
        """As `waiting`, for code without an event loop."""
        return user_connection(connection).play(_count())

    async def refused(self, connection: object, *, limit: int = 100) -> list[Refused]:
        """Return the first jobs that were refused for good, with the reason of each."""
        return await user_connection(connection).play_async(_refused(limit))

    def refused_sync(self, connection: object, *, limit: int = 100) -> list[Refused]:
        """As `refused`, for code without an event loop."""
        return user_connection(connection).play(_refused(limit))

    async def retry(self, connection: object, job_id: str) -> bool:
        """Have a refused job sent again, as it is; return whether there was one."""
        return await user_connection(connection).play_async(_change(_RETRY, job_id))

    def retry_sync(self, connection: object, job_id: str) -> bool:
        """As `retry`, for code without an event loop."""
        return user_connection(connection).play(_change(_RETRY, job_id))

    async def discard(self, connection: object, job_id: str) -> bool:
        """Delete a refused job; return whether there was one."""
        return await user_connection(connection).play_async(_change(_DISCARD, job_id))

    def discard_sync(self, connection: object, job_id: str) -> bool:
        """As `discard`, for code without an event loop."""
        return user_connection(connection).play(_change(_DISCARD, job_id))


def _checked(calls: list[Call[T]]) -> list[Call[T]]:
    for call in calls:
        if not isinstance(call, Call):
            raise TaskInvalid(f"An outbox takes calls, such as task.call(…), not {call!r}.")
        if call.tx is not None:
            raise TaskInvalid(
                f"A call of task {call.task.name} that goes to an outbox cannot be enqueued with tx= as well. Pass the "
                "connection to the outbox alone."
            )
    if len(calls) > CALLS_MAX:
        raise OutboxInvalid(f"{len(calls):,} jobs were added at once, and {CALLS_MAX:,} at most are allowed.")
    return calls


def _row(call: Call[Any]) -> tuple[str, str, str]:
    """Return the id, the queue and the request of a call."""
    job = call.new_job()
    if job.id is UNSET:
        job.id = new_id()
    if job.delay_ms is not UNSET:
        # Counted from now, however long the row waits for a relay.
        job.run_at_ms, job.delay_ms = _clock.wall_ms() + job.delay_ms, UNSET
    request = encode(job)
    if len(request) > REQUEST_BYTES_MAX:
        raise OutboxInvalid(
            f"A job of task {call.task.name} has {len(request):,} bytes, and {REQUEST_BYTES_MAX:,} at most are "
            "allowed. Store its data elsewhere, and pass where it is."
        )
    assert isinstance(job.id, str)
    return job.id, job.queue, request.decode()


def _handle(call: Call[T], job_id: str) -> Job[T]:
    return Job(call.task.app, job_id, call.task.result.decode)


def _insertion(rows: list[tuple[str, str, str]]) -> Generator[Statement, Any, None]:
    for row in rows:
        yield Statement(_INSERT, row)


def _count() -> Generator[Statement, Any, int]:
    (count,) = (yield Statement(_COUNT, rows=True))[0]
    return int(count)


def _refused(limit: int) -> Generator[Statement, Any, list[Refused]]:
    if type(limit) is not int or not 1 <= limit <= PAGE_MAX:
        raise ValueError(f"limit is from 1 to {PAGE_MAX:,}, not {limit!r}.")
    rows = yield Statement(f"{_REFUSED} LIMIT {limit}", rows=True)
    return [
        Refused(id=row[0], queue=row[1], request=row[2], reason=row[3] or "", refused_at_ms=row[4], sends=row[5])
        for row in rows
    ]


def _change(sql: str, job_id: str) -> Generator[Statement, Any, bool]:
    changed: int = yield Statement(sql, (job_id,))
    return changed > 0
