from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.dynamodb.models import dynamodb_backends

from penstock import DynamoRecords, Idempotency, PostgresRecords, SQLiteRecords
from penstock.client.idempotency.records import Records
from penstock.domain.failpoints import Failpoints
from penstock.testing import ManualClock
from tests.idempotency.stores import Opener
from tests.support.moto_server import moto_server
from tests.support.postgres_fixture import postgres_server

__all__ = ["postgres_server"]

REGION = "eu-central-1"
SHARED_TABLE = "records"
_tables = itertools.count(1)


@pytest.fixture(scope="session")
def dynamo_url() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture(scope="session")
def dynamo_client(dynamo_url: str) -> Iterator[Any]:
    client = boto3.client(
        "dynamodb",
        endpoint_url=dynamo_url,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    yield client
    client.close()


@pytest.fixture
def dynamo(dynamo_client: Any) -> Iterator[Any]:
    """A client of a DynamoDB without tables."""
    yield dynamo_client
    for table in dynamo_client.list_tables()["TableNames"]:
        if table != SHARED_TABLE:
            dynamo_client.delete_table(TableName=table)


@pytest.fixture(scope="session")
def shared_table(dynamo_client: Any) -> Any:
    """The items of a table for all tests that need no more than an empty one, in the memory of moto."""
    DynamoRecords(dynamo_client, table=SHARED_TABLE).create()
    return dynamodb_backends[DEFAULT_ACCOUNT_ID][REGION].tables[SHARED_TABLE].items


@pytest.fixture
def shared_dynamo(dynamo_client: Any, shared_table: Any) -> Iterator[Any]:
    """A client of a DynamoDB that has this table."""
    yield dynamo_client
    shared_table.clear()


@pytest.fixture(scope="session")
def shared_dsn(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a database for all tests that need no more than an empty table."""
    server = request.getfixturevalue("postgres_server")
    name = server.create_database()
    yield server.dsn(name)
    server.drop_database(name)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an empty database."""
    server = request.getfixturevalue("postgres_server")
    name = server.create_database()
    yield server.dsn(name)
    server.drop_database(name)


@pytest.fixture(params=["sqlite", "postgres", "dynamo"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same records, as often as it is asked to, each time as another process would."""
    opened: list[Records] = []
    make: Callable[..., Records]
    match request.param:
        case "sqlite":
            make = lambda **more: SQLiteRecords(tmp_path / "records.db", **more)  # noqa: E731
        case "postgres":
            dsn = request.getfixturevalue("shared_dsn")
            table = f"records_{next(_tables)}"
            make = lambda **more: PostgresRecords(dsn, **{"table": table, **more})  # noqa: E731
        case _:
            client = request.getfixturevalue("shared_dynamo")
            make = lambda **more: DynamoRecords(client, **{"table": SHARED_TABLE, "skew": 0, **more})  # noqa: E731

    def open_records(**more: Any) -> Records:
        opened.append(make(**more))
        return opened[-1]

    yield open_records
    for records in opened:
        records.close()


@pytest.fixture
def records(opener: Opener, clock: ManualClock) -> Records:
    return opener(clock=clock)


@pytest.fixture
def idem(records: Records, clock: ManualClock, failpoints: Failpoints) -> Iterator[Idempotency]:
    with Idempotency(records, clock=clock, failpoints=failpoints, scope="test") as made:
        yield made
