"""uvicorn as Penstock runs it: told when it is ready, asked to let go of long polls, and silent about signals."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from penstock.server.fast_path import fast_path

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from uvicorn._types import ASGI3Application

    from penstock.server.admission import Admission
    from penstock.server.exchange import ConnectionLimits
    from penstock.server.fast_path import Answer, Begin

GRACE_S = 5
"""How long a stopping server waits for answers under way."""

_CANCEL_S = 1.0
"""How long those that are cancelled after that may take to undo what they did."""

_BACKLOG = 2048


class HttpServer(uvicorn.Server):
    """Serves an endpoint by the fast path, and an application with all the rest, until `stop`.

    `ready` is called once connections are accepted, `stopping` before those that are idle are closed. Every answer has
    the `headers`.
    """

    def __init__(  # noqa: PLR0913 - one for each thing that the service has to say
        self,
        answer: Answer,
        app: ASGI3Application,
        *,
        begin: Begin | None = None,
        limits: ConnectionLimits | None = None,
        admission: Admission | None = None,
        ready: Callable[[], None] = lambda: None,
        stopping: Callable[[], None] = lambda: None,
        tls: tuple[str, str] | None = None,
        headers: list[tuple[str, str]] | None = None,
    ) -> None:
        certificate, key = tls or (None, None)
        super().__init__(
            uvicorn.Config(
                app,
                http=fast_path(answer, limits, begin, admission),
                interface="asgi3",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                timeout_graceful_shutdown=GRACE_S,
                ssl_certfile=certificate,
                ssl_keyfile=key,
                headers=headers,
            )
        )
        self._ready = ready
        self._stopping = stopping

    def stop(self) -> None:
        """End in good order; asked a second time, without waiting for clients."""
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the process, which turns them into `stop`."""
        yield

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self.server_state.connections)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if sockets and sockets[0].family == socket.AF_UNIX:
            await self._listen_locally(sockets[0])
        else:
            await super().startup(sockets)
        self._ready()

    async def _listen_locally(self, listener: socket.socket) -> None:
        """Do what uvicorn does, which takes a Unix socket for one of TCP."""
        # uvicorn only calls it, and so do we.
        make: Any = self.config.http_protocol_class
        protocol = functools.partial(
            make, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        loop = asyncio.get_running_loop()
        more: dict[str, Any] = {}
        if "cleanup_socket" in inspect.signature(loop.create_unix_server).parameters:
            # From Python 3.13 on the loop would look for the file where it was bound, to remove it: it has moved since.
            more["cleanup_socket"] = False
        self.servers = [await loop.create_unix_server(protocol, sock=listener, backlog=_BACKLOG, **more)]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping()
        await super().shutdown(sockets)
        late = list(self.server_state.tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CANCEL_S)
