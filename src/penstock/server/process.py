"""The server as a program: one process, or several workers behind one port, until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import uvloop

from penstock.server.serving import serve, stop_at_signals
from penstock.server.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server.config import ServerConfig

_log = logging.getLogger(__name__)


def run(config: ServerConfig, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. `announce` is called with the server's URL once it takes requests.

    Raises `StartFailure` or a `PenstockError` about the store if it cannot start.
    """
    config.check()
    if config.workers == 1:
        serve(config, announce)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run_workers(config, announce))


async def _run_workers(config: ServerConfig, announce: Callable[[str], None]) -> None:
    workers = Workers(config, announce)
    stop_at_signals(workers.stop)
    await workers.run()
    _log.info("stopped")
