"""The lab's own server: in a thread of the runner, on a clock that the runner moves or on the system's."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import uvloop

from penstock.domain.clock import ManualClock
from penstock.server.config import ServerConfig
from penstock.server.service import Service

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from penstock.engine.engine import Engine

T = TypeVar("T")

START_S_MAX = 60.0
STOP_S_MAX = 15.0
MOVE_S_MAX = 60.0


class Seen(NamedTuple):
    """What the server's time looks like at one instant."""

    now_ms: int
    polls_parked: int
    next_ms: int | None


class EmbeddedServer:
    """A server on a free port of loopback, on the store that a URL names, for as long as the block lasts."""

    def __init__(self, store: str, *, region: str, driven: bool) -> None:
        # A queue of a scenario is made anew for its broken variant, at once.
        config = ServerConfig(
            port=0, store=store, region=region, clock="manual" if driven else "system", name_reuse_s=0
        )
        self.url = ""
        self.version = ""
        """What the store runs on, as people say it."""
        self._service = Service(config, self._ready, opened=self._opened)
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settled = threading.Event()
        self._failure: BaseException | None = None
        # A daemon: a runner that is interrupted must be able to end.
        self._thread = threading.Thread(target=self._run, name="penstock-lab-server", daemon=True)

    def __enter__(self) -> Self:
        """Start, and return once it takes requests; raises what kept it from that."""
        self._thread.start()
        if not self._settled.wait(START_S_MAX):
            raise TimeoutError(f"The lab's server has not started within {START_S_MAX:g} seconds.")
        self._raise_failure()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # If it has stopped by itself, its loop is closed already.
        with contextlib.suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._service.stop)
        self._thread.join(STOP_S_MAX)
        if self._thread.is_alive():
            raise TimeoutError(f"The lab's server has not stopped within {STOP_S_MAX:g} seconds.")
        if kind is None:
            self._raise_failure()

    def look(self) -> Seen:
        """Return the server's time, how many long polls it holds, and when its next timer is due."""
        return self._on_loop(self._look())

    def advance_to(self, at_ms: int) -> None:
        """Move the clock, and return once everything that came due has been set going."""
        self._on_loop(self._advance(at_ms))

    async def _look(self) -> Seen:
        assert self._engine is not None
        clock = self._service.clock
        next_ms = clock.next_timer_ms if isinstance(clock, ManualClock) else None
        return Seen(clock.now_ms(), self._engine.long_polls, next_ms)

    async def _advance(self, at_ms: int) -> None:
        clock = self._service.clock
        assert isinstance(clock, ManualClock), "the system's clock cannot be moved"
        await clock.advance(ms=max(at_ms - clock.now_ms(), 0))

    def _on_loop(self, coroutine: Coroutine[object, object, T]) -> T:
        if self._loop is None or self._loop.is_closed():
            coroutine.close()
            self._raise_failure()
            raise RuntimeError("The lab's server has stopped.")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(MOVE_S_MAX)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                runner.run(self._service.run())
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that started this one
            self._failure = error
        finally:
            self._settled.set()

    async def _opened(self, engine: Engine) -> None:
        self._engine = engine
        self.version = (await engine.version()).database

    def _ready(self, url: str) -> None:
        self.url = url
        self._settled.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
