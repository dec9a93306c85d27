"""Several processes behind one port: started together, watched, replaced when they die, and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PenstockError
from penstock.server.config import StartFailure
from penstock.server.listening import listen
from penstock.server.logs import configure_logging
from penstock.server.serving import serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from penstock.server.config import ServerConfig

_log = logging.getLogger(__name__)
_spawning = multiprocessing.get_context("spawn")

STOP_S = 10.0
"""How long workers may take to stop in good order before they are killed."""

REPLACE_AFTER_S = 1.0
"""How soon a worker that died is replaced: not at once, or one that cannot live would keep the machine busy."""


class Ready(msgspec.Struct, frozen=True):
    """A worker takes requests."""

    url: str


class Failed(msgspec.Struct, frozen=True):
    """A worker could not start, and why."""

    reason: str


class Worker:
    """One process. It ends when it is told to, or when whoever started it is gone."""

    def __init__(self, config: ServerConfig, number: int, set_up_logs: Callable[[ServerConfig], None]) -> None:
        self._config = config
        self._set_up_logs = set_up_logs
        self._number = number
        self._ours: Connection | None = None
        self._process: SpawnProcess | None = None
        self._gone: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Start the process, anew if it had died."""
        if self._ours is not None:
            self._ours.close()
        ours, theirs = _spawning.Pipe()
        self._process = _spawning.Process(
            target=_work, args=(self._config, theirs, self._set_up_logs), name=f"penstock-worker-{self._number}"
        )
        self._process.start()
        # Only the worker has its end now, so that each side learns of the other's death.
        theirs.close()
        self._ours = ours
        loop = asyncio.get_running_loop()
        self._gone = loop.create_future()
        loop.add_reader(self._process.sentinel, self._note_end)

    @property
    def pid(self) -> int | None:
        """The process's id."""
        return None if self._process is None else self._process.pid

    async def ready(self) -> str:
        """Wait until it takes requests and return its URL; raise `StartFailure` if it does not come to that."""
        assert self._ours is not None
        said = await asyncio.to_thread(_hear, self._ours)
        if isinstance(said, Ready):
            return said.url
        raise StartFailure(said.reason)

    async def ended(self) -> None:
        """Wait until it is gone."""
        assert self._gone is not None
        await asyncio.shield(self._gone)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal, if it lives."""
        if self._process is not None and self._process.is_alive():
            assert self._process.pid is not None
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def _note_end(self) -> None:
        assert self._process is not None
        assert self._gone is not None
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self._gone.set_result(None)


class Workers:
    """All processes of one server."""

    def __init__(
        self, config: ServerConfig, announce: Callable[[str], None], set_up_logs: Callable[[ServerConfig], None]
    ) -> None:
        self._config = config
        self._set_up_logs = set_up_logs
        self._announce = announce
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Serve until `stop`; raise `StartFailure` if any worker cannot start."""
        # Held, and not listened on: so the port is ours, also where any free one was asked for.
        with listen(self._config, shared=True) as place:
            port = place.getsockname()[1]
            config = msgspec.structs.replace(self._config, port=port)
            workers = [Worker(config, number, self._set_up_logs) for number in range(config.workers)]
            try:
                for worker in workers:
                    worker.start()
                urls = [await worker.ready() for worker in workers]
                self._announce(urls[0])
                async with asyncio.TaskGroup() as watching:
                    for worker in workers:
                        watching.create_task(self._watch(worker))
            finally:
                await _stop_all(workers)

    def stop(self) -> None:
        """End all of them in good order."""
        self._stopping.set()

    async def _watch(self, worker: Worker) -> None:
        """Replace a worker whenever it dies, until all are to stop."""
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                ended = asyncio.create_task(worker.ended())
                await asyncio.wait((stopping, ended), return_when=asyncio.FIRST_COMPLETED)
                if self._stopping.is_set():
                    return
                _log.error("a worker died and is replaced", extra={"pid": worker.pid})
                await asyncio.wait((stopping,), timeout=REPLACE_AFTER_S)
                if self._stopping.is_set():
                    return
                worker.start()
                try:
                    await worker.ready()
                except StartFailure as failure:
                    _log.error("a worker cannot start", extra={"reason": str(failure)})
        finally:
            stopping.cancel()


async def _stop_all(workers: list[Worker]) -> None:
    for worker in workers:
        worker.stop()
    endings = [asyncio.create_task(worker.ended()) for worker in workers if worker.pid is not None]
    if not endings:
        return
    _, late = await asyncio.wait(endings, timeout=STOP_S)
    if late:
        _log.warning("workers that did not stop in time are killed", extra={"number": len(late)})
        for worker in workers:
            worker.stop(signal.SIGKILL)
        await asyncio.wait(late)


def _hear(connection: Connection) -> Ready | Failed:
    try:
        said: Ready | Failed = connection.recv()
    except EOFError:
        return Failed("A worker process died at its start; its log says why.")
    return said


def set_up_logs_of(config: ServerConfig) -> None:
    """Have this process log as configured, with no terminal in mind."""
    configure_logging(level=config.log_level, form=config.log_format)


def _work(config: ServerConfig, starter: Connection, set_up_logs: Callable[[ServerConfig], None]) -> None:
    """Be a worker: serve until a signal comes, or the starter is gone."""
    set_up_logs(config)
    # Ctrl-C reaches the whole group; the starter hears it and tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        serve(config, lambda url: starter.send(Ready(url)), starter=starter.fileno())
    except StartFailure as failure:
        starter.send(Failed(str(failure)))
    except PenstockError as error:
        starter.send(Failed(error.reason))
