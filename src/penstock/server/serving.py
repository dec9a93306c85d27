"""One serving process: a service that signals stop, with more open files and less garbage collection than usual."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
from typing import TYPE_CHECKING

import uvloop

from penstock.server.exporting import set_up_tracing
from penstock.server.service import Service

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from penstock.engine.engine import Engine
    from penstock.server.config import ServerConfig
    from penstock.server.owner import OwnerRole

    Opened = Callable[[Engine], Awaitable[None]]

_log = logging.getLogger(__name__)

OPEN_FILES_MAX = 65_536
_GARBAGE_THRESHOLDS = (100_000, 50, 100)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(
    config: ServerConfig,
    announce: Callable[[str], None],
    *,
    starter: int | None = None,
    role: OwnerRole | None = None,
    opened: Opened | None = None,
) -> None:
    """Serve in this process; as a worker, until the pipe to the `starter` is closed, at the latest."""
    _raise_file_limit()
    stop_tracing = set_up_tracing()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, announce, starter, role, opened))
    finally:
        stop_tracing()


async def _serve(
    config: ServerConfig,
    announce: Callable[[str], None],
    starter: int | None,
    role: OwnerRole | None,
    opened: Opened | None,
) -> None:
    def ready(url: str) -> None:
        _calm_garbage_collector()
        announce(url)

    def orphaned() -> None:
        assert starter is not None
        loop.remove_reader(starter)
        _log.warning("stopping, since whoever started this worker is gone")
        service.stop()

    service = Service(config, ready, shared_port=starter is not None, role=role, opened=opened)
    loop = asyncio.get_running_loop()
    if starter is not None:
        loop.add_reader(starter, orphaned)
    stop_at_signals(service.stop, service.under_way)
    await service.run()
    _log.info("stopped")


def stop_at_signals(stop: Callable[[], None], under_way: Callable[[], Mapping[str, object]] = dict) -> None:
    """Have `stop` called on the running event loop at each SIGTERM and SIGINT. What is `under_way` then is logged."""

    def heed(number: signal.Signals) -> None:
        _log.info("stopping", extra={"signal": number.name, **under_way()})
        stop()

    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, heed, number)


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
