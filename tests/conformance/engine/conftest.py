"""An engine on each store."""

from __future__ import annotations

import pytest

from penstock.engine import Engine
from penstock.engine.messages import Messages
from penstock.engine.queues import Queues
from penstock.store.port import Store
from tests.support.stores import Home


@pytest.fixture
async def engine(home: Home) -> Engine:
    return await home.engine()


@pytest.fixture
def store(engine: Engine) -> Store:
    return engine.store


@pytest.fixture
def messages(engine: Engine) -> Messages:
    return engine.messages


@pytest.fixture
def queues(engine: Engine) -> Queues:
    return engine.queues
