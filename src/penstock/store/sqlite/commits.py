"""Group commit: calls that arrive while a commit is under way share the next one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import apsw

from penstock.domain.errors import StoreUnavailable
from penstock.domain.message import Draft
from penstock.store.sqlite.calls import Append
from penstock.store.sqlite.checkpoints import Checkpoints
from penstock.store.sqlite.log_sync import open_log_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.store.port import Done
    from penstock.store.sqlite.calls import Call

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

CALLS_PER_TRANSACTION_MAX = 1_000

BYTES_PER_TRANSACTION_MAX = 8 * 1024 * 1024
"""Once the bodies that are to be stored come to so much, no further call is gathered: they hold up the event loop."""


class Effects(Protocol):
    """What is kept in memory about the database, and has to follow its transactions."""

    def begin(self) -> None:
        """A transaction starts."""

    def save(self) -> None:
        """Write what was changed in memory only: the transaction, or one call of it, ends."""

    def drop(self) -> None:
        """Forget everything: the transaction, or one call of it, was rolled back."""

    def committed(self) -> None:
        """The transaction is durable."""


class Commits:
    """Runs calls on the event loop's thread, many in one transaction, and answers once its log is durable.

    A COMMIT writes to the log and does not wait for the disk; the log is then synced beside the loop, while the next
    calls gather. They are run after that, so none sees what is not durable. There are no timers: a call that finds
    nothing under way is run in the loop's next turn. What one call raises stays with that call; what a commit raises is
    told to all of its callers. If the log cannot be synced, nobody knows what of it is on the disk: everything is
    refused from then on.
    """

    def __init__(
        self,
        db: apsw.Connection,
        effects: Effects,
        handlers: Mapping[type[Call[Any]], Callable[[Sequence[Any]], None]],
        *,
        pending_max: int,
        in_memory: bool,
    ) -> None:
        """Own `db` from now on. Calls of one kind are handled together, the kinds in the order of `handlers`."""
        self._db = db
        self._effects = effects
        self._handlers = handlers
        self._rank = {kind: rank for rank, kind in enumerate(handlers)}
        self._pending_max = pending_max
        self._in_memory = in_memory
        self._loop = asyncio.get_running_loop()
        self._pending: list[Call[Any]] = []
        self._busy = False
        self._idle: asyncio.Future[None] | None = None
        self._closed = False
        self._failure: OSError | None = None
        self._wal_pages = 0
        self._committed: list[Call[Any]] = []
        if not in_memory:
            _settle_log(db)
            db.set_wal_hook(self._note_wal)
            self._log = open_log_sync(f"{db.filename}-wal")
            try:
                self._checkpoints = Checkpoints(db.filename)
            except BaseException:
                self._log.close()
                raise

    @property
    def closed(self) -> bool:
        """Whether calls are refused."""
        return self._closed

    def run(self, call: Call[Answer]) -> asyncio.Future[Answer]:
        """Have a call done. The future ends after the commit; cancelling it does not undo the call."""
        future = call.future = self._loop.create_future()
        self._add(call)
        return future

    def begin(self, call: Call[Answer], done: Done[Answer]) -> None:
        """Have a call done, and `done` called after the commit."""
        call.done = done
        self._add(call)

    def _add(self, call: Call[Any]) -> None:
        if self._closed:
            message = "The store is closed."
            raise StoreUnavailable(message)
        if self._failure is not None:
            raise _unavailable(self._failure)
        if len(self._pending) >= self._pending_max:
            message = f"{self._pending_max} operations wait for the store already. Try again later."
            raise StoreUnavailable(message)
        self._pending.append(call)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._next)

    @property
    def failure(self) -> OSError | None:
        """Why everything is refused: the log could not be synced."""
        return self._failure

    async def close(self, *, keep_log: bool = False) -> None:
        """Do what is pending, refuse what comes, move the log into the database, unless it is kept, and close it."""
        self._closed = True
        if self._busy:
            self._idle = self._loop.create_future()
            await self._idle
        if self._in_memory:
            self._db.close()
            return
        self._log.close()
        ended: asyncio.Future[None] = self._loop.create_future()

        def end(error: apsw.Error | None) -> None:
            if ended.cancelled():
                return
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(_unavailable(error))

        # The last connection to close moves the log into the database and removes it. Not in the loop's executor, which
        # is gone already where a program ends without having closed the store.
        self._checkpoints.begin_to_close(self._db, lambda error: self._tell_loop(end, error), keep_log=keep_log)
        await ended

    def _next(self) -> None:
        """Run what has gathered, commit it, and begin to make that durable."""
        # Who was cancelled before his turn need not be served.
        gathered = self._pending[: self._share()]
        calls = [call for call in gathered if call.future is None or not call.future.done()]
        del self._pending[: len(gathered)]
        if not calls and not self._pending:
            self._busy = False
            if self._idle is not None:
                self._idle.set_result(None)
            return
        try:
            changed = self._run_together(calls)
        except BaseException as error:
            # No call's own error: there is no transaction to commit. Nobody may be left waiting for one.
            self._answer(calls, error)
            self._loop.call_soon(self._next)
            if not isinstance(error, Exception):
                raise
            return
        failure = self._commit()
        if failure is None and changed and not self._in_memory:
            self._committed = calls
            self._log.start(self._synced)
        else:
            self._answer(calls, failure)
            self._loop.call_soon(self._next)

    def _share(self) -> int:
        """Tell how many of those who wait, from the first on, share the next transaction."""
        bytes_left = BYTES_PER_TRANSACTION_MAX
        for count, call in enumerate(self._pending, 1):
            if type(call) is Append:
                for draft in call.drafts:
                    if type(draft) is Draft:
                        bytes_left -= len(draft.body)
            if bytes_left <= 0 or count == CALLS_PER_TRANSACTION_MAX:
                return count
        return len(self._pending)

    def _run_together(self, calls: list[Call[Any]]) -> bool:
        """Run calls in one transaction, and tell whether they changed anything."""
        before = self._db.total_changes()
        self._db.execute("BEGIN IMMEDIATE")
        self._effects.begin()
        by_kind: dict[type[Call[Any]], list[Call[Any]]] = {}
        for call in calls:
            by_kind.setdefault(type(call), []).append(call)
        try:
            for kind in sorted(by_kind, key=self._rank.__getitem__):
                self._handlers[kind](by_kind[kind])
            self._effects.save()
        except Exception:  # noqa: BLE001  # It belongs to one of the calls, which raises it again by itself.
            self._roll_back()
            self._run_apart(calls)
        return self._db.total_changes() != before

    def _run_apart(self, calls: list[Call[Any]]) -> None:
        """Run calls in one transaction again, each by itself, so that the one that fails does so alone."""
        self._db.execute("BEGIN IMMEDIATE")
        self._effects.begin()
        for call in calls:
            call.answer = call.error = None
            self._db.execute("SAVEPOINT one")
            try:
                self._handlers[type(call)]([call])
                self._effects.save()
            except Exception as error:
                if not self._db.in_transaction:
                    raise  # SQLite itself gave the transaction up, as a full disk may make it.
                call.error = error
                self._db.execute("ROLLBACK TO one")
                self._effects.drop()
            self._db.execute("RELEASE one")

    def _synced(self, failure: OSError | None) -> None:
        """Answer the callers of a commit that is durable, and go on with what has gathered meanwhile."""
        calls, self._committed = self._committed, []
        if failure is not None:
            self._break(calls, failure)
            return
        self._answer(calls, None)
        if self._checkpoints.due(self._wal_pages):
            # The connection is not ours meanwhile.
            self._checkpoints.begin_to_finish(self._db, self._finished)
        else:
            self._next_or_later()

    def _finished(self) -> None:
        self._tell_loop(self._next_or_later)

    def _tell_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call back on the loop, from a thread. A loop that is closed has nobody left who waits."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _break(self, calls: list[Call[Any]], failure: OSError) -> None:
        """Refuse everything from now on: what is committed may not be on the disk, and will look as if it were."""
        _log.critical("The log could not be written to the disk, so the store is closed to all: %s", failure)
        self._failure = failure
        pending, self._pending = self._pending, []
        self._answer([*calls, *pending], failure)
        self._loop.call_soon(self._next)

    def _next_or_later(self) -> None:
        # With nothing gathered, those who were just answered get a turn first: they may be who asks next.
        if self._pending:
            self._next()
        else:
            self._loop.call_soon(self._next)

    def _follow(self, failure: BaseException | None) -> BaseException | None:
        """Let what is kept in memory follow the transaction, and say what went wrong with one of the two."""
        try:
            if failure is None:
                self._effects.committed()
            else:
                self._roll_back()
        except Exception as error:  # noqa: BLE001  # Told to the callers, like any other failure of the transaction.
            return failure or error
        return failure

    def _answer(self, calls: list[Call[Any]], failure: BaseException | None) -> None:
        failure = self._follow(failure)
        told: list[Call[Any]] = []
        for call in calls:
            if failure is not None:
                call.error = _unavailable(failure)
            elif call.error is not None and isinstance(call.error, apsw.Error):
                call.error = _unavailable(call.error)
            future = call.future
            if future is None:
                told.append(call)
            elif future.done():
                # The caller was cancelled.
                if call.error is None:
                    call.abandoned()
            elif call.error is not None:
                future.set_exception(call.error)
            else:
                future.set_result(call.answer)
        if told:
            # As those who wait for a future: later, so that the next commit can go on meanwhile.
            self._loop.call_soon(_tell, told)

    def _roll_back(self) -> None:
        self._effects.drop()
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _commit(self) -> BaseException | None:
        try:
            self._db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  # Told to the callers.
            return error
        return None

    def _note_wal(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK


def _settle_log(db: apsw.Connection) -> None:
    """Move what an earlier process left in the log into the database, and sync that.

    After a sync that failed, the log may look well in the system's memory and not be so on the disk.
    """
    # Who reads the file just now keeps it as it is. Then it is synced as it is, when it is opened for that.
    with contextlib.suppress(apsw.BusyError):
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _tell(calls: list[Call[Any]]) -> None:
    for call in calls:
        assert call.done is not None
        try:
            call.done(call.answer if call.error is None else None, call.error)
        except Exception as bug:  # noqa: BLE001  # The other callers are to be told all the same.
            _log.exception("What was to follow a call of the store failed, which is a bug")
            with contextlib.suppress(Exception):
                call.done(None, bug)


def _unavailable(error: BaseException) -> StoreUnavailable:
    """Give one caller what went wrong below; each gets an error of its own, as each raises it."""
    told = StoreUnavailable(f"The store failed: {error}.")
    told.__cause__ = error
    return told
