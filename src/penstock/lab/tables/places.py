"""Where tables are: they are made, looked at, emptied and removed in the same way in a SQLite file and in DynamoDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from penstock.lab.endpoints import client
from penstock.lab.tables import dynamodb, sqlite

FILE = "data/lab/tables.db"
"""The SQLite file of the tables that `penstock lab up` makes, and that a consumer uses unless it is told another."""


class Table(NamedTuple):
    """A table of a scenario, and which of its two it is."""

    name: str
    kind: Literal["status", "side-effects"]


class TablePlace(Protocol):
    """A SQLite file, or a DynamoDB endpoint."""

    def key_of(self, name: str) -> str | None:
        """Return the key of a table, as `HASH message_id`; None if there is no such table."""

    def create(self, table: Table) -> None:
        """Make a table that is not there."""

    def empty(self, name: str) -> None:
        """Remove all that a table holds."""

    def remove(self, name: str) -> None:
        """Remove a table, if it is there."""

    def close(self) -> None:
        """Let go of what it holds."""


def table_place(url: str, *, region: str | None, profile: str | None = None) -> TablePlace:
    """Return the place that a URL names: `sqlite:PATH`, `dynamodb:` or `dynamodb:ENDPOINT`."""
    scheme, _, place = url.partition(":")
    if scheme == "sqlite":
        return SqlitePlace(place)
    return DynamoPlace(client("dynamodb", endpoint=place or None, region=region, profile=profile))


class SqlitePlace:
    """Tables in a file, which is made with the first of them."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)

    def key_of(self, name: str) -> str | None:
        return sqlite.key_of(self._path, name) if self._path.exists() else None

    def create(self, table: Table) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if table.kind == "status":
            sqlite.create_status(self._path, table.name)
        else:
            sqlite.create_side_effects(self._path, table.name)

    def empty(self, name: str) -> None:
        sqlite.empty_table(self._path, name)

    def remove(self, name: str) -> None:
        if self._path.exists():
            sqlite.drop_tables(self._path, name)

    def close(self) -> None:
        """It holds nothing."""


class DynamoPlace:
    """Tables in DynamoDB."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - boto3 has no types for its clients
        self._client = client

    def key_of(self, name: str) -> str | None:
        try:
            table = self._client.describe_table(TableName=name)["Table"]
        except self._client.exceptions.ResourceNotFoundException:
            return None
        return ", ".join(f"{part['KeyType']} {part['AttributeName']}" for part in table["KeySchema"])

    def create(self, table: Table) -> None:
        dynamodb.create_table(self._client, table.name)

    def empty(self, name: str) -> None:
        dynamodb.empty_table(self._client, name)

    def remove(self, name: str) -> None:
        dynamodb.delete_table(self._client, name)

    def close(self) -> None:
        self._client.close()
