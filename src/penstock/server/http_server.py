"""uvicorn as Penstock runs it: told when it is ready, asked to let go of long polls, and silent about signals."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import uvicorn

from penstock.server.fast_path import fast_path

if TYPE_CHECKING:
    import socket
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

    `ready` is called once connections are accepted, `stopping` before those that are idle are closed.
    """

    def __init__(
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping()
        await super().shutdown(sockets)
        late = list(self.server_state.tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CANCEL_S)
