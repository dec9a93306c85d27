"""Fields of jobs over the API: when they expire, how long they are kept, and whose trace they belong to."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.conformance.api.conftest import ADMIN, Connect
from tests.support.job_steps import advance

QUEUE = "orders"
JOB = {"queue": QUEUE, "task": "count"}
TRACES = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 5)]


@pytest.fixture
def admin(connect: Connect) -> httpx.AsyncClient:
    return connect(ADMIN)


async def added(client: httpx.AsyncClient, headers: dict[str, str] | None = None, **fields: Any) -> str:
    answer = await client.post("/v1/jobs", json={**JOB, **fields}, headers=headers)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def shown(client: httpx.AsyncClient, job_id: str) -> Any:
    return (await client.get(f"/v1/jobs/{job_id}")).json()


async def test_an_expired_job_can_be_told_from_one_that_somebody_cancelled(
    admin: httpx.AsyncClient, store: Store, clock: ManualClock
) -> None:
    expiring, cancelled = await added(admin, expires_in_ms=1_000), await added(admin)
    before = await shown(admin, expiring)
    assert before["expires_at_ms"] == before["enqueued_at_ms"] + 1_000
    assert (await shown(admin, cancelled))["expires_at_ms"] is None
    await admin.post(f"/v1/jobs/{cancelled}/cancel")
    await clock.advance(ms=1_000)
    await advance(store.jobs)
    found = []
    for job_id in (expiring, cancelled):
        job = await shown(admin, job_id)
        result = (await admin.get(f"/v1/jobs/{job_id}/result")).json()
        assert (job["state"], result["state"]) == ("cancelled", "cancelled")
        assert job["failure"] == result.get("failure")
        events = (await admin.get(f"/v1/jobs/{job_id}/events?follow=false")).json()["events"]
        found.append((job["failure"] and job["failure"]["kind"], events[-1]["kind"], events[-1]["data"]))
    assert found == [("Expired", "job.cancelled", {"reason": "expired"}), (None, "job.cancelled", {})]
    again = (await admin.post(f"/v1/jobs/{expiring}/retry")).json()
    assert (again["state"], again["expires_at_ms"], again["failure"]) == ("queued", None, None)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"expires_in_ms": 0}, "expires_in_ms"),
        ({"expires_in_ms": 31_536_000_001}, "expires_in_ms"),
        ({"expires_in_ms": 1_000, "delay_ms": 1_000}, "expires_in_ms"),
        ({"expires_in_ms": 1_000, "run_at_ms": 4_000_000_000_000}, "run_at_ms"),
        ({"retention_ms": -1}, "retention_ms"),
        ({"retention_ms": "long"}, "retention_ms"),
        ({"correlation_id": ""}, "correlation_id"),
        ({"correlation_id": "two words"}, "correlation_id"),
        ({"correlation_id": "line\n"}, "correlation_id"),
        ({"traceparent": 1}, "traceparent"),
    ],
)
async def test_what_makes_no_sense_is_refused(admin: httpx.AsyncClient, fields: dict[str, Any], field: str) -> None:
    answer = await admin.post("/v1/jobs", json={**JOB, **fields})
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_a_refused_expiry_says_why(admin: httpx.AsyncClient) -> None:
    answer = await admin.post("/v1/jobs", json={**JOB, "expires_in_ms": 1_000, "delay_ms": 5_000})
    assert answer.json()["detail"].startswith("expires_in_ms is 1000, but the job is not due before 5000 ms")


async def test_the_retention_of_a_job_is_shown(admin: httpx.AsyncClient) -> None:
    own, plain = await added(admin, retention_ms=600_000), await added(admin)
    assert [(await shown(admin, job_id))["retention_ms"] for job_id in (own, plain)] == [600_000, 7 * 86_400_000]


async def test_a_schedule_takes_both(admin: httpx.AsyncClient, store: Store, clock: ManualClock) -> None:
    job = {"task": "count", "expires_in_ms": 1_000, "retention_ms": 600_000}
    schedule = {"name": "often", "queue": QUEUE, "job": job, "interval_ms": 60_000}
    assert (await admin.post("/v1/schedules", json=schedule)).status_code == 200
    await clock.advance(ms=60_000)
    await store.jobs.fire_schedules()
    [found] = (await admin.get(f"/v1/jobs?queue={QUEUE}")).json()["jobs"]
    assert found["expires_at_ms"] == found["enqueued_at_ms"] + 1_000
    assert (await shown(admin, found["id"]))["retention_ms"] == 600_000


# -- whose trace ----------------------------------------------------------------------------------


async def traced(client: httpx.AsyncClient, queue: str = QUEUE) -> list[tuple[str | None, str]]:
    """Carry out all jobs of a queue, and return the traces and correlation ids that their worker got."""
    offers = (await client.post("/v1/dequeue", json={"queues": [queue], "count": 10})).json()["offers"]
    for one in offers:
        for verb in ("accept", "complete"):
            await client.post(f"/v1/leases/{one['token']}/{verb}", json={} if verb == "complete" else None)
    return [(one.get("traceparent"), one["correlation_id"]) for one in offers]


HEADERS = {"traceparent": TRACES[0], "X-Correlation-Id": "of-the-request"}
OF_THE_REQUEST = (TRACES[0], "of-the-request")
OWN = {"traceparent": TRACES[1], "correlation_id": "own"}


async def test_a_job_of_its_own_trace(admin: httpx.AsyncClient) -> None:
    await added(admin, HEADERS)
    job_id = await added(admin, HEADERS, **OWN)
    await added(admin, HEADERS, correlation_id="half")
    job = await shown(admin, job_id)
    assert (job["traceparent"], job["correlation_id"]) == (TRACES[1], "own")
    assert await traced(admin) == [OF_THE_REQUEST, (TRACES[1], "own"), (TRACES[0], "half")]


async def test_a_trace_that_cannot_be_read_is_left_out(admin: httpx.AsyncClient) -> None:
    await added(admin, HEADERS, traceparent="nonsense")
    assert await traced(admin) == [(None, "of-the-request")]


async def test_each_job_of_a_batch_keeps_its_callers_trace(admin: httpx.AsyncClient) -> None:
    jobs = [{**JOB, **OWN}, JOB, {**JOB, "traceparent": TRACES[2], "correlation_id": "third"}]
    await admin.post("/v1/jobs/batch", json={"jobs": jobs}, headers=HEADERS)
    assert await traced(admin) == [(TRACES[1], "own"), OF_THE_REQUEST, (TRACES[2], "third")]


async def test_members_and_continuations_have_traces_of_their_own(admin: httpx.AsyncClient) -> None:
    then = {"queue": "reports", "task": "sum", "traceparent": TRACES[3], "correlation_id": "then"}
    opening = {"then": then, "jobs": [{**JOB, **OWN}, JOB], "seal": False}
    opened = await admin.post("/v1/gathers", json=opening, headers=HEADERS)
    filling = {"first": 2, "jobs": [{**JOB, "correlation_id": "more"}], "seal": True}
    await admin.post(f"/v1/gathers/{opened.json()['gather']['id']}/jobs", json=filling, headers=HEADERS)
    assert await traced(admin) == [(TRACES[1], "own"), OF_THE_REQUEST, (TRACES[0], "more")]
    assert await traced(admin, "reports") == [(TRACES[3], "then")]


async def test_a_repeat_with_another_trace_is_a_repeat(admin: httpx.AsyncClient) -> None:
    key = {"idempotency_key": "k"}
    job_id = await added(admin, HEADERS, **key)
    again = await admin.post("/v1/jobs", json={**JOB, **key, **OWN})
    assert (again.status_code, again.json()["id"]) == (200, job_id)
    other = await admin.post("/v1/jobs", json={**JOB, **key, "expires_in_ms": 1_000})
    assert (other.status_code, other.json()["type"]) == (422, "urn:penstock:problem:idempotency-key-reused")
