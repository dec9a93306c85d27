"""`Relay`: enqueues what is in an outbox, and removes what the server has acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.app import Penstock
from penstock.client.durations import Duration, seconds
from penstock.client.errors import (
    ClientError,
    DatabaseUnreachable,
    OutboxMissing,
    Overloaded,
    OwnerError,
    RelayFailed,
    StoreUnavailable,
    TransportError,
)
from penstock.client.loops import refuse_on_loop
from penstock.client.reading import new_id
from penstock.client.transactions import relay_notices as notices
from penstock.client.transactions.claims import Outcome, claim, look, settle, waiting
from penstock.client.transactions.databases import DatabaseLost, ThreadDatabase, open_database
from penstock.client.transactions.relay_notices import Peer
from penstock.client.transactions.sending import Sender, ServerLost, backoff_ms
from penstock.domain.clock import SystemClock
from penstock.domain.failpoints import Failpoints

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.transactions.relay_notices import RelayNotice, RelayObserver

BATCH_MAX = 500
"""How many jobs one request has at most, as the server takes them."""
INTERVAL_S = 1.0
INTERVAL_S_MIN = 0.01
SILENT_S = 5.0
"""A server that has not answered for this long is asked whether it is there before jobs are sent."""
_AWAY = (TransportError, OwnerError, StoreUnavailable, Overloaded)
"""What a server that may come back raises."""
_MISSING = ("no such table", "does not exist", "doesn't exist")
"""How databases say that there is no such table."""


class RelayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a relay does."""

    enqueued: int
    set_aside: int
    waiting: int | None
    """How many jobs wait in the outbox, as of the last look."""
    last_s: float | None
    """How long ago it last enqueued something."""
    lost: Peer | None
    lost_s: float


