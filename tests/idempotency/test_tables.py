"""Tables of records: made on first use, checked before anything runs, swept while they are used."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import boto3
import pytest
from botocore.stub import Stubber

from penstock import DynamoEffects, DynamoRecords, Happened, Idempotency, PostgresRecords, SQLiteRecords, errors
from penstock.client.idempotency import postgres_records, sqlite_records
from penstock.client.idempotency.records import Completed, Held, Records, Started
from penstock.testing import ManualClock
from tests.idempotency.stores import DAY_MS, LEASE_MS, later


def never(order: int) -> int:
    raise AssertionError("it must not run")


def refuse(records: Records, error: type[errors.IdempotencyError], message: str) -> None:
    """Check that neither a check nor a call gets anywhere."""
    idem = Idempotency(records)
    for call in (idem.check, lambda: idem(key="{order}", scope="s")(never)(1)):
        with pytest.raises(error, match=message):
            call()
    idem.close()


def execute(dsn: str, statement: str) -> list[Any]:
    async def run() -> list[Any]:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()

    return asyncio.run(run())


# -- libraries ------------------------------------------------------------------------------------


def run_python(program: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=50)


def test_the_libraries_of_other_stores_are_not_loaded() -> None:
    run_python(
        "import sys, penstock; penstock.Idempotency(penstock.SQLiteRecords(':memory:')).check(); "
        "penstock.PostgresRecords('postgresql://h/d'); penstock.DynamoRecords(); penstock.DynamoEffects(); "
        "assert not {'asyncpg', 'boto3', 'botocore', 'penstock.engine', 'penstock.server'} & set(sys.modules)"
    )


@pytest.mark.parametrize(
    ("library", "records", "extra"),
    [("asyncpg", "PostgresRecords('postgresql://h/d')", "postgres"), ("boto3", "DynamoRecords()", "dynamodb")],
)
def test_a_missing_library_is_named_with_its_extra(library: str, records: str, extra: str) -> None:
    run_python(
        f"import sys; sys.modules[{library!r}] = None\n"
        f"from penstock import {records.partition('(')[0]}, errors\n"
        f"try: {records}.check()\n"
        f"except errors.RecordsInvalid as error: assert 'penstock[{extra}]' in str(error), error\n"
        "else: raise AssertionError"
    )


# -- SQLite ---------------------------------------------------------------------------------------


def test_a_sqlite_file_and_its_table_are_made_on_first_use(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    SQLiteRecords(path)
    assert not path.exists()
    SQLiteRecords(path, table='odd "name').create()
    with sqlite3.connect(path) as db:
        assert ('odd "name',) in db.execute("SELECT name FROM sqlite_schema").fetchall()
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


SQLITE_COLUMNS = "key, state, owner, attempts, boot, lease_until_ms, expires_at_ms, fingerprint, result"


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE penstock_idempotency (key TEXT)",
        f"CREATE TABLE penstock_idempotency ({SQLITE_COLUMNS})",
        "CREATE VIEW penstock_idempotency AS SELECT 1 AS key",
    ],
)
def test_a_sqlite_table_of_another_kind_is_refused(tmp_path: Path, table: str) -> None:
    path = tmp_path / "other.db"
    db = sqlite3.connect(path)
    db.execute(table)
    db.commit()
    db.close()
    refuse(SQLiteRecords(path), errors.RecordsInvalid, "not one of idempotency records: it needs the columns key")


def test_what_is_no_sqlite_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("hello " * 1_000)
    refuse(SQLiteRecords(path), errors.RecordsInvalid, "is not a SQLite database")
    refuse(SQLiteRecords(tmp_path / "missing" / "a.db"), errors.RecordsUnavailable, "cannot be used")


def test_a_locked_sqlite_file_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_records, "BUSY_MS", 20)
    path = tmp_path / "locked.db"
    SQLiteRecords(path).create()
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    refuse(SQLiteRecords(path), errors.RecordsUnavailable, "is locked by another process")
    other.close()


def test_a_lease_of_another_boot_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = SQLiteRecords(tmp_path / "records.db")
    records.start("k", "a", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint="")
    assert isinstance(records.start("k", "b", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint=""), Held)
    monkeypatch.setattr(sqlite_records, "_boot", lambda: "another")
    assert records.start("k", "b", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint="") == Started(2)
    records.close()


def test_a_wall_clock_that_is_set_frees_no_lease(tmp_path: Path) -> None:
    class Ahead(ManualClock):
        pinned_ms = None

        def wall_ms(self) -> int:
            return super().wall_ms() + DAY_MS // 2

    early, late = SQLiteRecords(tmp_path / "r.db"), SQLiteRecords(tmp_path / "r.db", clock=Ahead())
    early.start("k", "a", lease_ms=LEASE_MS, ttl_ms=10**14, fingerprint="")
    held = late.start("k", "b", lease_ms=LEASE_MS, ttl_ms=10**14, fingerprint="")
    assert isinstance(held, Held)
    assert held.left_ms <= LEASE_MS
    early.close()
    late.close()


# -- PostgreSQL -----------------------------------------------------------------------------------


def test_a_postgres_table_is_made_on_first_use(database: str) -> None:
    execute(database, "CREATE SCHEMA billing")
    records = PostgresRecords(database, table='billing.odd "name')
    records.start("k", "a", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint="")
    [row] = execute(database, 'SELECT key, state, owner, attempts FROM billing."odd ""name"')
    assert tuple(row) == ("k", "STARTED", "a", 1)
    records.close()


POSTGRES_COLUMNS = (
    "key text, state text, owner text, attempts integer, lease_until_ms bigint, expires_at_ms bigint, "
    "fingerprint text, result bytea"
)


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE penstock_idempotency (key text)",
        f"CREATE TABLE penstock_idempotency ({POSTGRES_COLUMNS})",
        f"CREATE TABLE penstock_idempotency ({POSTGRES_COLUMNS}, PRIMARY KEY (key, owner))",
    ],
)
def test_a_postgres_table_of_another_kind_is_refused(database: str, table: str) -> None:
    execute(database, table)
    refuse(PostgresRecords(database), errors.RecordsInvalid, "key alone as its primary key")


def test_a_wrong_postgres_address_is_refused(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.idempotency.postgres_thread.TRY_PAUSE_S", 0)
    refuse(PostgresRecords(database.replace("postgres@", "nobody@")), errors.RecordsUnavailable, '"nobody" does not')
    refuse(PostgresRecords("postgresql://h:1/x?sslmode=odd"), errors.RecordsInvalid, "cannot be understood")
    refuse(PostgresRecords("postgresql://u@127.0.0.1:1/x"), errors.RecordsUnavailable, "cannot be reached")


def test_a_user_without_the_right_to_make_the_table_is_told(database: str) -> None:
    execute(database, "CREATE ROLE reader LOGIN")
    try:
        records = PostgresRecords(database.replace("postgres@", "reader@"))
        refuse(records, errors.RecordsUnavailable, "permission denied for schema public")
    finally:
        execute(database, "DROP ROLE reader")


def test_a_lost_connection_is_replaced(database: str) -> None:
    records = PostgresRecords(database)
    assert records.start("k", "a", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint="") == Started(1)
    execute(
        database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock-idempotency'",
    )
    assert records.start("k", "a", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint="") == Started(1)
    records.close()


def test_many_who_come_first_make_one_table(database: str) -> None:
    async def all_at_once() -> list[Any]:
        several = [PostgresRecords(database) for _ in range(6)]
        made = await asyncio.gather(*(asyncio.to_thread(one.create) for one in several), return_exceptions=True)
        for one in several:
            one.close()
        return made

    assert asyncio.run(all_at_once()) == [None] * 6


# -- sweeping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [sqlite_records, postgres_records])
def test_expired_records_are_swept_while_others_start(
    module: Any, clock: ManualClock, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEEP_EACH", 4)
    monkeypatch.setattr(module, "SWEEP_LIMIT", 6)
    count: Callable[[], int]
    records: Records
    if module is sqlite_records:
        path = tmp_path / "records.db"
        records = SQLiteRecords(path, clock=clock)
        count = lambda: apsw.Connection(str(path)).execute("SELECT count(*) FROM penstock_idempotency").get  # noqa: E731
    else:
        dsn = request.getfixturevalue("database")
        records = PostgresRecords(dsn, clock=clock)
        count = lambda: execute(dsn, "SELECT count(*) FROM penstock_idempotency")[0][0]  # noqa: E731
    for number in range(20):
        records.start(f"old-{number}", "a", lease_ms=1_000, ttl_ms=1_000, fingerprint="")
    assert count() == 20
    later(clock, 2)
    for number in range(16):
        records.start(f"new-{number}", "a", lease_ms=1_000, ttl_ms=DAY_MS, fingerprint="")
    assert count() == 16
    later(clock, 2)
    assert records.sweep(100) == 0
    later(clock, DAY_MS)
    assert [records.sweep(10), records.sweep(10)] == [10, 6]
    records.close()


# -- DynamoDB -------------------------------------------------------------------------------------


def test_a_dynamo_table_can_be_made_as_the_original_has_it(dynamo: Any, clock: ManualClock) -> None:
    records = DynamoRecords(dynamo, clock=clock)
    records.create()
    records.create()
    table = dynamo.describe_table(TableName="message-status")["Table"]
    assert table["KeySchema"] == [{"AttributeName": "message_id", "KeyType": "HASH"}]
    expiry = dynamo.describe_time_to_live(TableName="message-status")["TimeToLiveDescription"]
    assert expiry == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
    records.start("k", "a", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint="")
    item = dynamo.get_item(TableName="message-status", Key={"message_id": {"S": "k"}})["Item"]
    assert (item["status"], item["attempts"]) == ({"S": "STARTED"}, {"N": "1"})
    assert int(item["expires_at"]["N"]) * 1_000 == clock.now_ms() + DAY_MS
    records.complete("k", "a", b"1", ttl_ms=DAY_MS)
    item = dynamo.get_item(TableName="message-status", Key={"message_id": {"S": "k"}})["Item"]
    assert (item["status"], item["result"]) == ({"S": "COMPLETED"}, {"B": b"1"})


def test_a_missing_dynamo_table_is_refused(dynamo: Any) -> None:
    refuse(DynamoRecords(dynamo), errors.RecordsInvalid, "DynamoDB has no table message-status")


@pytest.mark.parametrize("keys", [["id"], ["message_id", "sort"]])
def test_a_dynamo_table_with_another_key_is_refused(dynamo: Any, keys: list[str]) -> None:
    dynamo.create_table(
        TableName="message-status",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
        KeySchema=[
            {"AttributeName": name, "KeyType": kind} for name, kind in zip(keys, ("HASH", "RANGE"), strict=False)
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    refuse(DynamoRecords(dynamo), errors.RecordsInvalid, "needs the key message_id")


def test_an_item_of_another_program_is_refused(dynamo: Any) -> None:
    records = DynamoRecords(dynamo)
    records.create()
    dynamo.put_item(TableName="message-status", Item={"message_id": {"S": "s:1"}, "status": {"S": "STARTED"}})
    with pytest.raises(errors.RecordsInvalid, match="was not written by Idempotency"):
        Idempotency(records)(key="{order}", scope="s")(never)(1)


def test_wrong_dynamo_credentials_are_refused(dynamo: Any) -> None:
    with Stubber(dynamo) as stubbed:
        for _ in range(2):
            stubbed.add_client_error("get_item", "UnrecognizedClientException", "The security token is invalid.")
        refuse(DynamoRecords(dynamo), errors.RecordsUnavailable, "refuses the credentials")


def test_a_dynamo_without_credentials_or_region_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    refuse(DynamoRecords(), errors.RecordsUnavailable, "region")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    refuse(DynamoRecords(), errors.RecordsUnavailable, "credentials")


def test_a_dynamo_that_cannot_be_reached_is_said_to_be() -> None:
    def make() -> Any:
        return boto3.client(
            "dynamodb",
            endpoint_url="http://127.0.0.1:1",
            region_name="eu-central-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=boto3.session.Config(retries={"total_max_attempts": 1}),
        )

    refuse(DynamoRecords(make), errors.RecordsUnavailable, "cannot be reached")


def test_clocks_that_differ_by_less_than_the_skew_free_no_lease(dynamo: Any, clock: ManualClock) -> None:
    DynamoRecords(dynamo).create()
    here = DynamoRecords(dynamo, clock=clock, skew=5)
    ahead = DynamoRecords(dynamo, clock=ManualClock(clock.now_ms() + LEASE_MS + 4_999), skew=5)
    here.start("k", "a", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint="")
    assert ahead.start("k", "b", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint="") == Held(1)
    assert here.release("k", "a")
    assert ahead.start("k", "b", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint="") == Started(2)


def test_effects_are_recorded_once_and_found(dynamo: Any, clock: ManualClock) -> None:
    effects = DynamoEffects(dynamo, ttl="1d", clock=clock)
    effects.create()
    assert effects.find("m-1") is None
    assert effects.record("m-1", {"charge": "ch_1"})
    assert not effects.record("m-1", {"charge": "ch_2"})
    assert effects.find("m-1") == Happened({"charge": "ch_1"})
    later(clock, DAY_MS / 1_000)
    assert effects.find("m-1") is None
    assert effects.record("m-1")


def test_the_two_tables_work_together(dynamo: Any, clock: ManualClock) -> None:
    records, effects = DynamoRecords(dynamo, clock=clock), DynamoEffects(dynamo, clock=clock)
    records.create()
    effects.create()
    idem = Idempotency(records, clock=clock)

    @idem(key="{message_id}", scope="charges", verify=effects.find)
    def charge(message_id: str) -> str:
        assert effects.record(message_id, "receipt")
        raise ConnectionError("the consumer dies here")

    with pytest.raises(ConnectionError):
        charge("m-1")
    assert charge("m-1") == charge("m-1") == "receipt"
    taken = records.start("charges:m-1", "x", lease_ms=LEASE_MS, ttl_ms=DAY_MS, fingerprint="")
    assert isinstance(taken, Completed)
