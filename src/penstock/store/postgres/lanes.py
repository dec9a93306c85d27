"""Coalescing: operations of one kind that wait at the same time are carried out by one call, in one transaction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import asyncpg
import msgspec

from penstock.domain.errors import PenstockError, StoreUnavailable
from penstock.store.postgres.attempts import EXHAUSTED, RETRIED, Attempts, unavailable
from penstock.store.postgres.pool import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from penstock.domain.failpoints import Failpoints
    from penstock.store.postgres.pool import Pool, Session

BATCH_ROWS_MAX = 512
"""How many messages, about, one transaction handles."""

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""How many bytes of bodies, about, one transaction handles."""

Answer = TypeVar("Answer")


class Operation(Generic[Answer]):
    """One call of a verb, waiting for its answer."""

    verb: ClassVar[str]
    rows = 1
    size_bytes = 0
    key: Hashable = None
    """No two operations in one batch have the same key, unless it is None."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.passed = False
        """Whether it has passed its failpoint."""

    def abandoned(self, answer: Answer) -> None:
        """Undo what the caller, who went away meanwhile, does not get: most operations are done all the same."""


AnyOperation = TypeVar("AnyOperation", bound=Operation)  # type: ignore[type-arg] # Of any answer: the lane carries both.


class Batch(Generic[AnyOperation]):
    """What is carried out by one call. `plan` is for the executor: whatever must be the same on each attempt."""

    def __init__(self, operations: list[AnyOperation], attempt: bytes) -> None:
        self.operations = operations
        self.attempt = attempt
        """Names this batch in the database: the same on every attempt, unlike any other batch's."""
        self.repeated = False
        """Whether an earlier attempt may have been committed."""
        self.plan: object = None


class Done(msgspec.Struct, Generic[Answer]):
    """What became of a batch: an answer or an error for each operation, and how many messages came to which queue."""

    answers: Sequence[Answer | PenstockError]
    arrived: Mapping[int, int] = {}


