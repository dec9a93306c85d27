from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack

import pytest
import uvloop

from tests.unit.server.serving import Desk, Serve, serving


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run these tests on the loop that the server runs on, and on asyncio's own, which writes at another moment."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def serve(desk: Desk) -> AsyncIterator[Serve]:
    """Start servers in this process that answer as the desk does; they are stopped in the end."""
    async with AsyncExitStack() as stack:

        async def start(**settings: object) -> object:
            return await stack.enter_async_context(serving(desk, **settings))  # type: ignore[arg-type]

        yield start  # type: ignore[misc]
