"""Records in a table of DynamoDB, by conditional writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client.durations import Duration, milliseconds
from penstock.client.errors import RecordsInvalid, RecordsUnavailable
from penstock.client.idempotency.dynamo_client import KEY, TTL, DynamoClient, conflict
from penstock.client.idempotency.records import (
    COMPLETED,
    ROUNDS_MAX,
    STARTED,
    Completed,
    Held,
    Mismatched,
    Started,
    Taken,
)
from penstock.domain.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.domain.clock import Clock

STATUS_TABLE = "message-status"

_HELD = "#owner = :owner AND #status = :started"
_NAMES = {"#owner": "owner", "#status": "status"}
_FREE = f"attribute_not_exists({KEY}) OR expires_at_ms <= :now"


class DynamoRecords:
    """Records in a table of DynamoDB, with `message_id` as its key. It needs `pip install 'penstock[dynamodb]'`.

    `client` is a boto3 client, a function that makes one, or nothing: then boto3's own settings count. `create()` makes
    the table; otherwise it must be there. DynamoDB gives no time to compare with, so the clocks of your machines count:
    a lease is over only when it ended `skew` ago, so that a clock which is ahead by less frees no key early.
    """

    RESULT_BYTES_MAX = 390_000
    """What an item, of at most 400 KiB, has room for besides its other attributes."""

    def __init__(
        self,
        client: Any | Callable[[], Any] | None = None,  # noqa: ANN401 - boto3 has no types
        *,
        table: str = STATUS_TABLE,
        skew: Duration = 5,
        clock: Clock | None = None,
    ) -> None:
        self._dynamo = DynamoClient(client)
        self._table = table
        self._skew_ms = milliseconds(skew, "skew")
        self._clock = clock or SystemClock()
        self._ready = False

    def __repr__(self) -> str:
        return f"DynamoRecords(table={self._table!r})"

    def create(self) -> None:
        """Create the table if it is missing, with expiry by the attribute `expires_at`, and check it."""
        self._dynamo.create(self._table)
        self._ready = True

    def check(self) -> None:
        """Check the table, its key and the credentials."""
        self._dynamo.check(self._table)
        self._ready = True

    def start(self, key: str, owner: str, *, lease_ms: int, ttl_ms: int, fingerprint: str) -> Taken:
        """Take a key if nobody holds it and it is not completed."""
        seen = self._insert(key, owner, lease_ms, ttl_ms, fingerprint)
        for _ in range(ROUNDS_MAX):
            if seen is None:
                return Started(1)
            if not {"owner", "attempts", "lease_until_ms", "expires_at_ms"} <= set(seen):
                raise RecordsInvalid(
                    f"The item {key} in the table {self._table} was not written by Idempotency: give it another table."
                )
            now_ms = self._clock.wall_ms()
            taken = self._told(seen, owner, fingerprint, now_ms)
            if taken is not None:
                return taken
            if _number(seen, "expires_at_ms") <= now_ms:
                seen = self._insert(key, owner, lease_ms, ttl_ms, fingerprint)
                continue
            attempts = self._take_over(seen, key, owner, lease_ms, ttl_ms, fingerprint)
            if attempts:
                return Started(attempts)
            seen = self._look(key) or self._insert(key, owner, lease_ms, ttl_ms, fingerprint)
        raise RecordsUnavailable(f"The record of {key} changes too often to be read.")

    def renew(self, key: str, owner: str, *, lease_ms: int, ttl_ms: int) -> bool:
        """Extend a lease."""
        now_ms = self._clock.wall_ms()
        _, seen = self._update(
            key,
            "SET lease_until_ms = :until, expires_at_ms = :expires, expires_at = :seconds",
            _HELD,
            {
                ":owner": {"S": owner},
                ":started": {"S": STARTED},
                ":until": {"N": str(now_ms + lease_ms)},
                **_expiry(now_ms + ttl_ms),
            },
        )
        return seen is None

    def complete(self, key: str, owner: str, result: bytes | None, *, ttl_ms: int) -> bool:
        """Record a result."""
        _, seen = self._update(
            key,
            "SET #status = :completed, #result = :result, lease_until_ms = :zero, expires_at_ms = :expires, "
            "expires_at = :seconds",
            _HELD,
            {
                ":owner": {"S": owner},
                ":started": {"S": STARTED},
                ":completed": {"S": COMPLETED},
                ":result": {"NULL": True} if result is None else {"B": result},
                ":zero": {"N": "0"},
                **_expiry(self._clock.wall_ms() + ttl_ms),
            },
            {**_NAMES, "#result": "result"},
        )
        # boto3 repeats a call whose answer was lost: then the record is completed, and by this owner.
        return seen is None or (_text(seen, "status"), _text(seen, "owner")) == (COMPLETED, owner)

    def release(self, key: str, owner: str) -> bool:
        """End a lease."""
        values = {":owner": {"S": owner}, ":started": {"S": STARTED}, ":zero": {"N": "0"}, ":nobody": {"S": "-"}}
        _, seen = self._update(key, "SET #owner = :nobody, lease_until_ms = :zero", _HELD, values)
        return seen is None

    def forget(self, key: str) -> None:
        """Remove a record."""
        client = self._client()
        with self._dynamo.translated(self._table):
            client.delete_item(TableName=self._table, Key={KEY: {"S": key}})

    def sweep(self, limit: int) -> int:  # noqa: ARG002 - as the port has it
        """Do nothing: DynamoDB removes what has expired, and until then it counts as absent."""
        return 0

    def close(self) -> None:
        """Do nothing: a client that was given is its owner's, and ours has only idle connections."""

    # -- calls ------------------------------------------------------------------------------------

    def _client(self) -> Any:  # noqa: ANN401 - boto3 has no types
        if not self._ready:
            self.check()
        return self._dynamo.get()

    def _insert(self, key: str, owner: str, lease_ms: int, ttl_ms: int, fingerprint: str) -> dict[str, Any] | None:
        """Begin a record where there is none, or an expired one. Return the one that is there otherwise."""
        client = self._client()
        now_ms = self._clock.wall_ms()
        expires_at_ms = now_ms + ttl_ms
        item = {
            KEY: {"S": key},
            "status": {"S": STARTED},
            "owner": {"S": owner},
            "attempts": {"N": "1"},
            "lease_until_ms": {"N": str(now_ms + lease_ms)},
            "expires_at_ms": {"N": str(expires_at_ms)},
            TTL: {"N": _seconds(expires_at_ms)},
            **({"fingerprint": {"S": fingerprint}} if fingerprint else {}),
        }
        with self._dynamo.translated(self._table):
            try:
                client.put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression=_FREE,
                    ExpressionAttributeValues={":now": {"N": str(now_ms)}},
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except client.exceptions.ConditionalCheckFailedException as error:
                return self._seen(error, key)
        return None

    def _take_over(
        self, seen: dict[str, Any], key: str, owner: str, lease_ms: int, ttl_ms: int, fingerprint: str
    ) -> int:
        """Take a key whose lease is over, if its record is as it was seen. Return the attempts, or 0."""
        now_ms = self._clock.wall_ms()
        values = {
            ":owner": {"S": owner},
            ":started": {"S": STARTED},
            ":one": {"N": "1"},
            ":until": {"N": str(now_ms + lease_ms)},
            ":had_owner": seen["owner"],
            ":had_until": seen["lease_until_ms"],
            ":had_attempts": seen["attempts"],
            **_expiry(now_ms + ttl_ms),
        }
        change = (
            "SET #owner = :owner, lease_until_ms = :until, expires_at_ms = :expires, expires_at = :seconds, "
            "attempts = attempts + :one"
        )
        if fingerprint and not _text(seen, "fingerprint"):
            change += ", fingerprint = :fingerprint"
            values[":fingerprint"] = {"S": fingerprint}
        condition = (
            "#status = :started AND #owner = :had_owner AND lease_until_ms = :had_until AND attempts = :had_attempts"
        )
        new, found = self._update(key, change, condition, values)
        if found is None:
            return _number(new, "attempts")
        # boto3 repeats a call whose answer was lost: then the record is ours already.
        return _number(found, "attempts") if _text(found, "owner") == owner else 0

    def _update(
        self, key: str, change: str, condition: str, values: dict[str, Any], names: dict[str, str] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Change a record if a condition holds: return the new one and None, or the one that is there instead."""
        client = self._client()
        with self._dynamo.translated(self._table):
            try:
                answer = client.update_item(
                    TableName=self._table,
                    Key={KEY: {"S": key}},
                    UpdateExpression=change,
                    ConditionExpression=condition,
                    ExpressionAttributeNames=names or _NAMES,
                    ExpressionAttributeValues=values,
                    ReturnValues="ALL_NEW",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except client.exceptions.ConditionalCheckFailedException as error:
                return {}, self._seen(error, key) or {}
        new: dict[str, Any] = answer["Attributes"]
        return new, None

    def _seen(self, error: Any, key: str) -> dict[str, Any] | None:  # noqa: ANN401 - boto3 has no types
        assert conflict(error)
        found: dict[str, Any] | None = error.response.get("Item")
        return found or self._look(key)

    def _look(self, key: str) -> dict[str, Any] | None:
        with self._dynamo.translated(self._table):
            answer = self._client().get_item(TableName=self._table, Key={KEY: {"S": key}}, ConsistentRead=True)
        item: dict[str, Any] | None = answer.get("Item")
        return item

    def _told(self, seen: dict[str, Any], owner: str, fingerprint: str, now_ms: int) -> Taken | None:
        """Return what a record means for who asks; None if its key can be taken."""
        left_ms = _number(seen, "expires_at_ms") - now_ms
        if left_ms <= 0:
            return None
        known = _text(seen, "fingerprint")
        if known and fingerprint and known != fingerprint:
            return Mismatched()
        if _text(seen, "status") == COMPLETED:
            result = seen.get("result", {}).get("B")
            return Completed(None if result is None else bytes(result), _number(seen, "attempts"), left_ms, known)
        if _text(seen, "owner") == owner:
            return Started(_number(seen, "attempts"))
        until_ms = _number(seen, "lease_until_ms")
        # What was given up ended at 0, and needs no allowance for clocks.
        held_ms = until_ms + self._skew_ms - now_ms if until_ms else 0
        return Held(held_ms) if held_ms > 0 else None


def _expiry(at_ms: int) -> dict[str, Any]:
    return {":expires": {"N": str(at_ms)}, ":seconds": {"N": _seconds(at_ms)}}


def _seconds(at_ms: int) -> str:
    return str(-(-at_ms // 1_000))


def _number(item: dict[str, Any], name: str) -> int:
    return int(item.get(name, {}).get("N", 0))


def _text(item: dict[str, Any], name: str) -> str:
    return str(item.get(name, {}).get("S", ""))
