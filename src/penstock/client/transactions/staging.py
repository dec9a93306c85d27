"""Enqueues jobs in the transaction of a connection that belongs to the user, in the database that Penstock uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client.errors import Invalid, TransactionUnsupported
from penstock.client.slices import slices
from penstock.client.transactions.connections import Statement, UserConnection, user_connection
from penstock.client.transactions.inbox import check_transaction
from penstock.wire.jobs.problems import INVALID, make_problem

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from penstock.client.requests import NewJob

# As text: a connection may write JSON in a way of its own.
_STAGE = "SELECT penstock.enqueue_jobs_v1(CAST(CAST(? AS text) AS json))"

_NO_SCHEMA = frozenset({"3F000", "42883"})
"""There is no such schema, or no such function."""
_NOT_ALLOWED = "42501"
_BAD_VALUES = frozenset({"22023", "22P02", "22P05"})
"""A value that is refused, no JSON, or a character that PostgreSQL cannot hold."""
_OURS = "penstock: "

OUTBOX = "docs/transactions.md shows an outbox, which works with any database."


async def stage(connection: object, jobs: Iterable[NewJob]) -> list[str]:
    """Enqueue jobs when the connection's transaction commits; return their ids, in order.

    Raises `TypeError` for what is no connection, `NoTransaction`, `TransactionUnsupported`, or `Invalid` if a job is
    refused at once. PostgreSQL takes nothing more in a transaction in which a statement failed: roll it back.
    """
    opened = _opened(connection)
    try:
        return await opened.play_async(_staged(jobs))
    except Exception as error:
        _explain(error)
        raise


def stage_sync(connection: object, jobs: Iterable[NewJob]) -> list[str]:
    """As `stage`, for a connection that is not async."""
    opened = _opened(connection)
    try:
        return opened.play(_staged(jobs))
    except Exception as error:
        _explain(error)
        raise


def _staged(jobs: Iterable[NewJob]) -> Generator[Statement, Any, list[str]]:
    ids: list[str] = []
    for entries in slices(jobs):
        text = f"[{b','.join(entries).decode()}]"
        rows = yield Statement(_STAGE, (text,), rows=True)
        ids += [row[0] for row in rows]
    return ids


def _opened(connection: object) -> UserConnection:
    opened = user_connection(connection)
    if opened.dialect != "postgresql":
        raise TransactionUnsupported(
            f"tx= takes a connection to the PostgreSQL database that Penstock keeps its jobs in. This one, of "
            f"{opened.library}, is to another kind of database. {OUTBOX}"
        )
    check_transaction(opened, "tx=")
    return opened


def _explain(error: Exception) -> None:
    """Raise what an error of the user's library means, if it has to do with us."""
    state, text = _state(error)
    if state in _NO_SCHEMA and "penstock" in text:
        raise TransactionUnsupported(
            "The database of tx= has no schema of Penstock's, or one of an older version. `penstock serve --store "
            "postgresql://…`, or a worker on this database, makes it or brings it up to date when it starts. If "
            f"Penstock uses another database: {OUTBOX}"
        ) from error
    if state == _NOT_ALLOWED and ("penstock" in text or "enqueue_jobs_v1" in text):
        raise TransactionUnsupported(
            "The role of tx= may not enqueue jobs. As Penstock's role: GRANT USAGE ON SCHEMA penstock TO your_role; "
            "GRANT EXECUTE ON FUNCTION penstock.enqueue_jobs_v1(json) TO your_role;"
        ) from error
    if state in _BAD_VALUES:
        detail = text.partition("\n")[0]
        _, ours, rule = detail.partition(_OURS)
        raise Invalid(make_problem(INVALID, rule or detail, rule.partition(" ")[0] if ours else "")) from error


def _state(error: BaseException) -> tuple[str, str]:
    """Return the SQLSTATE and the text of an error of a driver, which SQLAlchemy and Django wrap."""
    seen: BaseException | None = error
    while seen is not None:
        for found in (seen, getattr(seen, "orig", None)):
            state = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
            if isinstance(state, str):
                return state, str(found)
        seen = seen.__cause__
    return "", str(error)
