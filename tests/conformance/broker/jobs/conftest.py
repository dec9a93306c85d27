"""The job service on each store."""

from __future__ import annotations

import pytest

from penstock.broker.broker import Broker
from penstock.broker.jobs.jobs import Jobs


@pytest.fixture
def jobs(broker: Broker) -> Jobs:
    return broker.jobs