class Relay:
    """Enqueues the jobs of an outbox to a server, in their order for each queue, until it is stopped.

    `to` is a `Penstock` or its URL. `database` is `postgresql://…` or `sqlite:PATH`; for any other, `connect` returns a
    DB-API connection of which the relay is the only user. Any number of relays may share an outbox, in one process or
    on many machines.

    A row is deleted once the server has acknowledged its job. A relay that dies before that leaves the row, and the
    next one sends it again under the same id: the server knows it.
    """

    def __init__(
        self,
        to: Penstock | str,
        database: str | None = None,
        *,
        connect: Callable[[], Any] | None = None,
        interval: Duration = INTERVAL_S,
        batch: int = BATCH_MAX,
        observer: RelayObserver | None = None,
        wall_ms: Callable[[], int] | None = None,
        failpoints: Failpoints | None = None,
    ) -> None:
        if (database is None) is (connect is None):
            raise RelayFailed("A relay has either a database or a function that connects to one.")
        if type(batch) is not int or not 1 <= batch <= BATCH_MAX:
            raise RelayFailed(f"batch is from 1 to {BATCH_MAX}, not {batch!r}.")
        self._interval_s = max(seconds(interval, "interval"), INTERVAL_S_MIN)
        self._own_app = isinstance(to, str)
        self.app = Penstock(to) if isinstance(to, str) else to
        self._failpoints = Failpoints() if failpoints is None else failpoints
        if database is not None:
            self.database = open_database(database, self._failpoints)
        else:
            assert connect is not None
            self.database = ThreadDatabase(connect, _name(connect), self._failpoints)
        self._batch = batch
        self.observer: RelayObserver = observer or notices.LogObserver()
        self._wall_ms = wall_ms or SystemClock().wall_ms
        self._sender = Sender(self.app, self._wall_ms)
        self._name = new_id()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._stopping = threading.Event()
        self._began = time.monotonic()
        self._enqueued = 0
        self._set_aside = 0
        self._waiting: int | None = None
        self._last: float | None = None
        self._lost: Peer | None = None
        self._lost_at = 0.0
        self._failures = 0
        self._heard = 0.0
        """When the server last answered."""
        self._unsettled: tuple[Outcome, float | None] | None = None
        """What became of the last claim, until the database has it, and how long it took; None if that failed."""

    # -- running ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Relay until `stop` is called.

        Raises `RelayFailed` if the database cannot be used at the start, and `NotAuthenticated` or `AccessDenied` if
        the server does not take the token. It waits for a server that does not answer, and later on for both.
        """
        async with self._running(patient=True):
            while not self._stopping.is_set():
                pause_s = await self._round()
                if pause_s:
                    await self._pause(pause_s)

    async def drain(self) -> int:
        """Relay until nothing is due any more; return how many jobs wait nevertheless, as they were put off.

        Raises as `run` does, also later on, and a `TransportError` if the server does not answer.
        """
        async with self._running(patient=False):
            try:
                while not self._stopping.is_set() and await self._pass():
                    pass
                self._waiting = await self.database.run("count", waiting(), write=False)
            except DatabaseLost as error:
                raise _unusable(self.database.shown, str(error)) from error
            except ServerLost as error:
                raise error.error from None
            return self._waiting

    def run_sync(self) -> None:
        """As `run`, in a thread without an event loop."""
        refuse_on_loop("Relay.run_sync", "run")
        asyncio.run(self.run())

    def drain_sync(self) -> int:
        """As `drain`, in a thread without an event loop."""
        refuse_on_loop("Relay.drain_sync", "drain")
        return asyncio.run(self.drain())

    def stop(self, reason: str = "") -> None:
        """Have it stop after what it has begun, from any thread."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._say(notices.Stopping(reason=reason))
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop has ended, and the relay with it.
                self._loop.call_soon_threadsafe(self._stop.set)

    def status(self) -> RelayStatus:
        """Return how it does now."""
        now = time.monotonic()
        return RelayStatus(
            enqueued=self._enqueued,
            set_aside=self._set_aside,
            waiting=self._waiting,
            last_s=None if self._last is None else now - self._last,
            lost=self._lost,
            lost_s=now - self._lost_at if self._lost else 0.0,
        )

    @contextlib.asynccontextmanager
    async def _running(self, *, patient: bool) -> Any:  # noqa: ANN401 - a context manager
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        try:
            await self._begin(patient=patient)
            yield
        finally:
            with contextlib.suppress(DatabaseLost):
                await self.database.close()
            if self._own_app:
                await self.app.aclose()
        ran_s = time.monotonic() - self._began
        self._say(
            notices.Stopped(enqueued=self._enqueued, set_aside=self._set_aside, ran_s=ran_s, waiting=self._waiting)
        )

    async def _begin(self, *, patient: bool) -> None:
        try:
            self._waiting = await self.database.run("count", waiting(), write=False)
        except DatabaseLost as error:
            raise _unusable(self.database.shown, str(error)) from error
        try:
            await self._sender.greet()
        except _AWAY as error:
            if not patient:
                raise
            self._missed("server", str(error))
        else:
            self._heard = time.monotonic()
            self._say(notices.Ready(waiting=self._waiting))

    # -- rounds -----------------------------------------------------------------------------------

    async def _round(self) -> float:
        """Do one pass; return for how long to wait before the next."""
        try:
            taken = await self._pass()
            if not taken:
                self._waiting = await self.database.run("count", waiting(), write=False)
                self._found("database")
                if self._lost == "server":
                    await self._greet()
        except DatabaseLost as error:
            return self._missed("database", str(error))
        except ServerLost as error:
            return self._missed("server", str(error))
        return 0.0 if taken else self._interval_s

    async def _pass(self) -> int:
        """Send what is due, as far as one request goes; return how many rows were taken."""
        if self._unsettled is not None:
            await self._settle()
        if not await self.database.run("look", look(self._wall_ms()), write=False):
            return 0
        if self._lost == "server" or time.monotonic() - self._heard > SILENT_S:
            await self._greet()
        began, now_ms = time.monotonic(), self._wall_ms()
        rows = await self.database.run("claim", claim(self.database.dialect, self._name, now_ms, self._batch))
        if not rows:
            return 0
        lost: ServerLost | None = None
        await self._failpoints.reach("relay.send.begun")
        try:
            outcome = await self._sender.send(rows, now_ms)
        except ServerLost as error:
            lost = error
            delays = [(row, str(error), backoff_ms(self._failures), False) for row in rows]
            outcome = Outcome(delayed=delays)
        await self._failpoints.reach("relay.send.answered")
        if lost is None:
            self._heard = time.monotonic()
            self._found("server")
        self._unsettled = outcome, None if lost is not None else time.monotonic() - began
        await self._settle()
        if lost is not None:
            raise lost
        return len(rows)

    async def _settle(self) -> None:
        """Write what became of the rows that were sent. If the database is lost meanwhile, that comes first later on.

        It does no harm twice: of what another relay has claimed since, only rows of jobs that are there are changed.
        """
        assert self._unsettled is not None
        outcome, took_s = self._unsettled
        await self.database.run("settle", settle(self._name, outcome, self._wall_ms()))
        self._unsettled = None
        self._found("database")
        if took_s is not None:
            self._settled(outcome, took_s)

    async def _greet(self) -> None:
        """Make sure that the server is there before rows are claimed: of what is sent in vain the outcome is unknown.

        Raises `ServerLost`.
        """
        try:
            await self._sender.greet()
        except ClientError as error:
            raise ServerLost(error) from error
        self._heard = time.monotonic()
        self._found("server")

    def _settled(self, outcome: Outcome, took_s: float) -> None:
        self._enqueued += len(outcome.done)
        self._set_aside += len(outcome.refused)
        if self._waiting is not None:
            self._waiting = max(self._waiting - len(outcome.done) - len(outcome.refused), 0)
        if outcome.done:
            self._last = time.monotonic()
            self._say(notices.Enqueued(jobs=len(outcome.done), took_s=took_s))
        for row, reason in outcome.refused:
            self._say(notices.SetAside(queue=row.queue, job=row.id, reason=reason))
        queues: dict[str, list[tuple[str, int]]] = {}
        for row, reason, delay_ms, _ in outcome.delayed:
            queues.setdefault(row.queue, []).append((reason, delay_ms))
        for queue, reasons in queues.items():
            in_s = max(delay_ms for _, delay_ms in reasons) / 1_000
            self._say(notices.PutOff(queue=queue, jobs=len(reasons), in_s=in_s, reason=reasons[0][0]))

    async def _pause(self, pause_s: float) -> None:
        """Wait for rows, for the time to be up, or for the end."""
        waits = [asyncio.ensure_future(self.database.wait(pause_s)), asyncio.ensure_future(self._stop.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    # -- what is lost and found -------------------------------------------------------------------

    def _missed(self, peer: Peer, reason: str) -> float:
        """Note that something does not answer; return for how long to wait before it is tried again."""
        pause_s = backoff_ms(self._failures) / 1_000
        self._failures += 1
        if self._lost != peer:
            self._lost, self._lost_at = peer, time.monotonic()
            self._say(notices.Lost(peer=peer, in_s=pause_s, reason=reason))
        return pause_s

    def _found(self, peer: Peer) -> None:
        if self._lost == peer:
            self._say(notices.Back(peer=peer, after_s=time.monotonic() - self._lost_at))
            self._lost = None
            self._failures = 0

    def _say(self, notice: RelayNotice) -> None:
        self.observer.notice(notice)


def _name(connect: Callable[[], Any]) -> str:
    return f"{getattr(connect, '__module__', '')}:{getattr(connect, '__qualname__', repr(connect))}"


def _unusable(shown: str, said: str) -> RelayFailed:
    if "penstock_outbox" in said and any(word in said for word in _MISSING):
        return OutboxMissing(f"The database {shown} has no table penstock_outbox. Make it with Outbox().create(conn).")
    return DatabaseUnreachable(f"The database {shown} cannot be used: {said}.")
