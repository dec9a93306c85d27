"""An SQS endpoint on each store, and clients of it in both protocols."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.domain.limits import Limits
from penstock.engine.engine import Engine
from penstock.server.sqs import SqsEndpoint
from penstock.store.port import Store
from penstock.testing import CountedIds, ManualClock
from tests.support.sqs_client import Client
from tests.support.sqs_model import PROTOCOLS


@pytest.fixture
async def engine(store: Store, clock: ManualClock, ids: CountedIds, limits: Limits) -> AsyncIterator[Engine]:
    async with Engine(store, clock=clock, ids=ids, limits=limits) as engine:
        yield engine


@pytest.fixture
def endpoint(engine: Engine, limits: Limits) -> SqsEndpoint:
    return SqsEndpoint(engine, limits=limits)


@pytest.fixture(params=PROTOCOLS)
def client(request: pytest.FixtureRequest, endpoint: SqsEndpoint) -> Client:
    """A client in each of the two protocols."""
    return Client(endpoint, request.param)
