"""The two tables on SQLite and on DynamoDB, and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.lab.checkers.evidence import Call
from penstock.lab.consumer_settings import ConsumerSettings
from penstock.lab.tables.dynamodb import DynamoStatus, create_table
from penstock.lab.tables.opening import Tables, open_tables, tables_url
from penstock.lab.tables.sqlite import SqliteLedger, create_tables

STATUS, SIDE_EFFECTS = "sqs-demo-happy-message-status", "sqs-demo-happy-message-side-effects"


def settings_of(url: str, queue_url: str = "http://127.0.0.1:9324/0/orders") -> ConsumerSettings:
    return ConsumerSettings(
        queue_url=queue_url,
        aws_region="us-west-1",
        message_status_table=STATUS,
        message_side_effects_table=SIDE_EFFECTS,
        tables_url=url,
    )


@pytest.fixture(params=["sqlite", "dynamodb"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    if request.param == "sqlite":
        url = f"sqlite:{tmp_path / 'tables.db'}"
        create_tables(tmp_path / "tables.db", status=STATUS, side_effects=SIDE_EFFECTS)
    else:
        dynamodb = request.getfixturevalue("dynamodb")
        url = f"dynamodb:{request.getfixturevalue('dynamodb_url')}"
        create_table(dynamodb, STATUS)
        create_table(dynamodb, SIDE_EFFECTS)
    opened = open_tables(settings_of(url))
    yield opened
    opened.close()


def test_attempts_are_counted(tables: Tables) -> None:
    assert tables.status is not None
    assert [tables.status.mark_started("m1") for _ in range(3)] == [1, 2, 3]
    assert tables.status.mark_started("m2") == 1
    tables.status.mark_completed("m1")
    assert tables.status.mark_started("m1") == 4


def test_a_conditional_write_is_made_once(tables: Tables) -> None:
    table = tables.side_effects
    assert table is not None
    assert not table.exists("m1")
    assert table.write("m1", conditional=True)
    assert table.exists("m1")
    assert not table.write("m1", conditional=True)
    assert table.write("m1", conditional=False)
    assert table.write("m2", conditional=True)


def test_an_item_has_the_key_and_its_fields(dynamodb: Any) -> None:
    create_table(dynamodb, STATUS)
    status = DynamoStatus(dynamodb, STATUS)
    status.mark_started("m1")
    status.mark_completed("m1")
    item = dynamodb.get_item(TableName=STATUS, Key={"message_id": {"S": "m1"}})["Item"]
    assert item == {"message_id": {"S": "m1"}, "status": {"S": "COMPLETED"}, "attempts": {"N": "1"}}


def test_the_ledger_keeps_duplicates(tmp_path: Path) -> None:
    calls = [Call(message="m1", t_ms=5, process="A", key="7"), Call(message="m1", t_ms=9, process="B", key="7")]
    ledger, other = SqliteLedger(tmp_path / "ledger.db"), SqliteLedger(tmp_path / "ledger.db")
    ledger.append(calls[0])
    other.append(calls[1])
    assert ledger.calls() == tuple(calls)
    ledger.close()
    other.close()


@pytest.mark.parametrize(
    ("queue_url", "given", "url"),
    [
        ("https://sqs.us-west-1.amazonaws.com/1/q", "", "dynamodb:"),
        ("http://127.0.0.1:9324/0/q", "", "sqlite:data/lab/tables.db"),
        ("https://sqs.us-west-1.amazonaws.com/1/q", "sqlite:x.db", "sqlite:x.db"),
        ("http://127.0.0.1:9324/0/q", "dynamodb:", "dynamodb:"),
    ],
)
def test_where_the_tables_are(queue_url: str, given: str, url: str) -> None:
    assert tables_url(settings_of(given, queue_url)) == url


def test_without_names_there_are_no_tables() -> None:
    assert open_tables(ConsumerSettings(queue_url="http://127.0.0.1:9324/0/q")) == Tables(None, None)


def test_a_name_that_is_no_name_of_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no name of a table"):
        create_tables(tmp_path / "tables.db", status='"; DROP', side_effects=SIDE_EFFECTS)
