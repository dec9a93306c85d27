"""The tables in DynamoDB, with conditional writes."""

from __future__ import annotations

from typing import Any

from penstock.lab.tables.port import KEY


def create_table(dynamodb: Any, name: str) -> None:  # noqa: ANN401 - boto3 has no types for its clients
    """Make a table with the lab's key, paid by request, and return once it can be used."""
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}],
        KeySchema=[{"AttributeName": KEY, "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def delete_table(dynamodb: Any, name: str) -> None:  # noqa: ANN401 - as above
    """Remove a table, if it is there."""
    try:
        dynamodb.delete_table(TableName=name)
    except dynamodb.exceptions.ResourceNotFoundException:
        return


def empty_table(dynamodb: Any, name: str) -> None:  # noqa: ANN401 - as above
    """Remove all that a table holds."""
    for page in dynamodb.get_paginator("scan").paginate(TableName=name, ProjectionExpression=KEY):
        for item in page["Items"]:
            dynamodb.delete_item(TableName=name, Key={KEY: item[KEY]})


class DynamoStatus:
    """`message_status` in DynamoDB."""

    def __init__(self, dynamodb: Any, table: str) -> None:  # noqa: ANN401 - as above
        self._dynamodb = dynamodb
        self._table = table

    def mark_started(self, message_id: str) -> int:
        # `status` is a reserved word.
        answer = self._dynamodb.update_item(
            TableName=self._table,
            Key={KEY: {"S": message_id}},
            UpdateExpression="SET #status = if_not_exists(#status, :started) ADD attempts :one",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":started": {"S": "STARTED"}, ":one": {"N": "1"}},
            ReturnValues="UPDATED_NEW",
        )
        return int(answer["Attributes"]["attempts"]["N"])

    def mark_completed(self, message_id: str) -> None:
        self._dynamodb.update_item(
            TableName=self._table,
            Key={KEY: {"S": message_id}},
            UpdateExpression="SET #status = :completed",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":completed": {"S": "COMPLETED"}},
        )

    def close(self) -> None:
        """The client is shared; its owner closes it."""


class DynamoSideEffects:
    """`message_side_effects` in DynamoDB."""

    def __init__(self, dynamodb: Any, table: str) -> None:  # noqa: ANN401 - as above
        self._dynamodb = dynamodb
        self._table = table

    def exists(self, key: str) -> bool:
        found = self._dynamodb.get_item(TableName=self._table, Key={KEY: {"S": key}}, ConsistentRead=True)
        return "Item" in found

    def write(self, key: str, *, conditional: bool) -> bool:
        item = {"TableName": self._table, "Item": {KEY: {"S": key}}}
        if conditional:
            item["ConditionExpression"] = f"attribute_not_exists({KEY})"
        try:
            self._dynamodb.put_item(**item)
        except self._dynamodb.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def close(self) -> None:
        """As above."""
