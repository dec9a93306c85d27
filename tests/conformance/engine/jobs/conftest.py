"""The job service on each store."""

from __future__ import annotations

import pytest

from penstock.engine.engine import Engine
from penstock.engine.jobs.jobs import Jobs


@pytest.fixture
def jobs(engine: Engine) -> Jobs:
    return engine.jobs
