"""The SQL functions take what `POST /v1/jobs` takes, and make the same job of it; what that refuses, they refuse."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import msgspec
import pytest

from penstock.engine.engine import Engine
from penstock.server.jobs.app import job_endpoint
from penstock.server.jobs.call import Streamed
from penstock.wire.http import Request
from penstock.wire.jobs.shapes import Concurrency, NewJob, Retry, StartRate
from tests.transactions.staging.steps import QUEUE, Connection, take

A_UUID = "01900000-0000-7000-8000-00000000000a"
FAR_MS = 4_000_000_000_000
"""An instant that is never reached, and too far off to be asked for."""

GOOD: dict[str, dict[str, Any]] = {
    "nothing": {},
    "id": {"id": A_UUID},
    "null id": {"id": None},
    "priority": {"priority": 9},
    "tenant": {"tenant": "t"},
    "empty tenant": {"tenant": ""},
    "group": {"group": "g", "tenant": "t"},
    "concurrency": {"concurrency": {"key": "api", "width": 3}},
    "concurrency of one": {"concurrency": {"key": "api"}},
    "timeout": {"timeout_ms": 1_000},
    "expiry": {"expires_in_ms": 3_600_000},
    "retention": {"retention_ms": 0},
    "retry": {"retry": {"attempts_max": 3, "losses_max": 0, "backoff_ms": 5, "factor": 1.5, "backoff_ms_max": 9}},
    "retry without jitter": {"retry": {"jitter": False}},
    "no retry": {"retry": None},
    "unique": {"unique_key": "u", "on_duplicate": "keep"},
    "replace": {"unique_key": "u", "on_duplicate": "replace"},
    "start rate": {"start_rate": {"key": "stripe", "per_second": 0.5, "burst": 3}},
    "tags": {"tags": ["b", "a", "b"]},
    "no tags": {"tags": []},
    "delay": {"delay_ms": 3_600_000, "expires_in_ms": 7_200_000},
    "run at": {"run_at_ms": 1},
    "key": {"idempotency_key": "k", "delay_ms": 60_000},
    "trace": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    "bad trace": {"traceparent": "nonsense"},
    "correlation": {"correlation_id": "c-2"},
    "odd names": {"tenant": "ünï \"'%?:", "group": "日本", "tags": ["😀"]},
    "nulls": dict.fromkeys(
        ("group", "concurrency", "timeout_ms", "expires_in_ms", "retention_ms", "unique_key", "start_rate", "run_at_ms")
    ),
}
BAD: dict[str, dict[str, Any]] = {
    "unknown": {"colour": "red"},
    "unknown in part": {"retry": {"tries": 3}},
    "upper-case id": {"id": A_UUID.upper()},
    "no uuid": {"id": "17"},
    "number as id": {"id": 17},
    "high priority": {"priority": 10},
    "low priority": {"priority": -1},
    "broken priority": {"priority": 1.5},
    "priority of text": {"priority": "9"},
    "no priority": {"priority": None},
    "no tenant": {"tenant": None},
    "long tenant": {"tenant": "t" * 201},
    "line break": {"tenant": "a\nb"},
    "empty group": {"group": ""},
    "group and concurrency": {"group": "g", "concurrency": {"key": "k"}},
    "concurrency without key": {"concurrency": {"width": 3}},
    "no width": {"concurrency": {"key": "k", "width": 0}},
    "concurrency of text": {"concurrency": "k"},
    "no timeout": {"timeout_ms": 0},
    "timeout of text": {"timeout_ms": "1s"},
    "long expiry": {"expires_in_ms": 31_536_000_001},
    "expired": {"delay_ms": 10, "expires_in_ms": 10},
    "negative retention": {"retention_ms": -1},
    "no attempts": {"retry": {"attempts_max": 0}},
    "jitter of text": {"retry": {"jitter": "yes"}},
    "small factor": {"retry": {"factor": 0.5}},
    "retry of number": {"retry": 3},
    "replace what": {"on_duplicate": "replace"},
    "odd duplicate": {"unique_key": "u", "on_duplicate": "drop"},
    "rate without number": {"start_rate": {"key": "k"}},
    "rate of nothing": {"start_rate": {"key": "k", "per_second": 0}},
    "many tags": {"tags": [str(number) for number in range(21)]},
    "one tag": {"tags": "a"},
    "tags of numbers": {"tags": [1]},
    "empty tag": {"tags": [""]},
    "negative delay": {"delay_ms": -1},
    "no delay": {"delay_ms": None},
    "delay and instant": {"delay_ms": 1, "run_at_ms": 1},
    "distant instant": {"run_at_ms": FAR_MS},
    "number as key": {"idempotency_key": 1},
    "number as trace": {"traceparent": 1},
    "space in correlation": {"correlation_id": "a b"},
}


async def _post(engine: Engine, job: dict[str, Any]) -> int:
    endpoint = job_endpoint(engine)
    route = endpoint.find("POST", "/v1/jobs")
    assert route is not None
    request = Request("POST", "/v1/jobs", "", {}, json.dumps(job).encode())
    answer = await endpoint.answer(*route, request)
    assert not isinstance(answer, Streamed)
    return answer.status


async def _by_function(connection: Connection, job: dict[str, Any]) -> None:
    options = {name: value for name, value in job.items() if name not in {"queue", "task", "payload"}}
    await connection.fetchval(
        "SELECT penstock.enqueue_v1(queue => $1, task => $2, payload => $3, options => $4)",
        job["queue"],
        job["task"],
        json.dumps(job["payload"]),
        json.dumps(options),
    )


async def _by_list(connection: Connection, job: dict[str, Any]) -> None:
    await connection.fetch("SELECT penstock.enqueue_jobs_v1($1)", json.dumps([job]))


WAYS = {"enqueue_v1": _by_function, "enqueue_jobs_v1": _by_list}
on_both_ways = pytest.mark.parametrize("way", WAYS)


def _job(options: dict[str, Any]) -> dict[str, Any]:
    # Over HTTP a job gets a correlation id of its request's where it has none.
    return {"queue": QUEUE, "task": "greet", "payload": {"to": ["a", 1.5, None]}, "correlation_id": "c-1", **options}


async def _stored(connection: Connection, began_ms: int | None = None) -> dict[str, list[Any]]:
    """Return all that the tables of jobs hold, and empty them. Instants are from when the job was asked for."""
    found: dict[str, list[Any]] = {}
    tables = [
        row["name"]
        for row in await connection.fetch(
            "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'penstock' AND tablename LIKE 'job%' ORDER BY 1"
        )
        if row["name"] not in {"job_queue", "job_worker"}
    ]
    enqueued_ms = await connection.fetchval("SELECT enqueued_at FROM penstock.job")
    for table in tables:
        rows = [json.loads(row[0]) for row in await connection.fetch(f"SELECT row_to_json(t) FROM penstock.{table} t")]
        for row in rows:
            for name in ("due_at", "expires_at"):
                if table == "job" and row[name] is not None:
                    row[name] -= began_ms or enqueued_ms
            # One job at a time, so that which position and which lane it has says nothing.
            for name in ("enqueued_at", "queued_at", "position", "lane_id", "expires_at" if table == "job_key" else ""):
                row[name] = bool(row.get(name))
            row.pop("shard", None)
            if table == "job_lane":
                row.pop("id")
            if table == "job":
                row["rank"] -= enqueued_ms
        found[table] = rows
    await connection.execute(";".join(f"DELETE FROM penstock.{table}" for table in tables))
    return found


def test_every_option_is_tried() -> None:
    tried = {name for options in GOOD.values() for name in options}
    assert tried == {field.name for field in msgspec.structs.fields(NewJob)} - {"queue", "task", "payload"}
    for part, shape in (("concurrency", Concurrency), ("start_rate", StartRate), ("retry", Retry)):
        inside = {name for options in GOOD.values() for name in options.get(part) or ()}
        assert inside == {field.name for field in msgspec.structs.fields(shape)}


@on_both_ways
async def test_a_job_of_a_transaction_is_the_job_of_a_request(engine: Engine, connection: Connection, way: str) -> None:
    for case, options in GOOD.items():
        job = _job({"id": A_UUID, **options} if options.get("id", "") is not None else options)
        assert await _post(engine, job) == 202, case
        posted = await _stored(connection)
        await WAYS[way](connection, job)
        began_ms = await connection.fetchval("SELECT staged_at FROM penstock.staged_job")
        await take(engine)
        staged = await _stored(connection, began_ms)
        if options.get("id", "") is None:
            for stored in (posted, staged):
                stored["job"][0]["id"] = "some"
        assert len(staged["job"]) == 1, (case, await connection.fetch("SELECT * FROM penstock.staged_job"))
        if way == "enqueue_v1":  # `jsonb` has an order of its own for the names of an object, and writes blanks.
            staged["job_content"][0]["payload"] = posted["job_content"][0]["payload"]
        assert staged == posted, case


@on_both_ways
async def test_what_a_request_is_refused_for_fails_in_the_transaction(
    engine: Engine, connection: Connection, way: str
) -> None:
    async with connection.transaction():
        for case, options in BAD.items():
            job = _job(options)
            assert await _post(engine, job) in {400, 413, 422}, case
            savepoint = connection.transaction()
            await savepoint.start()
            with pytest.raises(asyncpg.InvalidParameterValueError, match=r"^penstock: "):
                await WAYS[way](connection, job)
            await savepoint.rollback()
    assert await connection.fetchval("SELECT count(*) FROM penstock.staged_job") == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("enqueue_v1('', 't')", "queue is 1 to 200"),
        ("enqueue_v1('a b', 't')", "queue has letters"),
        ("enqueue_v1('-a', 't')", "queue has letters"),
        ("enqueue_v1(repeat('q', 201), 't')", "queue is 1 to 200"),
        ("enqueue_v1(NULL, 't')", "queue is a text"),
        ("enqueue_v1('q', '')", "task is 1 to 200"),
        ("enqueue_v1('q', NULL)", "task is a text"),
        ("enqueue_v1('q', 't', options => '[]')", "options is a JSON object"),
        ("enqueue_v1('q', 't', options => '{\"task\": \"u\"}')", "options has neither"),
        ("enqueue_v1('q', 't', to_jsonb(repeat('x', 1048576)))", "payload has 1048578 bytes, and 1048576 at most"),
        ("enqueue_jobs_v1(NULL)", "1 to 500 jobs"),
        ("enqueue_jobs_v1('[]')", "1 to 500 jobs"),
        ("enqueue_jobs_v1('{}')", "1 to 500 jobs"),
        ("enqueue_jobs_v1('[1]')", "A job is a JSON object"),
        ('enqueue_jobs_v1(\'[{"task": "t"}]\')', "queue is missing"),
        ('enqueue_jobs_v1(\'[{"queue": "q"}]\')', "task is missing"),
        ("enqueue_jobs_v1((SELECT json_agg(1) FROM generate_series(1, 501)))", "1 to 500 jobs"),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(connection: Connection, call: str, message: str) -> None:
    transaction = connection.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.InvalidParameterValueError, match=message):
        await connection.execute(f"SELECT penstock.{call}")
    await transaction.rollback()


async def test_payloads_are_optional_and_kept_as_they_are_written(engine: Engine, connection: Connection) -> None:
    await connection.execute("SELECT penstock.enqueue_v1('mail', 'greet')")
    await connection.execute("SELECT penstock.enqueue_v1('mail', 'greet', NULL, NULL)")
    text = '{"b":1e22,"a":-0.0,"b":"\\u0001","n":123456789012345678901234567890}'
    await connection.execute(
        "SELECT penstock.enqueue_jobs_v1($1)", f'[{{"queue":"mail","task":"greet","payload":{text}}}]'
    )
    await take(engine)
    rows = await connection.fetch("SELECT payload FROM penstock.job_content ORDER BY position")
    assert [row["payload"] for row in rows] == [b"null", b"null", text.encode()]


async def test_a_character_that_postgresql_cannot_hold_fails_in_the_transaction(connection: Connection) -> None:
    job = '[{"queue": "q", "task": "t", "payload": "\\u0000"}]'
    for call in ("enqueue_jobs_v1($1)", "enqueue_v1('q', 't', $1)"):
        with pytest.raises(asyncpg.UntranslatableCharacterError):
            await connection.execute(f"SELECT penstock.{call}", job)


async def test_an_id_that_is_chosen_is_in_the_order_of_time(connection: Connection) -> None:
    ids = [await connection.fetchval("SELECT penstock.enqueue_v1('q', 't')") for _ in range(3)]
    assert [job_id[14] for job_id in ids] == ["7"] * 3
    times = [int(job_id.replace("-", "")[:12], 16) for job_id in ids]
    now_ms = await connection.fetchval("SELECT penstock.now_ms(NULL)")
    assert times == sorted(times)
    assert 0 <= now_ms - times[0] < 60_000
