"""A synchronous standby of a PostgreSQL server, which is away when a test says so."""

from __future__ import annotations

import asyncio

from tests.support.postgres import PostgresServer

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event = 'SyncRep'"
PROBE = "SELECT pg_logical_emit_message(true, 'penstock', 'a commit that has to be replicated')"
PROBED = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres' AND wait_event = 'SyncRep'"
WAITS = "SELECT pid, query_start FROM pg_stat_activity WHERE datname = '{}' AND wait_event = 'SyncRep'"
CANCEL = f"SELECT pg_cancel_backend(pid), pid, query_start FROM ({WAITS})"


class Standby:
    """A synchronous standby that is away, until it is said to be needed no longer."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self._server = server
        self._database = database
        self._probe: asyncio.Task[str] | None = None

    async def is_waited_for(self) -> None:
        async with asyncio.timeout(30):
            while await self._ask(WAITING) == "0":
                pass

    async def is_given_up(self) -> None:
        """End the waits, as an operator or a time limit does: the server then says that it has committed.

        Return once these waits are over. A session whose wait was cancelled still shows it for a moment, and who
        took that for the next wait would find nothing to give up.
        """
        given_up = {wait.removeprefix("t|") for wait in (await self._ask(CANCEL)).splitlines()}
        assert given_up, "nothing waited for the standby"
        async with asyncio.timeout(30):
            while given_up & {*(await self._ask(WAITS)).splitlines()}:
                pass

    async def _ask(self, question: str) -> str:
        return await asyncio.to_thread(self._server.psql, question.format(self._database))

    async def goes_away(self) -> None:
        """Return once commits wait for it: the server takes a moment to know that they have to."""
        self._need("away")
        async with asyncio.timeout(30):
            while self._probe is None or self._probe.done():
                self._probe = asyncio.create_task(asyncio.to_thread(self._server.psql, PROBE))
                while not self._probe.done() and await self._ask(PROBED) == "0":
                    pass

    async def comes_back(self) -> None:
        self.is_needed_no_longer()
        assert self._probe is not None
        await self._probe

    def is_needed_no_longer(self) -> None:
        self._need("")

    def _need(self, name: str) -> None:
        self._server.psql(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        self._server.psql("SELECT pg_reload_conf()")
