"""The fixture `postgres_server`; a conftest imports it to have it."""

from __future__ import annotations

import pytest

from tests.support.postgres import PostgresServer, PostgresUnavailable, shared_server


@pytest.fixture(scope="session")
def postgres_server() -> PostgresServer:
    """This process's PostgreSQL server (one for each xdist worker); skips with the reason where there is none."""
    try:
        return shared_server()
    except PostgresUnavailable as error:
        pytest.skip(f"no PostgreSQL here: {error}")
