from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.end_to_end.jobs.api import Api
from tests.end_to_end.running import STOP_TIMEOUT_S, RunningServer


@pytest.fixture
def api(shared_server: RunningServer, queue_name: str) -> Iterator[Api]:
    """The job API of a server process, and a queue of the test's own."""
    # No proxy that the environment names leads back to this machine's loopback.
    with httpx.Client(base_url=shared_server.url, timeout=STOP_TIMEOUT_S, trust_env=False) as client:
        yield Api(client, queue_name)


@pytest.fixture
def own_api(server: RunningServer, queue_name: str) -> Iterator[Api]:
    """The job API of a server process that no other test has to do with."""
    with httpx.Client(base_url=server.url, timeout=STOP_TIMEOUT_S, trust_env=False) as client:
        yield Api(client, queue_name)
