"""Fixtures for users' tests: apps under test, a running server, its clock, and a boto3 client of it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

# Everything else is imported by the fixtures: pytest loads this module in every run, also for those who use none.
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from penstock.client.app import Penstock
    from penstock.client.tasks.testing import AsyncTaskTester, TaskTester
    from penstock.testing.running import RunningServer, ServerClock


@pytest.fixture
def penstock_tasks() -> Generator[Callable[[Penstock], TaskTester]]:
    """Test the tasks of an app until the test ends, as `with app.testing() as t` does.

    Call it with the app: `t = penstock_tasks(app)`.
    """
    with contextlib.ExitStack() as stack:
        yield lambda app: stack.enter_context(app.testing())


@pytest.fixture
def penstock_async_tasks() -> Generator[Callable[[Penstock], AsyncTaskTester]]:
    """Test the tasks of an app until an async test ends, as `async with app.testing() as t` does.

    Call it with the app: `t = penstock_async_tasks(app)`.
    """
    with contextlib.ExitStack() as stack:

        def enter(app: Penstock) -> AsyncTaskTester:
            testing = app.testing()
            tester = testing.enter_async()
            stack.callback(testing.exit_async)
            return tester

        yield enter


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
