"""A server on a machine whose clock is set, on each store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.domain.clock import Clock
from penstock.engine import Engine
from penstock.store.port import Store
from tests.support.machine import Machine
from tests.support.stores import Home, Opener, PostgresDatabase, Reopen


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def new_clock(machine: Machine, opener: Opener) -> Callable[[], Clock]:
    """Make the clock of a server that starts."""
    return machine.clock_beside_database if isinstance(opener, PostgresDatabase) else machine.clock


@pytest.fixture
def clock(new_clock: Callable[[], Clock]) -> Clock:
    return new_clock()


@pytest.fixture
def reopen(home: Home, store: Store, new_clock: Callable[[], Clock]) -> Reopen:
    """Stop the server and start it again: each process has a clock of its own."""

    async def reopen() -> Store:
        await home.close()
        return await home.open(clock=new_clock())

    return reopen


@pytest.fixture
async def engine(home: Home) -> Engine:
    return await home.engine()


@pytest.fixture
def store(engine: Engine) -> Store:
    return engine.store
