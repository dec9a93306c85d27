"""A laboratory for each store, and DynamoDB as moto has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from penstock.lab.laboratory import Laboratory, LabSettings
from penstock.testing import RunningServer, serve
from tests.support.moto_server import moto_server
from tests.support.postgres import PostgresServer
from tests.support.postgres_fixture import postgres_server

__all__ = ["postgres_server"]


@pytest.fixture(scope="session")
def sqlite_laboratory() -> Iterator[Laboratory]:
    with Laboratory(LabSettings()) as laboratory:
        yield laboratory


@pytest.fixture(scope="session")
def postgres_laboratory(postgres_server: PostgresServer) -> Iterator[Laboratory]:
    name = postgres_server.create_database()
    with Laboratory(LabSettings(store=postgres_server.dsn(name))) as laboratory:
        yield laboratory
    postgres_server.drop_database(name)


@pytest.fixture(params=["sqlite", "postgres"])
def laboratory(request: pytest.FixtureRequest) -> Laboratory:
    """A laboratory with a driven clock, on each store."""
    found: Laboratory = request.getfixturevalue(f"{request.param}_laboratory")
    return found


@pytest.fixture
def server() -> Iterator[RunningServer]:
    """A server of the test's own, on a clock that nobody moves."""
    with serve() as server:
        yield server


@pytest.fixture
def sqs(server: RunningServer) -> Iterator[Any]:
    client = server.sqs_client(region_name="us-west-1")
    yield client
    client.close()


@pytest.fixture(scope="session")
def dynamodb_url() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def dynamodb(dynamodb_url: str) -> Iterator[Any]:
    client = boto3.client(
        "dynamodb",
        endpoint_url=dynamodb_url,
        region_name="us-west-1",
        aws_access_key_id="lab",
        aws_secret_access_key="lab",
    )
    yield client
    for table in client.list_tables()["TableNames"]:
        client.delete_table(TableName=table)
    client.close()
