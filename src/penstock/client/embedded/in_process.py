"""An engine in this process, on a thread with an event loop of its own, asked as a server would be: by requests."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from penstock.client.errors import Closed, ConnectionFailed, DeadlineExceeded
from penstock.client.transport.http1 import Answer
from penstock.domain.errors import StoreUnavailable
from penstock.engine.engine import Engine
from penstock.server.jobs.app import job_endpoint
from penstock.wire.http import Request, Response
from penstock.wire.jobs.problems import NOT_FOUND, TOO_LARGE, make_problem, problem_response
from penstock.wire.jobs.staging import read_staged

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator

    from penstock.client.transport.http1 import Outgoing
    from penstock.domain.clock import ManualClock
    from penstock.server.jobs.call import Streamed
    from penstock.server.jobs.endpoint import Endpoint

T = TypeVar("T")


class Alone:
    """The only one that can be asked: there is nowhere else to go, and nobody asks for a token."""

    several = False

    def __init__(self, connect_s: float) -> None:
        self._connect_s = connect_s
        self.reached = False
        """Whether the engine was ever open."""

    def reach_by(self, since: float) -> float:
        """Return until when to look for the store; for ever if it was ever open."""
        return math.inf if self.reached else since + self._connect_s

    def refused(self) -> None:
        """Do nothing."""

    def changed_token(self) -> bool:
        """Return that there is no other token."""
        return False


class InProcess:
    """The engine that a URL names, run from the first call on, for requests from any thread and any event loop."""

    def __init__(self, url: str, connect_s: float, *, clock: ManualClock | None = None) -> None:
        self._url = url
        self._clock = clock
        self.peer = Alone(connect_s)
        self._lock = threading.Lock()
        self._engine: _Running | None = None
        self._closed = False
        # Only servers and workers look after what is due in a database; what is in memory nobody else looks after.
        # Where time is moved by hand, so is what comes due.
        self._upkeep = url == "memory:" and clock is None
        self.for_async = AsyncSender(self)
        self.for_sync = SyncSender(self)

    def running(self) -> _Running:
        """Return the engine, started if it has to be; it may still be opening."""
        with self._lock:
            if self._closed:
                raise Closed("This Penstock was closed.")
            if self._engine is None or self._engine.over.done():
                self._engine = _Running(self._url, upkeep=self._upkeep, clock=self._clock)
            return self._engine

    def look_after_store(self) -> None:
        """Run what comes due by itself, from now on."""
        with self._lock:
            self._upkeep = True
            if self._engine is not None:
                self._engine.look_after_store()

    def close(self) -> None:
        """Stop the engine and wait until it has."""
        if (engine := self._stop()) is not None:
            engine.over.result()

    async def aclose(self) -> None:
        """Stop the engine and wait until it has."""
        if (engine := self._stop()) is not None:
            await asyncio.wait((asyncio.wrap_future(engine.over),))

    def _stop(self) -> _Running | None:
        with self._lock:
            self._closed = True
            if self._engine is not None:
                self._engine.stop()
            return self._engine


class _Running:
    """One run of an engine on its thread.

    `ready` is done when requests can be answered, or has the error that the engine could not be opened for; `over` is
    done when the engine has ended.
    """

    def __init__(self, url: str, *, upkeep: bool, clock: ManualClock | None = None) -> None:
        self._url = url
        self._upkeep = upkeep
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._stopping = False
        self.engine: Engine
        """There once it is ready, and to be used on its own thread alone."""
        self._endpoint: Endpoint
        self._body_bytes_max = 0
        self.ready: Future[None] = Future()
        self.over: Future[None] = Future()
        # A daemon, so that a program that forgets to close can end. Nothing that was acknowledged is lost by that.
        threading.Thread(target=self._work, name="penstock-engine", daemon=True).start()

    def submit(self, work: Callable[[], Coroutine[None, None, T]]) -> Future[T]:
        """Run a coroutine, made there, on the engine's thread, which is ready. Cancelling the future cancels it."""
        assert self._loop is not None
        loop = self._loop
        future: Future[T] = Future()

        def start() -> None:
            if future.cancelled():
                return
            task = loop.create_task(work())
            task.add_done_callback(lambda _: self._settle(task, future))
            future.add_done_callback(lambda _: loop.call_soon_threadsafe(task.cancel) if future.cancelled() else None)

        try:
            loop.call_soon_threadsafe(start)
        except RuntimeError:
            raise Closed("This Penstock was closed.") from None
        return future

    def look_after_store(self) -> None:
        """Have the engine run what comes due by itself."""
        self._upkeep = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # It has ended.
                self._loop.call_soon_threadsafe(self.engine.start_upkeep)

    def give_back(self, answer: object) -> None:
        """Undo what an answer that nobody waits for any more did for its caller alone."""
        if isinstance(answer, Response) and answer.undelivered is not None:
            undelivered = answer.undelivered
            self.submit(lambda: _undelivered(undelivered))

    def stop(self) -> None:
        """Let it end."""
        self._stopping = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # It has ended.
                self._loop.call_soon_threadsafe(self._stop.set)

    async def answer(self, request: Outgoing) -> Response | Streamed:
        """Answer a request as the server would."""
        if len(request.body) > self._body_bytes_max:
            return problem_response(make_problem(TOO_LARGE, f"It is larger than {self._body_bytes_max} bytes."))
        path, _, query = request.target.partition("?")
        headers = dict(line.split(": ", 1) for line in request.headers.split("\r\n") if line)
        asked = Request(request.method, unquote(path), query, headers, request.body)
        found = self._endpoint.find(asked.method, asked.path)
        if found is None:
            return problem_response(make_problem(NOT_FOUND, "There is nothing here."))
        return await self._endpoint.answer(*found, asked)

    def _settle(self, task: asyncio.Task[T], future: Future[T]) -> None:
        if task.cancelled():
            if future.set_running_or_notify_cancel():
                future.set_exception(Closed("This Penstock was closed before the call was answered."))
        elif not future.set_running_or_notify_cancel():
            if task.exception() is None:
                self.give_back(task.result())
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    def _work(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 - it is raised where a call is made
            if not self.ready.done():
                self.ready.set_exception(error)
        finally:
            self.over.set_result(None)

    async def _serve(self) -> None:
        async with Engine.open(self._url, clock=self._clock, upkeep=False, read_staged=read_staged) as engine:
            self.engine = engine
            self._endpoint = job_endpoint(engine)
            self._body_bytes_max = engine.jobs.limits.request_bytes_max
            self._loop = asyncio.get_running_loop()
            if self._stopping:
                self._stop.set()
            if self._upkeep:
                engine.start_upkeep()
            self.ready.set_result(None)
            await self._stop.wait()


async def _undelivered(undo: Callable[[], Awaitable[None]]) -> None:
    await undo()


class SyncSender:
    """Sends requests to the engine from threads without an event loop."""

    def __init__(self, engine: InProcess) -> None:
        self.peer = engine.peer
        self._engine = engine

    def exchange(self, request: Outgoing, deadline: float) -> Answer:
        """Return the whole answer to a request; raises a `TransportError` if none comes by the deadline."""
        running = self._running(deadline)
        return _whole(_result(running.submit(lambda: running.answer(request)), deadline))

    @contextlib.contextmanager
    def stream(self, request: Outgoing, deadline: float, silence_s: float) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Open an answer that goes on: its status, and its parts as they come."""
        running = self._running(deadline)
        answer = _result(running.submit(lambda: running.answer(request)), deadline)
        if isinstance(answer, Response):
            yield answer.status, iter((answer.body,))
            return
        try:
            yield 200, self._parts(running, answer, silence_s)
        finally:
            _result(running.submit(lambda: _end(answer)), time.monotonic() + silence_s)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def _running(self, deadline: float) -> _Running:
        running = self._engine.running()
        try:
            running.ready.result(max(deadline - time.monotonic(), 0))
        except TimeoutError:
            raise DeadlineExceeded("The engine was not opened in time.") from None
        except StoreUnavailable as error:
            raise ConnectionFailed(error.reason) from error
        self.peer.reached = True
        return running

    @staticmethod
    def _parts(running: _Running, answer: Streamed, silence_s: float) -> Iterator[bytes]:
        while part := _result(running.submit(lambda: _next(answer)), time.monotonic() + silence_s):
            yield part


class AsyncSender:
    """Sends requests to the engine from any event loop."""

    def __init__(self, engine: InProcess) -> None:
        self.peer = engine.peer
        self._engine = engine

    async def exchange(self, request: Outgoing, deadline: float) -> Answer:
        """Return the whole answer to a request; raises a `TransportError` if none comes by the deadline."""
        running = await self._running(deadline)
        return _whole(await self._result(running, running.submit(lambda: running.answer(request)), deadline))

    @contextlib.asynccontextmanager
    async def stream(
        self, request: Outgoing, deadline: float, silence_s: float
    ) -> AsyncGenerator[tuple[int, AsyncIterator[bytes]]]:
        """Open an answer that goes on: its status, and its parts as they come."""
        running = await self._running(deadline)
        answer = await self._result(running, running.submit(lambda: running.answer(request)), deadline)
        if isinstance(answer, Response):
            yield answer.status, _one(answer.body)
            return
        try:
            yield 200, self._parts(running, answer, silence_s)
        finally:
            await self._result(running, running.submit(lambda: _end(answer)), time.monotonic() + silence_s)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def _running(self, deadline: float) -> _Running:
        running = self._engine.running()
        if not running.ready.done():
            # Others may wait for it, too: `wait` cancels nothing. What it raises is read below, from `running.ready`.
            ready = asyncio.wrap_future(running.ready)
            ready.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait((ready,), timeout=max(deadline - time.monotonic(), 0))
        if not running.ready.done():
            raise DeadlineExceeded("The engine was not opened in time.")
        try:
            running.ready.result()
        except StoreUnavailable as error:
            raise ConnectionFailed(error.reason) from error
        self.peer.reached = True
        return running

    @staticmethod
    async def _result(running: _Running, future: Future[T], deadline: float) -> T:
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():
                running.give_back(future.result())
            raise
        except TimeoutError:
            if future.cancel():
                raise DeadlineExceeded("The engine did not answer in time.") from None
            return future.result()

    async def _parts(self, running: _Running, answer: Streamed, silence_s: float) -> AsyncIterator[bytes]:
        while part := await self._result(running, running.submit(lambda: _next(answer)), time.monotonic() + silence_s):
            yield part


def _result(future: Future[T], deadline: float) -> T:
    try:
        return future.result(max(deadline - time.monotonic(), 0))
    except TimeoutError:
        if future.cancel():
            raise DeadlineExceeded("The engine did not answer in time.") from None
        return future.result()
    except BaseException:
        future.cancel()  # An interrupt: nobody waits for it any more.
        raise


def _whole(answer: Response | Streamed) -> Answer:
    assert isinstance(answer, Response), "what is asked for as a stream is"
    return Answer(answer.status, answer.body)


async def _next(answer: Streamed) -> bytes:
    return await anext(answer.chunks, b"")


async def _end(answer: Streamed) -> None:
    answer.closed()
    await answer.chunks.aclose()


async def _one(part: bytes) -> AsyncIterator[bytes]:
    yield part
