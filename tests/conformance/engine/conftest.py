"""A engine on each store."""

from __future__ import annotations

import pytest

from penstock.domain.limits import Limits
from penstock.engine.engine import Engine
from penstock.engine.messages import Messages
from penstock.engine.queues import Queues
from penstock.store.port import Store
from penstock.testing import CountedIds, ManualClock


@pytest.fixture
def engine(store: Store, clock: ManualClock, ids: CountedIds, limits: Limits) -> Engine:
    return Engine(store, clock=clock, ids=ids, limits=limits)


@pytest.fixture
def messages(engine: Engine) -> Messages:
    return engine.messages


@pytest.fixture
def queues(engine: Engine) -> Queues:
    return engine.queues
