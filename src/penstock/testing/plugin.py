"""Fixtures for users' tests: a running server, its clock, and a boto3 client of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

# Everything else is imported by the fixtures: pytest loads this module in every run, also for those who use none.
if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.testing.running import RunningServer, ServerClock


@pytest.fixture
def penstock_server() -> Generator[RunningServer]:
    """Serve SQS on a free port of loopback, for one test: with no queues, messages in memory, and a manual clock."""
    from penstock.testing.running import serve  # noqa: PLC0415 # As above.

    with serve() as server:
        yield server


@pytest.fixture
def penstock_clock(penstock_server: RunningServer) -> ServerClock:
    """Move the time of `penstock_server`: `penstock_clock.advance(seconds=30)`."""
    return penstock_server.clock


@pytest.fixture
def sqs(penstock_server: RunningServer) -> Generator[Any]:
    """Talk to `penstock_server` through boto3."""
    try:
        client = penstock_server.sqs_client()
    except ModuleNotFoundError as error:
        if error.name not in {"boto3", "botocore"}:
            raise
        pytest.fail(
            "The fixture sqs is a client of boto3, which is not installed: pip install 'penstock[sqs]'.", pytrace=False
        )
    yield client
    client.close()
