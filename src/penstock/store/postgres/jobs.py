"""Job scripts on PostgreSQL: each a transaction of its own, run again until it is known to be committed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from typing import TYPE_CHECKING

import asyncpg

from penstock.domain.errors import PenstockError, StoreUnavailable
from penstock.domain.job import Lease
from penstock.domain.job_errors import JobInvalid
from penstock.store.jobs.running import UNKEEPABLE
from penstock.store.jobs.script import Overtaken, Tx
from penstock.store.jobs.statements import Dialect, statements
from penstock.store.postgres.attempts import EXHAUSTED, RETRIED, Attempts, unavailable
from penstock.store.postgres.sql import statements as own_statements

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.domain.failpoints import Failpoints
    from penstock.store.jobs.running import Body
    from penstock.store.jobs.script import Answer, Script
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Pool, Session
    from penstock.store.postgres.wake import Wake

JOBS_READY = "penstock_jobs_ready"
JOBS_CHANGED = "penstock_jobs_changed"
LEASES_HEARD = "penstock_leases_heard"
STAGED = "penstock_staged"
"""Notified by users' transactions, when they commit."""

SHARDS = 32
"""How many counters a queue has for each state; a transaction uses one at random."""

_UNKEEPABLE = (UnicodeEncodeError, asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)

_NOW = "SELECT penstock.now_ms($1)"

_log = logging.getLogger(__name__)


WIDTH = 4
"""How many transactions of one verb are under way at once: with more of them, fewer calls share each."""


class PostgresRunner:
    """Runs scripts on the pool's connections."""

    width = WIDTH

    def __init__(self, pool: Pool, wake: Wake, clock: PinnedClock, failpoints: Failpoints) -> None:
        self._pool = pool
        self._wake = wake
        self._clock = clock
        self._failpoints = failpoints
        self._statements = statements(Dialect.POSTGRES) | own_statements("staging")
        self._listeners: list[tuple[Callable[[int, int], None], Callable[[str], None]]] = []
        self._hearers: list[Callable[[Lease], None]] = []
        self._takers: list[Callable[[], None]] = []
        self._steps: Counter[str] = Counter()
        self._running: set[asyncio.Task[object]] = set()
        self._closed = False
        wake.open_topic(JOBS_READY, self._heard_ready)
        wake.open_topic(JOBS_CHANGED, self._heard_changed)
        wake.open_topic(LEASES_HEARD, self._heard_lease)
        wake.open_topic(STAGED, self._heard_staged)

    def listen(self, ready: Callable[[int, int], None], changed: Callable[[str], None]) -> None:
        self._listeners.append((ready, changed))

    def listen_heard(self, heard: Callable[[Lease], None]) -> None:
        self._hearers.append(heard)

    def listen_staged(self, staged: Callable[[], None]) -> None:
        """As `JobStore.listen_staged`."""
        self._takers.append(staged)

    def tell_heard(self, lease: Lease) -> None:
        self._wake.tell(LEASES_HEARD, f"{lease.job_id}:{lease.attempt}:{lease.fence}")

    def steps(self) -> Mapping[str, int]:
        return self._steps

    async def run(self, verb: str, body: Body[Answer]) -> Answer:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        if self._failpoints:
            await self._failpoints.reach(f"jobs.{verb}.begun")
        # In a task of its own: who calls may be cancelled, but a statement that is cancelled costs its connection.
        task = asyncio.create_task(self._until_committed(verb, body))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_note_end)
            raise

    async def close(self) -> None:
        """Refuse what comes, and wait for what runs."""
        self._closed = True
        while self._running:
            await asyncio.wait(self._running)

    async def _until_committed(self, verb: str, body: Body[Answer]) -> Answer:
        attempts = Attempts()
        passed = False
        while True:
            try:
                answer, tx = await self._attempt(verb, body)
                self._tell(tx)
                if self._failpoints and not passed:
                    passed = True
                    await self._failpoints.reach(f"jobs.{verb}.committed")
            except (OSError, asyncpg.UniqueViolationError, Overtaken, *RETRIED) as error:
                # What somebody else has just written under the same key, the script finds when it is run again.
                await attempts.pause(error)
            except (UnicodeEncodeError, asyncpg.DataError) as error:
                if isinstance(error, _UNKEEPABLE) or isinstance(error.__cause__, UnicodeEncodeError):
                    raise JobInvalid(UNKEEPABLE) from error
                raise
            except EXHAUSTED as error:
                raise unavailable(error) from error
            else:
                return answer

    async def _attempt(self, verb: str, body: Body[Answer]) -> tuple[Answer, Tx]:
        async with self._pool.session() as session, session.transaction():
            now_ms: int = await session.fetchval(_NOW, self._clock.pinned_ms)
            tx = Tx(now_ms, shard=random.randrange(SHARDS))  # noqa: S311 - no secret
            answer = await self._drive(session, body(tx))
            if self._failpoints:
                await self._failpoints.reach(f"jobs.{verb}.written")
        return answer, tx

    async def _drive(self, session: Session, script: Script[Answer]) -> Answer:
        texts = self._statements
        try:
            name, arguments = next(script)
            while True:
                # Arguments in a list are rows of them, and then nobody asks for what comes out.
                if isinstance(arguments, list):
                    await session.fetch_many(texts[name], arguments)
                    name, arguments = script.send([])
                else:
                    name, arguments = script.send(list(await session.fetch(texts[name], *arguments)))
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer

    def _tell(self, tx: Tx) -> None:
        self._steps.update(tx.steps)
        for queue_id, count in tx.ready.items():
            self._report_ready(queue_id, count)
            self._wake.tell(JOBS_READY, f"{queue_id}:{count}")
        for job_id in tx.changed:
            self._report_changed(job_id)
            self._wake.tell(JOBS_CHANGED, job_id)

    def _heard_ready(self, word: str) -> None:
        queue_id, _, count = word.partition(":")
        self._report_ready(int(queue_id), int(count))

    def _heard_changed(self, word: str) -> None:
        self._report_changed(word)

    def _heard_lease(self, word: str) -> None:
        job_id, attempt, fence = word.rsplit(":", 2)
        for heard in self._hearers:
            heard(Lease(job_id, int(attempt), int(fence)))

    def _heard_staged(self, _word: str) -> None:
        for staged in self._takers:
            staged()

    def _report_ready(self, queue_id: int, count: int) -> None:
        for ready, _ in self._listeners:
            ready(queue_id, count)

    def _report_changed(self, job_id: str) -> None:
        for _, changed in self._listeners:
            changed(job_id)


def _note_end(task: asyncio.Task[object]) -> None:
    """Hear how a call ended whose caller has left: a refusal concerns nobody then, but a bug is logged."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, PenstockError):
        _log.error("A job call failed after its caller had left", exc_info=error)
