"""A client of DynamoDB for each process, and what its errors mean."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from penstock.client.errors import RecordsInvalid, RecordsUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY = "message_id"
TTL = "expires_at"
"""The attribute that DynamoDB's own expiry reads, in seconds since the epoch."""

_CREDENTIALS = {
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
}


class DynamoClient:
    """A boto3 client: one that was given, one from a function that was given, or one made of boto3's own settings."""

    def __init__(self, given: Any | Callable[[], Any] | None) -> None:  # noqa: ANN401 - boto3 has no types
        self._given: Any = given
        self._pid = 0
        self._client: Any = None

    def get(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """Return this process's client; raises `RecordsInvalid` where boto3 is not installed or not configured."""
        if self._client is None or self._pid != os.getpid():
            self._client = self._make(forked=self._client is not None)
            self._pid = os.getpid()
        return self._client

    @contextlib.contextmanager
    def translated(self, table: str) -> Iterator[None]:
        """Raise errors of boto3 as ours. A condition that failed stays what it is."""
        _driver()
        import botocore.exceptions as boto  # noqa: PLC0415 - only who uses it needs it

        try:
            yield
        except boto.ClientError as error:
            if conflict(error):
                raise
            raise _meaning(error, table) from error
        except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.NoRegionError) as error:
            raise RecordsUnavailable(f"DynamoDB cannot be asked about the table {table}: {error}") from error
        except (boto.BotoCoreError, boto.HTTPClientError) as error:
            raise RecordsUnavailable(f"DynamoDB cannot be reached: {error}") from error

    def check(self, table: str) -> None:
        """Read an item that is not there: that needs the table, its key, and the right to read."""
        with self.translated(table):
            self.get().get_item(TableName=table, Key={KEY: {"S": "penstock:check"}}, ConsistentRead=True)

    def create(self, table: str) -> None:
        """Create a table if it is missing, paid by request, with expiry; and check it."""
        with self.translated(table):
            client = self.get()
            try:
                client.create_table(
                    TableName=table,
                    AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}],
                    KeySchema=[{"AttributeName": KEY, "KeyType": "HASH"}],
                    BillingMode="PAY_PER_REQUEST",
                )
            except client.exceptions.ResourceInUseException:
                self.check(table)
                return
            client.get_waiter("table_exists").wait(TableName=table)
            client.update_time_to_live(TableName=table, TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL})

    def _make(self, *, forked: bool) -> Any:  # noqa: ANN401 - boto3 has no types
        if self._given is None:
            # A session of its own: boto3's shared one must not be used by two threads at once.
            return _driver().session.Session().client("dynamodb")
        if not hasattr(self._given, "get_item"):
            return self._given()
        if forked:
            # Its idle connections are the parent's: they are closed here, and others are opened.
            self._given.close()
        return self._given


def _driver() -> Any:  # noqa: ANN401 - boto3 has no types
    try:
        import boto3  # noqa: PLC0415 - only who uses it needs it
    except ImportError:
        raise RecordsInvalid("DynamoDB needs boto3: pip install 'penstock[dynamodb]'.") from None
    return boto3


def conflict(error: Any) -> bool:  # noqa: ANN401 - boto3 has no types
    """Return whether an error says that a condition did not hold."""
    found: bool = error.response.get("Error", {}).get("Code") == "ConditionalCheckFailedException"
    return found


def _meaning(error: Any, table: str) -> RecordsInvalid | RecordsUnavailable:  # noqa: ANN401 - boto3 has no types
    code = error.response.get("Error", {}).get("Code", "")
    if code == "ResourceNotFoundException":
        return RecordsInvalid(f"DynamoDB has no table {table} in this account and region. create() makes it.")
    if code == "ValidationException":
        return RecordsInvalid(
            f"The table {table} needs the key {KEY} (a string, as HASH), and no RANGE key. DynamoDB says: {error}"
        )
    if code in _CREDENTIALS:
        return RecordsUnavailable(f"DynamoDB refuses the credentials for the table {table}: {error}")
    return RecordsUnavailable(f"DynamoDB cannot use the table {table}: {error}")
