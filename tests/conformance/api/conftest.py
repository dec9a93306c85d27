"""The job API on each store, called over HTTP without a network."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from penstock.engine import Engine
from penstock.server.jobs.access import Access, ApiToken, Caller, Scope, digest_of
from penstock.server.jobs.app import JobApp, job_endpoint
from penstock.server.jobs.endpoint import Endpoint
from penstock.store.port import Store
from tests.support.stores import Home

BODY_BYTES_MAX = 1_048_576

TENANTS = ("acme", "bolt")
ADMIN, WORKER, BILLING = "of-the-admin", "of-the-workers", "of-the-queues-of-billing"

Connect = Callable[[str], httpx.AsyncClient]
"""Make a client with a token."""


def _token(token: str, *scopes: Scope, **limits: Any) -> ApiToken:
    return ApiToken(caller=Caller(name=token, scopes=frozenset(scopes), **limits), digest=digest_of(token))


@pytest.fixture
async def engine(home: Home) -> Engine:
    return await home.engine()


@pytest.fixture
def store(engine: Engine) -> Store:
    return engine.store


@pytest.fixture
def endpoint(engine: Engine) -> Endpoint:
    access = Access(
        [
            _token(ADMIN, *Scope),
            _token(WORKER, Scope.WORK),
            _token(BILLING, *Scope, queues=("billing.*",)),
            *(_token(tenant, Scope.ENQUEUE, Scope.READ, tenant=tenant) for tenant in TENANTS),
        ]
    )
    return job_endpoint(engine, access=access)


@pytest.fixture
async def connect(endpoint: Endpoint) -> AsyncIterator[Connect]:
    transport = httpx.ASGITransport(JobApp(endpoint, body_bytes_max=BODY_BYTES_MAX))
    async with contextlib.AsyncExitStack() as stack:
        clients: list[httpx.AsyncClient] = []

        def connect(token: str) -> httpx.AsyncClient:
            headers = {"Authorization": f"Bearer {token}"}
            clients.append(httpx.AsyncClient(transport=transport, base_url="http://penstock", headers=headers))
            return clients[-1]

        yield connect
        for client in clients:
            stack.push_async_callback(client.aclose)
