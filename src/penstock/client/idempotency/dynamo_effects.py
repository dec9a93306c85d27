"""The second table of the two-table pattern: which effects have happened, for `verify` to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.durations import Duration, milliseconds
from penstock.client.idempotency.dynamo_client import KEY, TTL, DynamoClient
from penstock.client.idempotency.verification import Happened
from penstock.client.tasks.codec import encode_value
from penstock.domain.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.domain.clock import Clock

EFFECTS_TABLE = "message-side-effects"


class DynamoEffects:
    """Effects that have happened, in a table of DynamoDB with `message_id` as its key; each is recorded once.

    It stands for the record that the other system keeps, such as a list of charges. Use it where the effect is itself
    a write to DynamoDB, or where the other system cannot be asked.
    """

    def __init__(
        self,
        client: Any | Callable[[], Any] | None = None,  # noqa: ANN401 - boto3 has no types
        *,
        table: str = EFFECTS_TABLE,
        ttl: Duration = "30d",
        clock: Clock | None = None,
    ) -> None:
        self._dynamo = DynamoClient(client)
        self._table = table
        self._ttl_ms = milliseconds(ttl, "ttl")
        self._clock = clock or SystemClock()

    def create(self) -> None:
        """Create the table if it is missing, with expiry by the attribute `expires_at`, and check it."""
        self._dynamo.create(self._table)

    def record(self, key: str, result: object = None) -> bool:
        """Record that an effect has happened; return False if it was recorded before, and change nothing then."""
        now_ms = self._clock.wall_ms()
        with self._dynamo.translated(self._table):
            client = self._dynamo.get()
            try:
                client.put_item(
                    TableName=self._table,
                    Item={
                        KEY: {"S": key},
                        "status": {"S": "COMPLETED"},
                        "result": {"B": encode_value(result)},
                        "recorded_at_ms": {"N": str(now_ms)},
                        "expires_at_ms": {"N": str(now_ms + self._ttl_ms)},
                        TTL: {"N": str(-(-(now_ms + self._ttl_ms) // 1_000))},
                    },
                    ConditionExpression=f"attribute_not_exists({KEY}) OR expires_at_ms <= :now",
                    ExpressionAttributeValues={":now": {"N": str(now_ms)}},
                )
            except client.exceptions.ConditionalCheckFailedException:
                return False
        return True

    def find(self, key: str) -> Happened[Any] | None:
        """Return an effect that has happened, as `verify` answers; otherwise None."""
        with self._dynamo.translated(self._table):
            answer = self._dynamo.get().get_item(TableName=self._table, Key={KEY: {"S": key}}, ConsistentRead=True)
        item = answer.get("Item")
        if item is None or int(item.get("expires_at_ms", {}).get("N", 0)) <= self._clock.wall_ms():
            return None
        return Happened(msgspec.json.decode(bytes(item["result"]["B"])))
