"""One server: everything built from its settings, served until it is told to stop, and taken down again."""

from __future__ import annotations

import errno
import resource
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from penstock.domain.clock import ManualClock, SystemClock
from penstock.domain.job_limits import JobLimits
from penstock.domain.limits import HOUR_MS, SECOND_MS, Limits
from penstock.engine.engine import Engine
from penstock.server.access import Access
from penstock.server.admission import LINGERING_MAX, Admission
from penstock.server.app import App, Monitors
from penstock.server.browser_guard import BrowserGuard
from penstock.server.config import StartFailure
from penstock.server.counters import RequestCounters
from penstock.server.declared_queues import make_declared_queues
from penstock.server.exchange import ConnectionLimits
from penstock.server.front import FastFront, Front
from penstock.server.http_server import HttpServer
from penstock.server.jobs.access import Access as JobAccess
from penstock.server.jobs.app import JobApp, job_endpoint
from penstock.server.jobs.counters import JobCounters
from penstock.server.jobs.tracing import Tracing
from penstock.server.metrics import Metrics
from penstock.server.request_memory import MIB, RequestMemory
from penstock.server.sqs import SqsEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.domain.clock import Clock
    from penstock.server.config import ServerConfig

_log = structlog.get_logger(__name__)

_OTHER_FILES = 128 + LINGERING_MAX
"""How many files a process needs for its store, its log, and connections that it refuses."""


class Service:
    """One run of a server, on the event loop that `run` is called on. It leaves the process as it is.

    `ready` is called with the server's URL once it takes requests. With `shared_port`, others listen on it too.
    """

    def __init__(self, config: ServerConfig, ready: Callable[[str], None], *, shared_port: bool = False) -> None:
        self._shared_port = shared_port
        self._config = config
        self._announce = ready
        self._server: HttpServer | None = None
        self._stopped = False
        self.clock = _clock(config)

    async def run(self) -> None:
        """Serve until `stop`. Raises `StartFailure` or a `PenstockError` about the store if it cannot start."""
        self._config.check()
        with listen(self._config, shared=self._shared_port) as listener:
            opened = Engine.open(
                self._config.store,
                clock=self.clock,
                limits=_limits(self._config),
                job_limits=_job_limits(self._config),
            )
            async with opened as engine:
                await self._serve(engine, listener)

    def stop(self) -> None:
        """End in good order, at whatever stage it is; asked a second time, without waiting for clients."""
        self._stopped = True
        if self._server is not None:
            self._server.stop()

    async def _serve(self, engine: Engine, listener: socket.socket) -> None:
        config = self._config
        await make_declared_queues(engine.queues, config.queues)
        counters = RequestCounters()
        job_counters = JobCounters()
        endpoint = SqsEndpoint(
            engine,
            region=config.region,
            account=config.account,
            scheme=config.scheme,
            public_url=config.public_url,
            access=_access(config, engine),
            counters=counters,
        )
        app = App(
            engine,
            engine.ping,
            Metrics(engine, counters, job_counters),
            region=config.region,
            account=config.account,
            clock=self.clock if isinstance(self.clock, ManualClock) else None,
            monitors=Monitors(config.monitoring_token, required=config.guarded),
        )
        jobs = job_endpoint(
            engine,
            access=JobAccess(config.tokens, required=config.guarded),
            counters=job_counters,
            tracing=Tracing.of_process(),
        )
        url = _url(config, listener)
        fast = FastFront(endpoint, jobs)
        admission = Admission(
            guard=_guard(config),
            memory=RequestMemory(config.request_memory_mib * MIB),
            connections_max=_connections_max(config),
            authenticate=fast.recognise if config.guarded else None,
            refuse=fast.refuse,
        )
        self._server = HttpServer(
            fast.answer,
            Front(app, JobApp(jobs, body_bytes_max=engine.jobs.limits.request_bytes_max)),
            begin=fast.begin,
            limits=ConnectionLimits(patience_s=config.client_timeout_s),
            admission=admission,
            ready=lambda: self._announce(url),
            stopping=engine.end_waits,
            tls=_tls(config),
        )
        if self._stopped:
            return
        try:
            await self._server.serve(sockets=[listener])
        except OSError as error:
            if self._server.started:
                raise
            raise _cannot_listen(config, error) from None


def _access(config: ServerConfig, engine: Engine) -> Access | None:
    if not config.guarded:
        return None
    secure = config.tls_certificate is not None
    # Clients sign by the time of the world, wherever the time of the queues may have been moved to.
    return Access(config.keys, engine.queues, SystemClock(), region=config.region, secure_transport=secure)


def _guard(config: ServerConfig) -> BrowserGuard:
    # The name to listen on is a name of this server, and so is the one that queue URLs have.
    hosts, origins = [config.host, *config.allowed_host], [*config.allowed_origin]
    if config.public_url is not None:
        public = urlsplit(config.public_url)
        hosts.append(public.hostname or "")
        origins.append(f"{public.scheme}://{public.netloc}")
    return BrowserGuard(hosts=hosts, origins=origins, guarded=config.guarded)


def _connections_max(config: ServerConfig) -> int:
    """Return how many connections there may be, so that a process does not run out of files for anything else."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or files - _OTHER_FILES >= config.connections_max:
        return config.connections_max
    allowed = max(1, files - _OTHER_FILES)
    _log.warning("fewer connections than configured, because of the limit of open files", connections=allowed)
    return allowed


def _clock(config: ServerConfig) -> Clock:
    # It starts at the present, so that timestamps look right.
    return ManualClock(SystemClock().now_ms()) if config.clock == "manual" else SystemClock()


def _job_limits(config: ServerConfig) -> JobLimits:
    defaults = JobLimits()
    # As below: it is enough to look for what is due when something was expected to be.
    return JobLimits(advance_idle_ms=HOUR_MS if config.clock == "manual" else defaults.advance_idle_ms)


def _limits(config: ServerConfig) -> Limits:
    defaults = Limits()
    return Limits(
        purge_interval_ms=config.purge_interval_s * SECOND_MS,
        name_reuse_ms=config.name_reuse_s * SECOND_MS,
        # A clock that is moved by hand stops at every sweep on its way, and may be moved by weeks at once.
        sweep_interval_ms=HOUR_MS if config.clock == "manual" else defaults.sweep_interval_ms,
    )


def listen(config: ServerConfig, *, shared: bool) -> socket.socket:
    """Take the port, before anything is done that would be in vain without it; or share it with other workers."""
    family, address = config.addresses()[0]
    listener = socket.socket(family)
    try:
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _cannot_listen(config, error) from None
    return listener


def _cannot_listen(config: ServerConfig, error: OSError) -> StartFailure:
    if error.errno == errno.EADDRINUSE:
        return StartFailure(
            f"Port {config.port} on {config.host} is in use by another process. "
            "Choose another with --port, or any free one with --port 0."
        )
    return StartFailure(f"Cannot listen on {config.host} port {config.port}: {error.strerror}.")


def _url(config: ServerConfig, listener: socket.socket) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{config.scheme}://{host}:{listener.getsockname()[1]}"


def _tls(config: ServerConfig) -> tuple[str, str] | None:
    if config.tls_certificate is None or config.tls_key is None:
        return None
    return config.tls_certificate, config.tls_key