class Lane(Generic[AnyOperation, Answer]):
    """Carries out operations of one kind in batches, each as soon as one of `width` transactions is free.

    There is no timer: a lone operation goes at once, and whatever comes while others are under way goes together.
    If a batch fails, its operations are carried out one by one, so that an error stays with its operation. If the
    connection is lost, the same batch is carried out again with the same keys, by which it finds what was committed.
    """

    def __init__(
        self,
        execute: Callable[[Session, Batch[AnyOperation]], Awaitable[Done[Answer]]],
        *,
        pool: Pool,
        failpoints: Failpoints,
        arrived: Callable[[int, int], None],
        new_key: Callable[[], bytes],
        width: int = 1,
        pending_max: int,
    ) -> None:
        self._execute = execute
        self._pool = pool
        self._failpoints = failpoints
        self._arrived = arrived
        self._new_key = new_key
        self._width = width
        self._pending_max = pending_max
        self._pending: deque[AnyOperation] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._working = 0

    async def submit(self, operation: AnyOperation) -> Answer:
        """Have an operation carried out, and return its answer once that is durable."""
        if len(self._pending) >= self._pending_max:
            raise StoreUnavailable("Too many operations are waiting for the database.")
        if self._failpoints:
            await self._failpoints.reach(f"{operation.verb}.begun")
        self._pending.append(operation)
        if self._working < self._width:
            self._working += 1
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        try:
            answer: Answer = await operation.future
        except asyncio.CancelledError:
            # Cancelled before its turn, it is not done; under way, its batch sees to it; else the answer had come.
            future = operation.future
            if future.done() and not future.cancelled() and future.exception() is None:
                operation.abandoned(future.result())
            raise
        return answer

    async def close(self) -> None:
        """Return once nothing is under way."""
        while self._workers:
            await asyncio.wait(self._workers)

    async def _work(self) -> None:
        while self._pending:
            batch = Batch(self._take(), self._new_key())
            try:
                await self._carry_out(batch)
            except Exception as error:  # noqa: BLE001 # The outermost edge: a bug goes to those whose call met it.
                _fail(batch.operations, error)
        # At once, and not when the task is seen to be done: what is submitted in between needs a worker.
        self._working -= 1

    def _take(self) -> list[AnyOperation]:
        taken: list[AnyOperation] = []
        later: list[AnyOperation] = []
        keys: set[Hashable] = set()
        rows = size = 0
        while self._pending:
            operation = self._pending.popleft()
            if operation.future.cancelled():
                continue
            if operation.key is not None and operation.key in keys:
                later.append(operation)
                continue
            rows += operation.rows
            size += operation.size_bytes
            if taken and (rows > BATCH_ROWS_MAX or size > BATCH_BYTES_MAX):
                later.append(operation)
                break
            taken.append(operation)
            keys.add(operation.key)
        self._pending.extendleft(reversed(later))
        return taken

    async def _carry_out(self, batch: Batch[AnyOperation]) -> None:
        attempts = Attempts()
        while any(not operation.future.done() for operation in batch.operations):
            try:
                done = await self._attempt(batch)
                if self._failpoints:
                    await self._pass_failpoints(batch)
            except OSError as error:
                batch.repeated = True
                await _pause(attempts, error, batch)
            except RETRIED as error:
                await _pause(attempts, error, batch)
            except EXHAUSTED as error:
                _fail(batch.operations, unavailable(error))
            except asyncpg.PostgresError as error:
                await self._carry_out_apart(batch, error)
            else:
                _resolve(batch, done)

    async def _carry_out_apart(self, batch: Batch[AnyOperation], error: asyncpg.PostgresError) -> None:
        """Leave an error to the operation that causes it. Nothing of this attempt was committed."""
        if len(batch.operations) == 1:
            _fail(batch.operations, error)
        for operation in batch.operations:
            if not operation.future.done():
                part = Batch([operation], self._new_key())
                # An attempt before the one that failed may have been committed.
                part.repeated, part.plan = batch.repeated, batch.plan
                await self._carry_out(part)

    async def _attempt(self, batch: Batch[AnyOperation]) -> Done[Answer]:
        async with self._pool.session() as session:
            if not batch.repeated:
                done = await self._execute(session, batch)
            else:
                async with session.transaction():
                    await session.fetch("SELECT penstock.confirm(penstock.now_ms(NULL))")
                    done = await self._execute(session, batch)
        for queue_id, count in done.arrived.items():
            self._arrived(queue_id, count)
        return done

    async def _pass_failpoints(self, batch: Batch[AnyOperation]) -> None:
        """Pass each operation's failpoint, once. What means a lost connection is raised after all have passed."""
        lost: OSError | None = None
        for operation in batch.operations:
            if operation.passed:
                continue
            operation.passed = True
            try:
                await self._failpoints.reach(f"{operation.verb}.committed")
            except OSError as error:
                lost = error
            except Exception as error:  # noqa: BLE001 # Whatever a test raises there is for the caller.
                _fail([operation], error)
        if lost is not None:
            raise ConnectionLost(str(lost)) from lost


async def _pause(attempts: Attempts, error: Exception, batch: Batch[AnyOperation]) -> None:
    try:
        await attempts.pause(error)
    except StoreUnavailable as given_up:
        _fail(batch.operations, given_up)


def _fail(operations: Sequence[AnyOperation], error: Exception) -> None:
    for operation in operations:
        if not operation.future.done():
            operation.future.set_exception(error)


def _resolve(batch: Batch[AnyOperation], done: Done[Answer]) -> None:
    for operation, answer in zip(batch.operations, done.answers, strict=True):
        if operation.future.done():
            if operation.future.cancelled() and not isinstance(answer, PenstockError):
                operation.abandoned(answer)
            continue
        if isinstance(answer, PenstockError):
            operation.future.set_exception(answer)
        else:
            operation.future.set_result(answer)
