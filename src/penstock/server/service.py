"""One server: everything built from its settings, served until it is told to stop, and taken down again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.domain.clock import ManualClock, SystemClock
from penstock.domain.job_limits import JobLimits
from penstock.domain.limits import HOUR_MS, SECOND_MS, Limits
from penstock.engine.engine import Engine
from penstock.server.access import Access
from penstock.server.admission import LINGERING_MAX, Admission
from penstock.server.app import App, Monitors
from penstock.server.browser_guard import BrowserGuard
from penstock.server.counters import RequestCounters
from penstock.server.declared_queues import make_declared_queues
from penstock.server.exchange import ConnectionLimits
from penstock.server.exporting import process_tracing
from penstock.server.front import FastFront, Front
from penstock.server.http_server import GRACE_S, HttpServer
from penstock.server.jobs.access import Access as JobAccess
from penstock.server.jobs.app import JobApp, job_endpoint
from penstock.server.jobs.counters import JobCounters
from penstock.server.listening import cannot_listen, listen, listen_locally, url_of
from penstock.server.metrics import Metrics
from penstock.server.owner import HEADER as OWNER_HEADER
from penstock.server.owner import KEPT_S, OwnerRole
from penstock.server.request_memory import MIB, RequestMemory
from penstock.server.sqs import SqsEndpoint
from penstock.server.unix_sockets import Peers, UnixListener
from penstock.wire.jobs.staging import read_staged

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from penstock.domain.clock import Clock
    from penstock.server.config import ServerConfig

    Listener = socket.socket | UnixListener

_log = logging.getLogger(__name__)

_OTHER_FILES = 128 + LINGERING_MAX
"""How many files a process needs for its store, its log, and connections that it refuses."""


class Service:
    """One run of a server, on the event loop that `run` is called on. It leaves the process as it is.

    `opened` is awaited with the engine before that takes requests, and `ready` is called with the server's URL once it
    does. With `shared_port`, others listen on it too. On a
    Unix socket it owns its SQLite file, in the `role` that is given or in one of its own.
    """

    def __init__(
        self,
        config: ServerConfig,
        ready: Callable[[str], None],
        *,
        shared_port: bool = False,
        role: OwnerRole | None = None,
        opened: Callable[[Engine], Awaitable[None]] | None = None,
    ) -> None:
        self._opened = opened
        self._role = role
        self._shared_port = shared_port
        self._config = config
        self._announce = ready
        self._server: HttpServer | None = None
        self._engine: Engine | None = None
        self._stopped = False
        self._listener: Listener | None = None
        self._watch: asyncio.Task[None] | None = None
        self.clock = _clock(config)

    async def run(self) -> None:
        """Serve until `stop`. Raises `StartFailure` or a `PenstockError` about the store if it cannot start."""
        self._config.check()
        with contextlib.ExitStack() as stack:
            if self._config.socket is None:
                listener: Listener = stack.enter_context(listen(self._config, shared=self._shared_port))
            else:
                self._role = self._role or OwnerRole.of_server(self._config.store, self._config.socket)
                if self._role is not None:
                    stack.callback(self._role.owner.withdraw)
                listener = stack.enter_context(listen_locally(self._config, self._config.socket))
            self._listener = listener
            opened = Engine.open(
                self._config.store,
                clock=self.clock,
                limits=_limits(self._config),
                job_limits=_job_limits(self._config),
                read_staged=read_staged,
            )
            async with opened as engine:
                await self._serve(engine, listener)
        if self._role is not None and self._role.failure is not None:
            raise self._role.failure

    def stop(self) -> None:
        """End in good order, at whatever stage it is; asked a second time, without waiting for clients."""
        self._stopped = True
        if self._server is not None:
            self._server.stop()

    def under_way(self) -> dict[str, int]:
        """Count what `stop` waits for and what it ends: requests and long polls; and how many seconds they get."""
        if self._server is None or self._engine is None:
            return {}
        long_polls = self._engine.long_polls
        requests = max(len(self._server.server_state.tasks) - long_polls, 0)
        return {"requests": requests, "long_polls": long_polls, "grace_s": GRACE_S}

    def descriptors(self) -> list[int]:
        """Return those of a Unix socket and its connections; a forked child that keeps them keeps clients waiting."""
        return self._listener.descriptors() if isinstance(self._listener, UnixListener) else []

    async def _serve(self, engine: Engine, listener: Listener) -> None:
        config = self._config
        await make_declared_queues(engine.queues, config.queues)
        if self._opened is not None:
            await self._opened(engine)
        self._engine = engine
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
            tracing=process_tracing(),
            more=() if self._role is None else self._role.routes(),
        )
        url = url_of(config, listener)
        fast = FastFront(endpoint, jobs)
        admission = Admission(
            guard=_guard(config),
            memory=RequestMemory(config.request_memory_mib * MIB),
            connections_max=_connections_max(config),
            authenticate=fast.recognise if config.guarded else None,
            refuse=fast.refuse,
            peers=None if config.socket is None else Peers(None if self._role is None else self._role.owner.path),
        )
        self._server = HttpServer(
            fast.answer,
            Front(app, JobApp(jobs, body_bytes_max=engine.jobs.limits.request_bytes_max)),
            begin=fast.begin,
            limits=ConnectionLimits(patience_s=_patience_s(config, self._role)),
            admission=admission,
            ready=lambda: self._note_ready(listener, url),
            stopping=lambda: _note_stopping(engine, listener),
            tls=_tls(config),
            headers=[] if self._role is None else [(OWNER_HEADER, str(self._role.owner.number))],
        )
        if self._stopped:
            return
        try:
            await self._server.serve(sockets=[listener.socket if isinstance(listener, UnixListener) else listener])
        except OSError as error:
            if self._server.started:
                raise
            raise cannot_listen(config, error) from None
        finally:
            if self._watch is not None:
                self._watch.cancel()

    def _note_ready(self, listener: Listener, url: str) -> None:
        server = self._server
        assert server is not None
        if isinstance(listener, UnixListener):
            listener.publish()
        if self._role is not None:
            self._role.owner.note_ready()
            self._watch = asyncio.create_task(self._role.watch(lambda: server.connections, self.stop))
        self._announce(url)


def _note_stopping(engine: Engine, listener: Listener) -> None:
    if isinstance(listener, UnixListener):
        listener.retract()
    engine.end_waits()


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
    _log.warning(
        "fewer connections than configured: the limit of open files is too low", extra={"connections": allowed}
    )
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


def _patience_s(config: ServerConfig, role: OwnerRole | None) -> float:
    return KEPT_S if role is not None and role.on_demand else config.client_timeout_s


def _tls(config: ServerConfig) -> tuple[str, str] | None:
    if config.tls_certificate is None or config.tls_key is None:
        return None
    return config.tls_certificate, config.tls_key
