"""The endpoint: finds the route of a request, lets its handler answer, and tells problems."""

from __future__ import annotations

import logging
import re
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.ids import OrderedIds
from penstock.domain.job_errors import JobInvalid, NotAuthenticated
from penstock.server.counters import RequestCounters
from penstock.server.jobs.access import Access, Caller
from penstock.server.jobs.call import Call, Streamed
from penstock.server.jobs.correlation import HEADER, correlation_id_of
from penstock.server.jobs.document import PAGE_METHODS, PAGES, Documents
from penstock.server.jobs.permissions import PERMISSIONS, QUEUE_PATHS
from penstock.wire.jobs.problems import (
    BUG,
    NOT_ALLOWED,
    NOT_FOUND,
    make_problem,
    problem_of,
    problem_of_shape,
    problem_response,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.domain.ids import IdSource
    from penstock.server.jobs.call import Route
    from penstock.wire.http import Request, Response
    from penstock.wire.jobs.answers import Problem

_log = logging.getLogger(__name__)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_CHALLENGE = (("www-authenticate", 'Bearer realm="penstock"'),)
_TURNED_AWAY = frozenset({401, 403})
_SHAPELESS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What is raised where a body cannot be read."""
RECOGNISED_MAX = 10_000
Found = tuple["Route", dict[str, str]]


class Endpoint:
    """Answers requests of all routes, also those that make no sense; it never raises but for a cancelled one."""

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        access: Access | None = None,
        ids: IdSource | None = None,
        counters: RequestCounters | None = None,
    ) -> None:
        self.routes: Sequence[Route] = list(routes)
        self.access = access or Access()
        self._counters = counters or RequestCounters()
        self._ids = ids or OrderedIds()
        self._recognised: set[int] = set()
        self._documents = Documents(self.routes, required=self.access.required)
        self._plain = {(route.method, route.path): route for route in self.routes if "{" not in route.path}
        self._patterns = [
            (route, re.compile(_PLACEHOLDER.sub(r"(?P<\1>[^/]+)", route.path)))
            for route in self.routes
            if "{" in route.path
        ]

    def find(self, method: str, path: str) -> Found | None:
        """Find the route of a path, and what stands at its placeholders."""
        plain = self._plain.get((method, path))
        if plain is not None:
            return plain, {}
        for route, pattern in self._patterns:
            if route.method == method and (match := pattern.fullmatch(path)) is not None:
                return route, match.groupdict()
        return None

    def methods(self, path: str) -> list[str]:
        """List the methods that a path takes."""
        return sorted({route.method for route in self.routes if self.find(route.method, path) is not None})

    def begin(self, request: Request, reply: Callable[[Response], None]) -> bool:
        """Begin to refuse a request without a task, if it can be; False says that nothing was done."""
        route = self._plain.get((request.method, request.path))
        if route is None or route.begin is None or request.query:
            return False
        refuse = partial(self._refuse, route, request, reply, perf_counter())
        try:
            return route.begin(request, partial(self._caller, route, request), refuse)
        except (PenstockError, *_SHAPELESS):
            return False  # What is wrong with it is told in the usual way.

    def _caller(self, route: Route, request: Request) -> Caller:
        """Tell who asks, if he may ask for this."""
        caller = self.access.identify(request)
        caller.need(PERMISSIONS[route.name])
        return caller

    def _refuse(
        self, route: Route, request: Request, reply: Callable[[Response], None], started_s: float, error: PenstockError
    ) -> None:
        correlation_id = correlation_id_of(request.headers, self._ids)
        problem = problem_of(error)
        answer = problem_response(problem, (HEADER, correlation_id))
        self._note(route, answer, problem, correlation_id, perf_counter() - started_s)
        reply(answer)

    def recognise(self, head: Request) -> bool:
        """Return whether a request says who makes it, before its body is there; raise if it has to and does not."""
        # Python keys these hashes with a secret, and no token is kept. Who it belongs to is looked up later.
        mark = hash(head.headers.get("authorization"))
        if mark in self._recognised:
            return True
        try:
            self.access.identify(head)
        except NotAuthenticated:
            if self.find(head.method, head.path) is None:
                return False  # Everybody gets this answer.
            raise
        if len(self._recognised) >= RECOGNISED_MAX:
            self._recognised.clear()
        self._recognised.add(mark)
        return True

    def refuse(self, head: Request, error: PenstockError) -> Response:
        """Refuse a request without having seen its body."""
        started_s = perf_counter()
        problem = problem_of(error)
        correlation_id = correlation_id_of(head.headers, self._ids)
        answer = problem_response(problem, *_challenge(problem), (HEADER, correlation_id))
        found = self.find(head.method, head.path)
        if found is not None:
            self._note(found[0], answer, problem, correlation_id, perf_counter() - started_s)
        return answer

    async def respond(self, request: Request) -> Response | Streamed:
        """Answer any request: of a route, for a document, or for what is not there. Nothing in its path is escaped."""
        found = self.find(request.method, request.path)
        if found is None:
            return self.respond_elsewhere(request.method, request.path)
        return await self.answer(*found, request)

    def respond_elsewhere(self, method: str, path: str) -> Response:
        """Answer a request of no route, which takes no body: with a document, or a problem."""
        if path in PAGES:
            if method in PAGE_METHODS:
                return self._documents.page(path)
            allowed: Sequence[str] = PAGE_METHODS
        else:
            allowed = self.methods(path)
        if not allowed:
            return problem_response(make_problem(NOT_FOUND, "There is nothing here."))
        names = ", ".join(allowed)
        return problem_response(make_problem(NOT_ALLOWED, f"What is done here is {names}."), ("allow", names))

    async def answer(self, route: Route, path: dict[str, str], request: Request) -> Response | Streamed:
        """Do what a request asks for, and answer it."""
        started_s = perf_counter()
        correlation_id = correlation_id_of(request.headers, self._ids)
        answer: Response | Streamed
        problem: Problem | None = None
        try:
            caller = self._caller(route, request)
            if route.path.startswith(QUEUE_PATHS):
                caller.need_queue(path["name"])
            _check_path(path)
            call = Call(request, caller, path, correlation_id)
            if request.query:
                self._check_query(route, call)
            answer = await route.handler(call)
        except PenstockError as error:
            problem = problem_of(error)
        except _SHAPELESS as error:
            problem = problem_of_shape(error)
        except Exception:  # noqa: BLE001 - the outermost edge: a bug of ours becomes a plain 500
            _log.exception("Request %s failed", correlation_id)
            problem = make_problem(BUG, "It was not your fault. Please try again.")
        if problem is not None:
            answer = problem_response(problem, *_challenge(problem))
        answer.headers = [*answer.headers, (HEADER, correlation_id)]
        self._note(route, answer, problem, correlation_id, perf_counter() - started_s)
        return answer

    def _check_query(self, route: Route, call: Call) -> None:
        """Refuse what a route does not know, as in bodies: a filter that is spelt wrongly must not mean everything."""
        known = {parameter.name for parameter in route.parameters if parameter.place == "query"}
        for name in call.query():
            if name not in known:
                raise JobInvalid("There is no such parameter here.", name)

    def _note(
        self, route: Route, answer: Response | Streamed, problem: Problem | None, correlation_id: str, seconds: float
    ) -> None:
        """Count a request, and log it if it is worth it."""
        status = 200 if isinstance(answer, Streamed) else answer.status
        code = "" if problem is None else problem.type.rpartition(":")[2]
        self._counters.count(route.name, status, code, seconds)
        level = logging.WARNING if status >= 500 else logging.INFO if status in _TURNED_AWAY else logging.DEBUG
        if _log.isEnabledFor(level):
            told = {"request_id": correlation_id, "operation": route.name, "status": status, "code": code}
            _log.log(level, "request", extra={**told, "duration_ms": round(seconds * 1_000, 3)})


def _check_path(path: dict[str, str]) -> None:
    """Refuse what nothing can be named, and what not every store can look up: NUL, say."""
    for name, text in path.items():
        if not text.isprintable():
            raise JobInvalid(f"{name} in the path holds characters that are not printable.", name)


def _challenge(problem: Problem) -> tuple[tuple[str, str], ...]:
    """Return the header that has to come with a 401."""
    return _CHALLENGE if problem.status == 401 else ()
