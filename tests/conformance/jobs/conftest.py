"""Jobs of the store that a test runs on, and a queue for them."""

from __future__ import annotations

import pytest

from penstock.domain.job_queue import JobQueue
from penstock.store.job_port import JobStore
from penstock.store.port import Store
from tests.support.job_steps import make_queue


@pytest.fixture
def jobs(store: Store) -> JobStore:
    return store.jobs


@pytest.fixture
async def queue(jobs: JobStore) -> JobQueue:
    return await make_queue(jobs)
