"""What the server answers besides SQS: whether it is well, what its queues hold, and, for tests, what time it is."""

from __future__ import annotations

import asyncio
import hmac
import re
from functools import partial
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qsl

import msgspec

from penstock.domain.errors import AccessDenied, PenstockError, QueueDoesNotExist, ServerOverloaded, StoreUnavailable
from penstock.domain.job import JobState
from penstock.domain.job_errors import JobQueueDoesNotExist
from penstock.domain.limits import DAY_MS, SECOND_MS
from penstock.domain.queue import QueueName
from penstock.engine.jobs.queues import depth
from penstock.server.metrics import CONTENT_TYPE
from penstock.server.peeking import peeked_queue, start_position, wanted_state
from penstock.wire.http import Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

    from penstock.domain.clock import ManualClock
    from penstock.engine.engine import Engine
    from penstock.server.metrics import Metrics

    Handler = Callable[[Mapping[str, str], bytes], Awaitable[Response]]

PING_TIMEOUT_S = 5.0
STATS_PAGE = 100
PEEK_PAGE = 10
BODY_BYTES_MAX = 4_096
PARAMETERS_MAX = 20
_JSON = ("content-type", "application/json")
_STATUSES: dict[type[PenstockError], int] = {
    AccessDenied: 403,
    QueueDoesNotExist: 404,
    ServerOverloaded: 503,
    StoreUnavailable: 503,
}
_MESSAGES = re.compile(r"/v1/queues/([^/]+)/messages")
_PUBLIC = frozenset({"/health", "/healthz", "/readyz"})


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far to move a manual clock."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=400 * DAY_MS / SECOND_MS)] = 0
    ms: Annotated[int, msgspec.Meta(ge=0, le=400 * DAY_MS)] = 0


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one queue holds."""

    name: str
    arn: str
    visible: int
    in_flight: int
    delayed: int


class JobQueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one job queue holds: jobs by state, how many of them wait, and for how long the oldest has been due."""

    name: str
    paused: bool
    depth: int
    jobs: dict[str, int]
    oldest_due_ms: int | None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """A page of queues and one of job queues, in the order of their names.

    `after` and `jobs_after` ask for the next pages, if there are any.
    """

    region: str
    account: str
    queues: list[QueueStats]
    after: str | None
    job_queues: list[JobQueueStats]
    jobs_after: str | None


class Monitors:
    """Who may see what goes on here: whoever has the token; with none, everybody, or nobody if one is `required`."""

    def __init__(self, token: str | None = None, *, required: bool = False) -> None:
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._open = token is None and not required

    def refuse(self, headers: Iterable[tuple[bytes, bytes]]) -> Response | None:
        """Return the answer to a request that may not pass."""
        if self._open:
            return None
        if self._expected is None:
            return _problem(403, "This is closed, because there are keys and no monitoring token is configured.")
        given = dict(headers).get(b"authorization", b"")
        if hmac.compare_digest(given, self._expected):
            return None
        return _problem(401, "This takes the monitoring token.", ("www-authenticate", "Bearer"))


