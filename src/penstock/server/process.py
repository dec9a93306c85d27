"""The server as a program: one process, or several workers behind one port, until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import uvloop

from penstock.server.serving import serve, stop_at_signals
from penstock.server.workers import STOP_S, Workers, set_up_logs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server.config import ServerConfig
    from penstock.server.serving import Opened

_log = logging.getLogger(__name__)


def run(
    config: ServerConfig,
    announce: Callable[[str], None],
    *,
    opened: Opened | None = None,
    set_up_logs: Callable[[ServerConfig], None] = set_up_logs_of,
) -> None:
    """Serve until SIGTERM or SIGINT. `announce` is called with the server's URL once it takes requests.

    `opened` is awaited with the engine before that, if there is one process; of several, each calls `set_up_logs`,
    which is a function of a module. Raises `StartFailure` or a `PenstockError` about the store if it cannot start.
    """
    config.check()
    if config.workers == 1:
        serve(config, announce, opened=opened)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run_workers(config, announce, set_up_logs))


async def _run_workers(
    config: ServerConfig, announce: Callable[[str], None], set_up_logs: Callable[[ServerConfig], None]
) -> None:
    workers = Workers(config, announce, set_up_logs)
    stop_at_signals(workers.stop, lambda: {"processes": config.workers, "grace_s": round(STOP_S)})
    await workers.run()
    _log.info("stopped")
