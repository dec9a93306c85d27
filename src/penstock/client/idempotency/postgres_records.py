"""Records in a table of PostgreSQL, which any number of machines share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client.errors import RecordsInvalid, RecordsUnavailable
from penstock.client.idempotency.postgres_thread import PostgresThread
from penstock.client.idempotency.records import (
    COMPLETED,
    ROUNDS_MAX,
    TABLE,
    Completed,
    Held,
    Mismatched,
    Started,
    Taken,
)
from penstock.domain.clock import SystemClock

if TYPE_CHECKING:
    from penstock.domain.clock import Clock

SWEEP_EACH = 64
SWEEP_LIMIT = 256
"""One in 64 starts removes up to 256 expired records, so that they never pile up."""

_COLUMNS = {
    "key": "text",
    "state": "text",
    "owner": "text",
    "attempts": "integer",
    "lease_until_ms": "bigint",
    "expires_at_ms": "bigint",
    "fingerprint": "text",
    "result": "bytea",
}
_LOCK = 0x70656E6964656D
"""Held while the table is made, so that two who come first do not both make it."""

# $1 is the time where a test moves it; otherwise the database's own clock counts, which all machines share.
_NOW = "coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"

_CREATE = """
CREATE TABLE IF NOT EXISTS {table} (
    key text PRIMARY KEY,
    state text NOT NULL,
    owner text NOT NULL,
    attempts integer NOT NULL,
    lease_until_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    fingerprint text NOT NULL,
    result bytea
)
"""
_CREATE_INDEX = "CREATE INDEX IF NOT EXISTS {expiry} ON {table} (expires_at_ms)"
_FOUND = """
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
       coalesce(a.attnum = ALL (i.indkey::int2[]), false) AS key
FROM pg_attribute a
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisunique AND i.indpred IS NULL
                    AND i.indnkeyatts = 1 AND a.attnum = i.indkey[0]
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
"""
_START = """
INSERT INTO {table} AS had (key, state, owner, attempts, lease_until_ms, expires_at_ms, fingerprint, result)
VALUES ($2, 'STARTED', $3, 1, {now} + $4::bigint, {now} + $5::bigint, $6, NULL)
ON CONFLICT (key) DO UPDATE SET
    state = 'STARTED',
    owner = excluded.owner,
    attempts = CASE
        WHEN had.expires_at_ms <= {now} THEN 1
        WHEN had.owner = excluded.owner THEN had.attempts
        ELSE had.attempts + 1
    END,
    lease_until_ms = excluded.lease_until_ms,
    expires_at_ms = excluded.expires_at_ms,
    fingerprint = CASE
        WHEN had.expires_at_ms <= {now} OR had.fingerprint = '' THEN excluded.fingerprint
        ELSE had.fingerprint
    END,
    result = NULL
WHERE had.expires_at_ms <= {now}
   OR (had.state = 'STARTED'
       AND (had.owner = excluded.owner OR had.lease_until_ms <= {now})
       AND (had.fingerprint = '' OR excluded.fingerprint = '' OR had.fingerprint = excluded.fingerprint))
