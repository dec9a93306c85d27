"""Benchmarks that are too short to tell anything, on real stores."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

import pytest
from rich.console import Console

from benchmarks.progress import Narrator
from penstock.engine import Engine
from penstock.store.port import Store
from tests.support.postgres_fixture import postgres_server

__all__ = ["postgres_server"]


@pytest.fixture
def narrator() -> Narrator:
    return Narrator(Console(file=io.StringIO()))


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with Engine.open("memory:", upkeep=False) as engine:
        yield engine.store
