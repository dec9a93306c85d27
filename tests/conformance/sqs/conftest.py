"""An SQS endpoint on each store, and clients of it in both protocols."""

from __future__ import annotations

import pytest

from penstock.engine import Engine
from penstock.server.sqs import SqsEndpoint
from penstock.store.port import Store
from tests.support.sqs_client import Client
from tests.support.sqs_model import PROTOCOLS
from tests.support.stores import Home


@pytest.fixture
async def engine(home: Home) -> Engine:
    return await home.engine(upkeep=True)


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
