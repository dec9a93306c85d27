from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock import Penstock
from tests.client.faces import face_of
from tests.support.urls import (
    name,
    opened,
    postgres_node,
    postgres_server,
    postgres_url,
    shared_file,
    sqlite_server,
)

__all__ = ["name", "opened", "postgres_node", "postgres_server", "postgres_url", "shared_file", "sqlite_server"]


@pytest.fixture(params=["async", "sync"])
async def app(request: pytest.FixtureRequest, opened: Penstock) -> AsyncIterator[Any]:
    """A client by its async or its sync methods, both of which a test awaits."""
    async with opened:
        yield face_of(opened, request.param)
