"""Job scripts on SQLite: run with everything else that is gathered into one transaction."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from penstock.domain.job_errors import JobInvalid
from penstock.store.jobs.running import UNKEEPABLE
from penstock.store.jobs.script import Tx
from penstock.store.jobs.statements import Dialect, statements
from penstock.store.sqlite.calls import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.domain.failpoints import Failpoints
    from penstock.domain.job import Lease
    from penstock.store.jobs.running import Body
    from penstock.store.jobs.script import Answer, Script
    from penstock.store.sqlite.commits import Commits
    from penstock.store.sqlite.transaction import Transaction


WIDTH = 2
"""One transaction is prepared while another is committed."""


class SqliteRunner:
    """Runs scripts on the connection that everything else uses."""

    width = WIDTH

    def __init__(self, commits: Commits, transaction: Transaction, failpoints: Failpoints) -> None:
        self._commits = commits
        self._transaction = transaction
        self._failpoints = failpoints
        self._statements = statements(Dialect.SQLITE)
        self._listeners: list[tuple[Callable[[int, int], None], Callable[[str], None]]] = []
        self._steps: Counter[str] = Counter()

    def listen(self, ready: Callable[[int, int], None], changed: Callable[[str], None]) -> None:
        self._listeners.append((ready, changed))

    def listen_heard(self, heard: Callable[[Lease], None]) -> None:
        """Do nothing: there is no other node."""

    def tell_heard(self, lease: Lease) -> None:
        """Do nothing: there is no other node."""

    def steps(self) -> Mapping[str, int]:
        return self._steps

    async def run(self, verb: str, body: Body[Answer]) -> Answer:
        if self._failpoints:
            await self._failpoints.reach(f"jobs.{verb}.begun")
        try:
            answer = await self._commits.run(Work(lambda: self._transact(body)))
        except UnicodeEncodeError as error:
            # Not sooner: only what is no caller's own fault is rolled back.
            raise JobInvalid(UNKEEPABLE) from error
        if self._failpoints:
            await self._failpoints.reach(f"jobs.{verb}.committed")
        return answer

    def _transact(self, body: Body[Answer]) -> Answer:
        tx = Tx(self._transaction.now_ms, ahead_ms=self._transaction.ahead_ms, shard=0)
        answer = self._drive(body(tx))
        if tx.ready or tx.changed or tx.steps:
            self._transaction.then.append(lambda: self._tell(tx))
        return answer

    def _drive(self, script: Script[Answer]) -> Answer:
        execute = self._transaction.db.execute
        texts = self._statements
        try:
            name, arguments = next(script)
            while True:
                # Arguments in a list are rows of them, and then nobody asks for what comes out.
                if isinstance(arguments, list):
                    self._transaction.db.executemany(texts[name], arguments)
                    name, arguments = script.send([])
                else:
                    name, arguments = script.send(execute(texts[name], arguments).fetchall())
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer

    def _tell(self, tx: Tx) -> None:
        self._steps.update(tx.steps)
        if not tx.ready and not tx.changed:
            return
        loop = asyncio.get_running_loop()
        for ready, changed in self._listeners:
            # In a turn of their own, so that what a listener raises is no caller's.
            for queue_id, count in tx.ready.items():
                loop.call_soon(ready, queue_id, count)
            for job_id in tx.changed:
                loop.call_soon(changed, job_id)
