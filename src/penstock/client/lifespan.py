"""`Lifespan`: an app and a worker of it that live as long as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Self

import msgspec

from penstock.client.durations import Duration, seconds
from penstock.client.errors import WorkerInvalid
from penstock.client.worker.logs import LoggingObserver
from penstock.client.worker.notices import Ready, Warned
from penstock.client.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from types import TracebackType

    from penstock.client.app import Penstock
    from penstock.client.worker.notices import Notice, Observer

AsgiLifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""What FastAPI, Starlette and Litestar take as `lifespan=`."""

_log = logging.getLogger("penstock.worker")

PAUSE_S = 1.0
PAUSE_S_MAX = 30.0
"""How long a worker that ended by itself is waited with before it starts again; the pause doubles each time."""
SETTLED_S = 60.0
"""After this long a life counts as a good one, and the next pause is short again."""
FORCED_S = 2.0
"""How long a worker has to give its jobs back when the web server does not wait any longer."""
OVERTIME_S = 10.0
"""How much longer than its grace a worker may take to stop."""


class Lifespan:
    """The life of an app inside a web server: `FastAPI(lifespan=app.lifespan(worker=True))`.

    Or, inside a lifespan of your own, `async with app.lifespan(worker=True):`. It can be entered again once it has
    ended, as tests do, but not while it lasts.
    """

    def __init__(
        self,
        app: Penstock,
        *,
        worker: bool,
        queues: Mapping[str, int] | None,
        grace: Duration,
        name: str | None,
        inner: AsgiLifespan | None,
        startup_timeout: Duration,
        observer: Observer | None,
    ) -> None:
        if inner is not None and not callable(inner):
            raise WorkerInvalid(f"inner is a lifespan, a function with @asynccontextmanager, not {inner!r}.")
        if not worker and (queues is not None or name is not None or observer is not None):
            raise WorkerInvalid("queues, name and observer are those of a worker: lifespan(worker=True, …).")
        self._app = app
        self._inner = inner
        self._startup_s = seconds(startup_timeout, "startup_timeout")
        self._observer = _Watching(observer or LoggingObserver())

        def new_worker() -> Worker:
            return Worker(app, queues, name=name, grace=grace, observer=self._observer)

        self._new_worker = new_worker if worker else None
        self.worker = new_worker() if worker else None
        """The worker that runs now, or ran last; None without one."""
        self._life: _Life | None = None

    # -- as frameworks use it ---------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def __call__(self, application: Any = None) -> AsyncIterator[Any]:  # noqa: ANN401 - any framework's
        """Live as long as the application does. What `inner` yields is passed on."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._app.close_for_now)
            state = None
            if self._inner is not None:
                state = await stack.enter_async_context(_entered(self._inner, application))
            await stack.enter_async_context(self._working())
            yield state

    async def __aenter__(self) -> Self:
        if self._life is not None:
            raise WorkerInvalid("This lifespan has begun already. Make another with app.lifespan().")
        self._stack = contextlib.AsyncExitStack()
        await self._stack.enter_async_context(self(None))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    # -- health -----------------------------------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        """Whether it lives and, if it has a worker, that takes jobs now."""
        life = self._life
        if life is None or self.worker is None or self._app.is_borrowed:
            return life is not None
        status = self.worker.status()
        return life.running and status.disconnected_s is None and status.stopping_s is None

    def health(self) -> dict[str, Any]:
        """Return `healthy`, and the numbers of the worker, as a health endpoint shows them."""
        said: dict[str, Any] = {"healthy": self.healthy}
        if self.worker is not None:
            said |= {"worker": self.worker.name, **msgspec.to_builtins(self.worker.status())}
            said["error"] = None if self._life is None else self._life.error
        return said

    # -- inside -----------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        if self._life is not None:
            raise WorkerInvalid("This lifespan has begun already. Make another with app.lifespan().")
        # Inside `app.testing()` nothing runs before the test says so.
        if self._new_worker is None or self._app.is_borrowed:
            self._life = _Life()
            try:
                yield
            finally:
                self._life = None
            return
        self._life = life = _Life()
        self._observer.ready = life.ready
        try:
            self._plan()
            life.task = asyncio.create_task(self._work(life, self._new_worker), name="penstock-worker")
            try:
                await self._get_ready(life)
                yield
            finally:
                await self._stop(life)
        finally:
            self._life = None

    def _plan(self) -> None:
        """Find what is wrong with the app's tasks before anything begins."""
        assert self.worker is not None
        self.worker.plan()

    async def _get_ready(self, life: _Life) -> None:
        """Wait until the worker is ready or the time is up; raises what the server refuses."""
        assert life.task is not None
        ready = asyncio.create_task(life.ready.wait())
        await asyncio.wait((ready, life.task), timeout=self._startup_s, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        life.starting = False
        if life.task.done():
            life.task.result()

    async def _work(self, life: _Life, new_worker: Callable[[], Worker]) -> None:
        """Run a worker, and another when it ends by itself, until the lifespan ends."""
        pause_s = PAUSE_S
        while True:
            self.worker = worker = new_worker()
            began = time.monotonic()
            try:
                life.running = True
                await worker.run(signals=False)
                why = worker.recycle or "it ended by itself"
            except Exception as error:
                if life.starting:
                    raise
                why = f"{type(error).__name__}: {error}"
                _log.exception("the worker %s in this web server failed", worker.name)
            finally:
                life.running = False
            if life.stop.is_set():
                return
            life.error = why
            if time.monotonic() - began >= SETTLED_S:
                pause_s = PAUSE_S
            worker.notice(Warned(message=f"The worker starts again in {pause_s:g} s: {why}"))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await life.stop.wait()
            pause_s = min(pause_s * 2, PAUSE_S_MAX)
            if life.stop.is_set():
                return

    async def _stop(self, life: _Life) -> None:
        """Let running jobs end within the grace; give them back at once if the web server does not wait."""
        assert life.task is not None
        assert self.worker is not None
        life.stop.set()
        if life.running:
            self.worker.stop("the web server stops")
        try:
            await asyncio.wait((life.task,), timeout=self.worker.grace_s + OVERTIME_S)
        except asyncio.CancelledError:
            self.worker.stop("the web server stops now")
            await asyncio.wait((life.task,), timeout=FORCED_S)
            raise
        finally:
            if not life.task.done():
                _log.error("the worker %s did not stop in time; its jobs run again elsewhere", self.worker.name)
                life.task.cancel()
                await asyncio.wait((life.task,), timeout=FORCED_S)


class _Life:
    """One time between the start and the end of a web server."""

    def __init__(self) -> None:
        self.running = False
        """Whether the worker runs."""
        self.starting = True
        self.ready = asyncio.Event()
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.error: str | None = None
        """Why a worker ended by itself, the last time."""


class _Watching:
    """Notes that the worker is ready, and passes all notices on."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.ready: asyncio.Event | None = None

    @property
    def verbose(self) -> bool:
        """Whether jobs that succeed are worth a notice."""
        return self._observer.verbose

    def notice(self, notice: Notice) -> None:
        """Take in what happened."""
        if isinstance(notice, Ready) and self.ready is not None:
            self.ready.set()
        self._observer.notice(notice)


def _entered(inner: AsgiLifespan, application: object) -> AbstractAsyncContextManager[Any]:
    made = inner(application)
    if not hasattr(made, "__aenter__"):
        raise WorkerInvalid(
            f"inner is a lifespan, a function with @asynccontextmanager; {inner!r} returned {made!r}, which is none."
        )
    return made