class App:
    """An ASGI application. `clock` is given only where clients may move it.

    All but /health, /healthz and /readyz is for `monitors` only.
    """

    def __init__(
        self,
        engine: Engine,
        ping: Callable[[], Awaitable[None]],
        metrics: Metrics,
        *,
        region: str,
        account: str,
        clock: ManualClock | None = None,
        monitors: Monitors | None = None,
    ) -> None:
        self._engine = engine
        self._ping = ping
        self._metrics = metrics
        self._monitors = monitors or Monitors()
        self._region = region
        self._account = account
        self._clock = clock
        self._routes: dict[str, tuple[str, Handler]] = {
            "/health": ("GET", self._health),
            "/healthz": ("GET", self._health),
            "/readyz": ("GET", self._readiness),
            "/stats": ("GET", self._stats),
            "/metrics": ("GET", self._page_of_metrics),
        }
        if clock is not None:
            self._routes["/_penstock/clock/advance"] = ("POST", self._advance)

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        assert scope["type"] == "http", "uvicorn is told to serve nothing else"
        refusal = None if scope["path"] in _PUBLIC else self._monitors.refuse(scope["headers"])
        response = refusal or await self._respond(scope["method"], scope["path"], scope["query_string"], receive)
        headers = [*response.headers, ("content-length", str(len(response.body)))]
        await send(
            {
                "type": "http.response.start",
                "status": response.status,
                "headers": [(name.encode(), value.encode()) for name, value in headers],
                "trailers": False,
            }
        )
        await send({"type": "http.response.body", "body": response.body, "more_body": False})

    async def _respond(self, method: str, path: str, query: bytes, receive: ASGIReceiveCallable) -> Response:
        route = self._route(path)
        if route is None:
            return _problem(404, "There is nothing here.")
        allowed, handler = route
        if method != allowed and (method, allowed) != ("HEAD", "GET"):
            return _problem(405, f"This takes {allowed} only.", ("allow", allowed))
        body = await _read(receive)
        if body is None:
            return _problem(413, f"The request is larger than {BODY_BYTES_MAX} bytes.", ("connection", "close"))
        try:
            parameters = dict(parse_qsl(query.decode("latin-1"), max_num_fields=PARAMETERS_MAX))
            return await handler(parameters, body)
        except ValueError as error:  # msgspec's errors are of this kind too.
            return _problem(400, f"Invalid request: {error}.")
        except PenstockError as error:
            return problem_answer(error)

    def _route(self, path: str) -> tuple[str, Handler] | None:
        """Tell which method a path takes, and what answers it."""
        messages = _MESSAGES.fullmatch(path)
        return self._routes.get(path) if messages is None else ("GET", partial(self._peek, messages[1]))

    async def _health(self, _parameters: Mapping[str, str], _body: bytes) -> Response:
        """Say that this process runs and answers."""
        return _json({"status": "ok"})

    async def _readiness(self, _parameters: Mapping[str, str], _body: bytes) -> Response:
        """Say whether the store can be read and written."""
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                await self._ping()
        except TimeoutError:
            return _problem(503, f"The store has not answered for {PING_TIMEOUT_S:g} seconds.")
        return _json({"status": "ready"})

    async def _page_of_metrics(self, _parameters: Mapping[str, str], _body: bytes) -> Response:
        """Tell how requests, queues and the process are doing, in Prometheus's form."""
        return Response(headers=[("content-type", CONTENT_TYPE)], body=await self._metrics.page())

    async def _stats(self, parameters: Mapping[str, str], _body: bytes) -> Response:
        """List the queues of one region and account, and the job queues, with what they hold, a page at a time."""
        limit = _whole_number(parameters, "limit", STATS_PAGE)
        region = parameters.get("region", self._region)
        account = parameters.get("account", self._account)
        page = await self._engine.queues.list_queues(
            region,
            account,
            prefix=parameters.get("prefix", ""),
            after=parameters.get("after", ""),
            limit=limit,
        )
        listed: list[QueueStats] = []
        for queue in page.queues:
            try:
                counts = await self._engine.queues.count(queue.name)
            except QueueDoesNotExist:
                continue  # It was deleted since the page was read.
            listed.append(
                QueueStats(
                    name=queue.name.name,
                    arn=queue.name.arn,
                    visible=counts.visible,
                    in_flight=counts.in_flight,
                    delayed=counts.delayed,
                )
            )
        job_queues, jobs_after = await self._job_stats(parameters.get("jobs_after", ""), limit)
        return _json(
            Stats(
                region=region,
                account=account,
                queues=listed,
                after=page.after,
                job_queues=job_queues,
                jobs_after=jobs_after,
            )
        )

    async def _job_stats(self, after: str, limit: int) -> tuple[list[JobQueueStats], str | None]:
        if not after.isprintable():
            raise ValueError("jobs_after is not what an earlier answer said")
        queues = self._engine.jobs.queues
        page = await queues.list_queues(after=after, limit=limit)
        listed: list[JobQueueStats] = []
        for queue in page.queues:
            try:
                counts = await queues.counts(queue)
            except JobQueueDoesNotExist:
                continue  # As above.
            listed.append(
                JobQueueStats(
                    name=queue.name,
                    paused=queue.paused,
                    depth=depth(counts),
                    jobs={state.label: counts.by_state.get(state, 0) for state in JobState},
                    oldest_due_ms=counts.oldest_due_ms,
                )
            )
        return listed, page.after

    async def _peek(self, name: str, parameters: Mapping[str, str], _body: bytes) -> Response:
        """Show messages of one queue, in whatever state they are, and leave them so."""
        queue = QueueName(
            parameters.get("region", self._region),
            parameters.get("account", self._account),
            name,
        )
        peek = await self._engine.messages.peek(
            queue,
            state=wanted_state(parameters),
            after=start_position(parameters),
            limit=_whole_number(parameters, "limit", PEEK_PAGE),
        )
        return _json(peeked_queue(queue, peek))

    async def _advance(self, _parameters: Mapping[str, str], body: bytes) -> Response:
        """Move the clock, and answer once everything that came due on the way has been set going."""
        assert self._clock is not None
        step = msgspec.json.decode(body, type=Step)
        await self._clock.advance(seconds=step.seconds, ms=step.ms)
        return _json({"now_ms": self._clock.now_ms()})


def problem_answer(error: PenstockError) -> Response:
    """Make the answer to a request that failed."""
    return _problem(_STATUSES.get(type(error), 400), error.reason)


async def _read(receive: ASGIReceiveCallable) -> bytes | None:
    """Read a whole body; None if it is larger than anything here takes."""
    body = b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return body  # The client is gone, and so nobody will read what is answered.
        body += event["body"]
        if len(body) > BODY_BYTES_MAX:
            return None
        if not event["more_body"]:
            return body


def _whole_number(parameters: Mapping[str, str], name: str, default: int) -> int:
    text = parameters.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"{name} is not a whole number")
    return int(text)


def _json(value: object) -> Response:
    return Response(headers=[_JSON, ("cache-control", "no-store")], body=msgspec.json.encode(value))


def _problem(status: int, reason: str, *headers: tuple[str, str]) -> Response:
    return Response(status=status, headers=[_JSON, *headers], body=msgspec.json.encode({"message": reason}))
