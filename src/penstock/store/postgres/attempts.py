"""Trying again: how often, how soon, and for how long at most."""

from __future__ import annotations

import asyncio
import random

import asyncpg

from penstock.domain.errors import StoreUnavailable

ATTEMPTS_TOTAL_S = 30.0
"""For how long the store tries before it gives up on the database."""

PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 1.0

RETRIED = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
)
"""Errors after which nothing has happened, and the same may well succeed."""

EXHAUSTED = (
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidSchemaNameError,
)
"""Errors of a database that cannot work: a full disk, too many connections, a schema that is gone."""


class Attempts:
    """The attempts at one piece of work."""

    def __init__(self) -> None:
        self._deadline_s = asyncio.get_running_loop().time() + ATTEMPTS_TOTAL_S
        self._pause_s = PAUSE_FIRST_S

    async def pause(self, error: Exception) -> None:
        """Wait before the next attempt; or raise `StoreUnavailable` if it is time to give up."""
        if asyncio.get_running_loop().time() + self._pause_s > self._deadline_s:
            raise unavailable(error) from error
        # Nodes that lost the same server do not come back in step.
        await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.0))  # noqa: S311 # No secret.
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)


def unavailable(error: BaseException) -> StoreUnavailable:
    """Say that the database does not do its work, and why."""
    return StoreUnavailable(f"The database is not available: {error}")