RETURNING attempts
"""
_LOOK = """
SELECT state, owner, attempts, lease_until_ms - {now} AS lease_ms, expires_at_ms - {now} AS left_ms, fingerprint, result
FROM {table} WHERE key = $2
"""
_RENEW = """
UPDATE {table} SET lease_until_ms = {now} + $4::bigint, expires_at_ms = {now} + $5::bigint
WHERE key = $2 AND owner = $3 AND state = 'STARTED' RETURNING 1
"""
_COMPLETE = """
UPDATE {table} SET state = 'COMPLETED', result = $4, lease_until_ms = 0, expires_at_ms = {now} + $5::bigint
WHERE key = $2 AND owner = $3 AND state = 'STARTED' RETURNING 1
"""
_RELEASE = """
UPDATE {table} SET owner = '', lease_until_ms = 0 WHERE key = $1 AND owner = $2 AND state = 'STARTED' RETURNING 1
"""
_FORGET = "DELETE FROM {table} WHERE key = $1"
_SWEEP = """
DELETE FROM {table} WHERE key IN (
    SELECT key FROM {table} WHERE expires_at_ms <= {now} ORDER BY expires_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING 1
"""


class PostgresRecords:
    """Records in a table of PostgreSQL, made on first use. It needs `pip install 'penstock[postgres]'`.

    Leases and expiry are judged by the database's clock, so that those of your machines do not matter. `table` may
    name a schema: `"billing.idempotency"`.
    """

    def __init__(self, dsn: str, *, table: str = TABLE, clock: Clock | None = None) -> None:
        self._table = table
        *schema, name = table.split(".")
        self._quoted = ".".join(_quote(part) for part in (*schema, name))
        self._expiry = _quote(f"{name}_expiry")
        self._clock = clock or SystemClock()
        self._thread = PostgresThread(dsn)
        self._ready = False
        self._starts = 0

    def __repr__(self) -> str:
        return f"PostgresRecords(table={self._table!r})"

    def create(self) -> None:
        """Create the table if it is missing, and check it."""
        self._thread.run(self._prepare)
        self._ready = True

    def check(self) -> None:
        """As `create`."""
        self.create()

    def start(self, key: str, owner: str, *, lease_ms: int, ttl_ms: int, fingerprint: str) -> Taken:
        """Take a key if nobody holds it and it is not completed."""
        self._starts += 1
        sweeps = self._starts % SWEEP_EACH == 1
        taken: Taken = self._run(self._start, key, owner, lease_ms, ttl_ms, fingerprint, sweeps)
        return taken

    def renew(self, key: str, owner: str, *, lease_ms: int, ttl_ms: int) -> bool:
        """Extend a lease."""
        return bool(self._run(self._fetch, _RENEW, self._clock.pinned_ms, key, owner, lease_ms, ttl_ms))

    def complete(self, key: str, owner: str, result: bytes | None, *, ttl_ms: int) -> bool:
        """Record a result."""
        done: bool = self._run(self._complete, key, owner, result, ttl_ms)
        return done

    def release(self, key: str, owner: str) -> bool:
        """End a lease."""
        return bool(self._run(self._fetch, _RELEASE, key, owner))

    def forget(self, key: str) -> None:
        """Remove a record."""
        self._run(self._fetch, _FORGET, key)

    def sweep(self, limit: int) -> int:
        """Remove expired records."""
        return len(self._run(self._fetch, _SWEEP, self._clock.pinned_ms, limit))

    def close(self) -> None:
        """Close the connections."""
        self._thread.close()

    def _run(self, work: Any, *args: object) -> Any:  # noqa: ANN401 - a method, and what it returns
        if not self._ready:
            self.create()
        return self._thread.run(lambda connection: work(connection, *args))

    async def _start(
        self,
        connection: Any,  # noqa: ANN401 - a connection of asyncpg
        key: str,
        owner: str,
        lease_ms: int,
        ttl_ms: int,
        fingerprint: str,
        sweeps: bool,  # noqa: FBT001 - passed on by position
    ) -> Taken:
        now_ms = self._clock.pinned_ms
        if sweeps:
            await self._fetch(connection, _SWEEP, now_ms, SWEEP_LIMIT)
        for _ in range(ROUNDS_MAX):
            rows = await self._fetch(connection, _START, now_ms, key, owner, lease_ms, ttl_ms, fingerprint)
            if rows:
                return Started(rows[0]["attempts"])
            rows = await self._fetch(connection, _LOOK, now_ms, key)
            taken = _told(rows[0], fingerprint) if rows else None
            if taken is not None:
                return taken
            # It was removed, given up or expired between the two.
        raise RecordsUnavailable(f"The record of {key} changes too often to be read.")

    async def _complete(self, connection: Any, key: str, owner: str, result: bytes | None, ttl_ms: int) -> bool:  # noqa: ANN401
        now_ms = self._clock.pinned_ms
        if await self._fetch(connection, _COMPLETE, now_ms, key, owner, result, ttl_ms):
            return True
        rows = await self._fetch(connection, _LOOK, now_ms, key)
        return bool(rows) and (rows[0]["state"], rows[0]["owner"]) == (COMPLETED, owner)

    async def _prepare(self, connection: Any) -> None:  # noqa: ANN401 - a connection of asyncpg
        found = await self._fetch(connection, _FOUND, self._quoted)
        if not found:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                await self._fetch(connection, _CREATE)
                await self._fetch(connection, _CREATE_INDEX)
            found = await self._fetch(connection, _FOUND, self._quoted)
        types = {row["name"]: row["type"] for row in found}
        keys = {row["name"] for row in found if row["key"]}
        if {name: types.get(name) for name in _COLUMNS} != _COLUMNS or "key" not in keys:
            raise RecordsInvalid(
                f"The table {self._table} is not one of idempotency records: it needs the columns "
                f"{', '.join(f'{name} {kind}' for name, kind in _COLUMNS.items())}, and key alone as its primary key."
            )

    async def _fetch(self, connection: Any, statement: str, *args: object) -> list[Any]:  # noqa: ANN401 - as above
        made = statement.replace("{now}", _NOW).replace("{table}", self._quoted).replace("{expiry}", self._expiry)
        rows: list[Any] = await connection.fetch(made, *args)
        return rows


def _told(row: Any, fingerprint: str) -> Taken | None:  # noqa: ANN401 - a record of asyncpg
    if row["left_ms"] <= 0:
        return None
    if row["fingerprint"] and fingerprint and row["fingerprint"] != fingerprint:
        return Mismatched()
    if row["state"] == COMPLETED:
        return Completed(row["result"], row["attempts"], row["left_ms"], row["fingerprint"])
    return Held(row["lease_ms"]) if row["lease_ms"] > 0 else None


def _quote(name: str) -> str:
    if not name or "\x00" in name:
        raise ValueError(f"A table has a name, and {name!r} is none.")
    return '"' + name.replace('"', '""') + '"'
