"""A broker on each store."""

from __future__ import annotations

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import Messages
from penstock.broker.queues import Queues
from penstock.domain.limits import Limits
from penstock.store.port import Store
from penstock.testing import CountedIds, ManualClock


@pytest.fixture
def broker(store: Store, clock: ManualClock, ids: CountedIds, limits: Limits) -> Broker:
    return Broker(store, clock=clock, ids=ids, limits=limits)


@pytest.fixture
def messages(broker: Broker) -> Messages:
    return broker.messages


@pytest.fixture
def queues(broker: Broker) -> Queues:
    return broker.queues
