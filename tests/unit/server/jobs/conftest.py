"""The job API on a store in memory, called without the network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.limits import Limits
from penstock.engine import Engine
from penstock.server.jobs.access import Access, ApiToken, Caller, Scope, digest_of
from penstock.server.jobs.app import job_endpoint
from penstock.server.jobs.call import Streamed
from penstock.server.jobs.counters import JobCounters
from penstock.server.jobs.endpoint import Endpoint
from penstock.server.jobs.tracing import Tracing
from penstock.server.owner import OwnerRole
from penstock.store.ownership.owner import Owner
from penstock.store.port import Store
from penstock.testing import CountedIds, ManualClock
from penstock.wire.http import Request

QUEUE = "orders"


class Answer:
    """An answer that is no stream."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)


class Api:
    """A client of an endpoint, with these headers in every request."""

    def __init__(self, endpoint: Endpoint, **headers: str) -> None:
        self.endpoint = endpoint
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def with_headers(self, **headers: str) -> Api:
        return Api(self.endpoint, **{**self._headers, **headers})

    def bearing(self, token: str) -> Api:
        return self.with_headers(authorization=f"Bearer {token}")

    async def open(self, method: str, target: str, body: object = None, **headers: str) -> Any:
        """Ask for something, and return the endpoint's own answer."""
        path, _, query = target.partition("?")
        found = self.endpoint.find(method, path)
        assert found is not None, target
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = b"" if body is None else json.dumps(body).encode()
        return await self.endpoint.answer(*found, Request(method, path, query, {**self._headers, **named}, content))

    async def ask(self, method: str, target: str, body: object = None, **headers: str) -> Answer:
        answer = await self.open(method, target, body, **headers)
        assert not isinstance(answer, Streamed)
        return Answer(answer.status, dict(answer.headers), answer.body)

    async def enqueue(self, queue: str = QUEUE, **fields: Any) -> str:
        answer = await self.ask("POST", "/v1/jobs", {"queue": queue, "task": "greet", **fields})
        assert answer.status == 202, answer.body
        return str(answer.json()["id"])

    async def dequeue(self, count: int = 1, queue: str = QUEUE) -> list[dict[str, Any]]:
        answer = await self.ask("POST", "/v1/dequeue", {"queues": [queue], "count": count, "worker": "w"})
        assert answer.status == 200, answer.body
        return list(answer.json()["offers"])

    async def report(self, token: str, verb: str, body: object = None, **headers: str) -> Answer:
        return await self.ask("POST", f"/v1/leases/{token}/{verb}", {} if body is None else body, **headers)

    async def start(self) -> str:
        """Be offered one job, accept it, and return the lease's token."""
        [offer] = await self.dequeue()
        assert (await self.report(offer["token"], "accept")).status == 200
        return str(offer["token"])


def api_token(token: str, *scopes: Scope, **limits: Any) -> ApiToken:
    """Make a token that is named as it is spelt."""
    return ApiToken(caller=Caller(name=token, scopes=frozenset(scopes), **limits), digest=digest_of(token))


@pytest.fixture
async def engine(clock: ManualClock, ids: CountedIds, limits: Limits, failpoints: Failpoints) -> AsyncIterator[Engine]:
    opened = Engine.open("memory:", clock=clock, ids=ids, limits=limits, failpoints=failpoints, upkeep=False)
    async with opened as engine:
        yield engine


@pytest.fixture
def store(engine: Engine) -> Store:
    return engine.store


@pytest.fixture
def counted() -> JobCounters:
    return JobCounters()


@pytest.fixture
def access() -> Access:
    return Access()


@pytest.fixture
def tracing() -> Tracing | None:
    return None


@pytest.fixture
def role(tmp_path: Path) -> Iterator[OwnerRole]:
    """What a server has that owns a file, beyond what all have."""
    owner = Owner.take(str(tmp_path / "owned.db"))
    yield OwnerRole(owner, str(tmp_path / "owned.db.sock"))
    owner.release()


@pytest.fixture
def endpoint(
    engine: Engine, ids: CountedIds, access: Access, counted: JobCounters, tracing: Tracing | None, role: OwnerRole
) -> Endpoint:
    return job_endpoint(engine, access=access, counters=counted, tracing=tracing, more=role.routes())


@pytest.fixture
def api(endpoint: Endpoint) -> Api:
    return Api(endpoint)
