"""An SQS endpoint on a store in memory, and clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from penstock.domain.failpoints import Failpoints
from penstock.domain.limits import Limits
from penstock.engine import Engine
from penstock.server.sqs import SqsEndpoint
from penstock.store.port import Store
from penstock.testing import CountedIds, ManualClock
from tests.support.sqs_client import Client, Refusal, respond
from tests.support.sqs_model import PROTOCOLS

__all__ = ["Client", "Refusal", "respond"]


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run these tests on one loop: there is no networking here, and so nothing in which loops differ."""
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture
async def engine(clock: ManualClock, limits: Limits, failpoints: Failpoints) -> AsyncIterator[Engine]:
    opened = Engine.open("memory:", clock=clock, ids=CountedIds(), limits=limits, failpoints=failpoints)
    async with opened as engine:
        yield engine


@pytest.fixture
def store(engine: Engine) -> Store:
    return engine.store


@pytest.fixture
def endpoint(engine: Engine) -> SqsEndpoint:
    return SqsEndpoint(engine)


@pytest.fixture(params=PROTOCOLS)
def client(request: pytest.FixtureRequest, endpoint: SqsEndpoint) -> Client:
    """A client in each of the two protocols."""
    return Client(endpoint, request.param)
