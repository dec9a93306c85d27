"""Moving the log into the database: the bulk of it beside the commits, and only the rest between two of them."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from functools import partial
from typing import TYPE_CHECKING

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable

    Closed = Callable[[apsw.Error | None], None]

_log = logging.getLogger(__name__)

WAL_PAGES_MAX = 2_000
"""How long the log grows before the work begins: 16 MB with pages of 8 KB."""

WAL_PAGES_HELD_UP = 4 * WAL_PAGES_MAX
"""How long it may become meanwhile; then commits wait for the work to end."""


class Checkpoints:
    """Keeps the log of one database short. Its methods are called by who has the connection that writes.

    While a second connection copies what the log holds, commits go on and add to it, so that copy alone would never
    come to an end. The rest, which is little, is copied between two commits; the log then begins anew.
    """

    def __init__(self, path: str) -> None:
        # Opened here, where a failure is told: without its thread, commits would wait for it without end.
        self._db = apsw.Connection(path)
        # A connection that has read nothing does not know of the log, and would copy nothing without a word.
        self._db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        self._begin_at_pages = WAL_PAGES_MAX
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._copied = threading.Event()
        self._copied.set()
        self._copying = False
        self._thread = threading.Thread(target=self._work, name="penstock-checkpoint", daemon=True)
        self._thread.start()

    def due(self, wal_pages: int) -> bool:
        """Say after a commit whether `finish` is to be called before the next one."""
        if self._copying:
            return self._copied.is_set() or wal_pages >= self._begin_at_pages + WAL_PAGES_HELD_UP
        if wal_pages >= self._begin_at_pages:
            self._copying = True
            self._copied.clear()
            self._asked.put(self._copy)
        return False

    def wait(self) -> None:
        """Return once nothing is being copied beside the commits."""
        self._copied.wait()

    def begin_to_finish(self, db: apsw.Connection, finished: Callable[[], None]) -> None:
        """Have `finish` done by the thread, and `finished` called by it in the end, whatever happens."""
        self._asked.put(partial(self._finish_and_tell, db, finished))

    def _finish_and_tell(self, db: apsw.Connection, finished: Callable[[], None]) -> None:
        try:
            self.finish(db)
        finally:
            finished()

    def finish(self, db: apsw.Connection) -> None:
        """Copy the rest of the log, and begin it anew."""
        self.wait()
        self._copying = False
        try:
            pages, copied = db.wal_checkpoint()
            # Who writes first to a log that begins anew waits for the disk; better here than between two commits.
            db.pragma("user_version", db.pragma("user_version"))
        except apsw.Error:
            # The log still holds everything, and the next pass tries again. If the disk is full, a commit says so.
            pages, copied = self._begin_at_pages, 0
        # Someone who reads the file holds the log up; trying again at every commit would not help.
        self._begin_at_pages = WAL_PAGES_MAX if copied >= pages else pages + WAL_PAGES_MAX

    def begin_to_close(self, db: apsw.Connection, closed: Closed, *, keep_log: bool = False) -> None:
        """Have the thread close both connections, call `closed` with what went wrong, if anything did, and end."""
        self._asked.put(partial(self._close, db, closed, keep_log=keep_log))
        self._asked.put(None)

    def _close(self, db: apsw.Connection, closed: Closed, *, keep_log: bool) -> None:
        failure = None
        try:
            for connection in (self._db, db):
                if keep_log:
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close()
        except apsw.Error as error:
            failure = error
        closed(failure)

    def _copy(self) -> None:
        try:
            # As in `finish`, which does what this leaves undone.
            with contextlib.suppress(apsw.Error):
                self._db.wal_checkpoint()
        finally:
            self._copied.set()

    def _work(self) -> None:
        while (work := self._asked.get()) is not None:
            try:
                work()
            except Exception:  # noqa: BLE001  # The thread's outermost edge: without it, commits would wait without end.
                _log.exception("The log could not be moved into the database, and grows until it can")
