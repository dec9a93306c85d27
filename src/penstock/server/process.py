"""The server process: a service that signals stop, with more open files and less garbage collection than usual."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
from typing import TYPE_CHECKING

import structlog
import uvloop

from penstock.server.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server.config import ServerConfig

_log = structlog.get_logger(__name__)

OPEN_FILES_MAX = 65_536
_GARBAGE_THRESHOLDS = (100_000, 50, 100)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(config: ServerConfig, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. `announce` is called with the server's URL once it takes requests.

    Raises `StartFailure` or a `PenstockError` about the store if it cannot start.
    """
    config.check()
    _raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(config, announce))


async def _run(config: ServerConfig, announce: Callable[[str], None]) -> None:
    def ready(url: str) -> None:
        _calm_garbage_collector()
        announce(url)

    def stop(number: signal.Signals) -> None:
        _log.info("stopping", signal=number.name)
        service.stop()

    service = Service(config, ready)
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    await service.run()
    _log.info("stopped")


def _raise_file_limit() -> None:
    """Allow as many connections as the system lets us, within reason."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if most == resource.RLIM_INFINITY else min(most, OPEN_FILES_MAX)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _calm_garbage_collector() -> None:
    """Leave out of all collections what lives as long as the process, and look at the rest less often.

    With many messages under way a full collection shows in the slowest answers; we make next to no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
