"""The port on SQLite: each verb handed to the part that does it, and answered after the commit."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from penstock.domain.errors import StoreUnavailable
from penstock.domain.message import Receipt
from penstock.store.jobs.store import ScriptedJobs
from penstock.store.ownership.owner import Owner
from penstock.store.port import StoreVersion
from penstock.store.sqlite.calls import Append, ChangeVisibility, Delete, Lease, Work
from penstock.store.sqlite.commits import Commits
from penstock.store.sqlite.connection import MEMORY, broken, connect
from penstock.store.sqlite.jobs import SqliteRunner
from penstock.store.sqlite.migrations import MIGRATIONS, migrate, next_owner_number, read_secret
from penstock.store.sqlite.outcomes import APPENDED
from penstock.store.sqlite.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.errors import PenstockError
    from penstock.domain.failpoints import Failpoints
    from penstock.domain.ids import IdSource
    from penstock.domain.job_limits import JobLimits
    from penstock.domain.limits import Limits
    from penstock.domain.message import Draft, MessageState, Refused, SendResult, VisibilityChange
    from penstock.domain.move import MoveTask
    from penstock.domain.queue import Counts, Queue, QueueAttributes, QueueName
    from penstock.store.port import AttemptKey, Done, Leased, Peek
    from penstock.store.sqlite.calls import Call

_log = logging.getLogger(__name__)

_NOT_GIVEN_BACK = "A lease whose caller went away could not be given back: %s"

Answer = TypeVar("Answer")


class SqliteStore:
    """A store in one SQLite file, or in memory, owned by one process. The port says what the verbs do."""

    def __init__(
        self,
        secret: bytes,
        parts: Parts,
        commits: Commits,
        owner: Owner | None,
        failpoints: Failpoints,
        jobs: ScriptedJobs,
    ) -> None:
        """Take the parts that `open` has made."""
        self.jobs = jobs
        self._secret = secret
        self._parts = parts
        self._commits = commits
        self._owner = owner
        self._failpoints = failpoints

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        clock: Clock,
        ids: IdSource,
        limits: Limits,
        job_limits: JobLimits | None = None,
        failpoints: Failpoints,
    ) -> SqliteStore:
        """Open a store, making it if it is missing; `:memory:` is a new one that goes with the process.

        Raises `StoreInUse` if another process has it open, `StoreIncompatible` if it is newer or no store at all.
        """
        owner = None if path == MEMORY else Owner.of_store(path)
        db = None
        try:
            db = connect(path)
            migrate(db, path)
            if owner is not None:
                owner.number = next_owner_number(db)
            secret = read_secret(db)
            parts = Parts(db, clock, ids, limits)
            commits = Commits(
                db,
                parts,
                parts.handlers(),
                pending_max=limits.pending_operations_max,
                in_memory=owner is None,
            )
            jobs = ScriptedJobs(SqliteRunner(commits, parts.transaction, failpoints), ids=ids, limits=job_limits)
            if owner is not None:
                owner.store_failure = lambda: commits.failure
                owner.keep_renewed(asyncio.get_running_loop())
                owner.note_open()
            return cls(secret, parts, commits, owner, failpoints, jobs)
        except BaseException as error:
            if db is not None:
                db.close()
            if owner is not None:
                owner.release(error)
            if isinstance(error, apsw.Error):
                raise broken(error, path) from error
            if isinstance(error, OSError):
                message = f"The store {path} cannot be used: {error}."
                raise StoreUnavailable(message) from error
            raise

    @property
    def secret(self) -> bytes:
        return self._secret

    def listen(self, ready: Callable[[int, int], None]) -> None:
        self._parts.listeners.append(ready)

    async def close(self) -> None:
        if self._commits.closed:
            return
        await self.jobs.close()
        # If the path names another file now, that file's log must not be removed for ours.
        await self._commits.close(keep_log=self._owner is not None and self._owner.lost)
        # Not if that was cancelled or failed: then the file may still be open, and nobody else may have it.
        if self._owner is not None:
            self._owner.release()

    async def ping(self) -> None:
        await self._work(self._parts.touch)

    async def version(self) -> StoreVersion:
        """Return the version of the library; a store that is open has the newest schema."""
        return StoreVersion(database=f"SQLite {apsw.sqlite_lib_version()}", schema=len(MIGRATIONS))

    # -- queues -----------------------------------------------------------------------------------

    async def create_queue(
        self, name: QueueName, attributes: QueueAttributes, tags: Mapping[str, str]
    ) -> tuple[Queue, bool]:
        return await self._work(partial(self._parts.queues.create, name, attributes, tags))

    async def find_queue(self, name: QueueName) -> Queue:
        known = self._parts.queues.known.get(name)
        if known is not None and not self._commits.closed:
            return known
        return await self._work(partial(self._parts.queues.find, name))

    async def list_queues(
        self, region: str, account: str, *, prefix: str = "", after: str = "", limit: int
    ) -> list[Queue]:
        return await self._work(partial(self._parts.queues.page, region, account, prefix, after, limit))

    async def list_places(self, *, after: tuple[str, str] = ("", ""), limit: int) -> list[tuple[str, str]]:
        return await self._work(partial(self._parts.queues.places, after, limit))

    async def dead_letter_sources(self, name: QueueName, *, after: str = "", limit: int) -> list[Queue]:
        return await self._work(partial(self._parts.queues.dead_letter_sources, name, after, limit))

    async def save_queue(
        self, queue: Queue, *, attributes: QueueAttributes | None = None, tags: Mapping[str, str] | None = None
    ) -> Queue | None:
        return await self._verb("save_queue", Work(partial(self._parts.queues.save, queue, attributes, tags)))

    async def delete_queue(self, queue: Queue) -> None:
        await self._verb("delete_queue", Work(partial(self._parts.queues.delete, queue)))

    async def purge_queue(self, queue: Queue) -> None:
        await self._verb("purge_queue", Work(partial(self._parts.queues.purge, queue)))

    async def count_messages(self, queue: Queue) -> Counts:
        return await self._work(partial(self._parts.leases.count, queue))

    # -- messages ---------------------------------------------------------------------------------

    def append(  # It gives a coroutine without being one, as `delete` does: a step less on a way that is often gone.
        self, queue: Queue, drafts: Sequence[Draft | Refused], *, attempt: AttemptKey | None = None
    ) -> Coroutine[Any, Any, list[SendResult]]:
        return self._verb("append", Append(queue, drafts, attempt))

    async def outcome(self, attempt: AttemptKey) -> list[SendResult] | None:
        return await self._work(partial(self._parts.appends.outcome, APPENDED + attempt))

    async def lease(
        self, queue: Queue, *, count: int, lease_ms: int, attempt: AttemptKey | None = None, retry: int = 0
    ) -> Leased:
        call = Lease(queue, count, lease_ms, attempt, retry, self._give_back)
        try:
            return await self._verb("lease", call)
        except asyncio.CancelledError:
            # Cancelled before its turn, it was not done; during the commit, that sees to it; else the answer had come.
            # If that was a failure, the receipts were never given, and may be another's by now.
            future = call.future
            if call.answer is not None and future and not future.cancelled() and future.exception() is None:
                call.abandoned()
            raise

    async def release(self, queue: Queue, receipts: Sequence[Receipt], *, holder: int = 0) -> None:
        await self._verb("release", Work(partial(self._parts.receipts.release, queue, receipts, holder)))

    def delete(self, queue: Queue, receipts: Sequence[Receipt]) -> Coroutine[Any, Any, list[PenstockError | None]]:
        return self._verb("delete", Delete(queue, receipts))

    async def change_visibility(self, queue: Queue, changes: Sequence[VisibilityChange]) -> list[PenstockError | None]:
        return await self._verb("change_visibility", ChangeVisibility(queue, changes))

    async def peek(self, queue: Queue, *, state: MessageState | None = None, after: int = 0, limit: int) -> Peek:
        return await self._work(partial(self._parts.peeks.peek, queue, state, after, limit))

    # -- without a coroutine ----------------------------------------------------------------------

    def known_queue(self, name: QueueName) -> Queue | None:
        return None if self._commits.closed else self._parts.queues.known.get(name)

    def begin_append(
        self,
        queue: Queue,
        drafts: Sequence[Draft | Refused],
        *,
        attempt: AttemptKey | None,
        done: Done[list[SendResult]],
    ) -> bool:
        if self._failpoints:
            return False
        self._commits.begin(Append(queue, drafts, attempt), done)
        return True

    def begin_lease(
        self, queue: Queue, *, count: int, lease_ms: int, attempt: AttemptKey | None, retry: int, done: Done[Leased]
    ) -> bool:
        if self._failpoints:
            return False
        self._commits.begin(Lease(queue, count, lease_ms, attempt, retry, self._give_back), done)
        return True

    def begin_delete(
        self, queue: Queue, receipts: Sequence[Receipt], *, done: Done[list[PenstockError | None]]
    ) -> bool:
        if self._failpoints:
            return False
        self._commits.begin(Delete(queue, receipts), done)
        return True

    def _give_back(self, queue: Queue, leased: Leased) -> None:
        """Release what nobody waits for any more. Should that fail, it comes back when its lease is over."""
        receipts = [Receipt(queue.id, message.position, message.receipt) for message in leased.messages]
        try:
            released = self._commits.run(Work(partial(self._parts.receipts.release, queue, receipts, leased.holder)))
        except StoreUnavailable as error:  # It is closed, or has too much to do.
            _log.warning(_NOT_GIVEN_BACK, error)
        else:
            released.add_done_callback(_report)

    # -- message move tasks -----------------------------------------------------------------------

    async def start_move(
        self,
        task_id: str,
        source: Queue,
        destination: Queue | None,
        rate: int | None,
        *,
        permitted: Collection[QueueName] | None = None,
    ) -> MoveTask:
        return await self._work(partial(self._parts.moves.start, task_id, source, destination, rate, permitted))

    async def cancel_move(self, task_id: str) -> MoveTask:
        return await self._work(partial(self._parts.moves.cancel, task_id))

    async def list_moves(self, source: Queue, *, limit: int) -> list[MoveTask]:
        return await self._work(partial(self._parts.moves.page, source, limit))

    async def advance_moves(self) -> int | None:
        return await self._work(self._parts.moves.advance)

    # -- upkeep -----------------------------------------------------------------------------------

    async def sweep(self) -> bool:
        return await self._work(self._parts.upkeep.run)

    async def _verb(self, verb: str, call: Call[Answer]) -> Answer:
        if self._failpoints:
            await self._failpoints.reach(f"{verb}.begun")
        answer = await self._commits.run(call)
        if self._failpoints:
            await self._failpoints.reach(f"{verb}.committed")
        return answer

    async def _work(self, run: Callable[[], Answer]) -> Answer:
        return await self._commits.run(Work(run))


def _report(released: asyncio.Future[None]) -> None:
    if not released.cancelled() and released.exception() is not None:
        _log.warning(_NOT_GIVEN_BACK, released.exception())
