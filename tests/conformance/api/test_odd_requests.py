"""Requests that make no sense: refused in the same way on every store, and never a failure of the server."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from penstock.testing import ManualClock
from tests.conformance.api.conftest import ADMIN, Connect

QUEUE = "orders"
NUL = "a\0b"
YEAR_9999_MS = 253_402_300_799_000


def field_of(answer: httpx.Response) -> str:
    assert answer.status_code == 422, answer.text
    return str(answer.json()["field"])


class TestInTheYear9999:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(YEAR_9999_MS)

    @pytest.mark.parametrize("cron", ["@daily", "0 0 1 1 *"])
    async def test_a_schedule_that_has_no_next_instant_is_saved(self, connect: Connect, cron: str) -> None:
        schedule = {"queue": QUEUE, "job": {"task": "x"}, "cron": cron}
        answer = await connect(ADMIN).put("/v1/schedules/nightly", json=schedule)
        assert (answer.status_code, answer.json()["next_at_ms"]) == (200, None)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs/{}"),
        ("POST", "/v1/jobs/{}/cancel"),
        ("GET", "/v1/jobs/{}/events"),
        ("GET", "/v1/queues/{}"),
        ("PUT", "/v1/queues/{}"),
        ("DELETE", "/v1/queues/{}"),
        ("GET", "/v1/queues/{}/dead"),
        ("POST", "/v1/queues/{}/purge"),
        ("GET", "/v1/operations/{}"),
        ("POST", "/v1/operations/{}/cancel"),
        ("GET", "/v1/schedules/{}"),
        ("PUT", "/v1/schedules/{}"),
        ("DELETE", "/v1/schedules/{}"),
        ("POST", "/v1/leases/{}/accept"),
        ("POST", "/v1/dequeue/{}/credit"),
    ],
)
async def test_a_path_that_cannot_be_printed_is_refused(connect: Connect, method: str, path: str) -> None:
    for text in (NUL, "\0", "a\nb", "\x7f"):
        answer = await connect(ADMIN).request(method, path.format(quote(text)), json={})
        assert field_of(answer) in ("id", "name", "token", "stream")


@pytest.mark.parametrize("field", ["task", "tenant", "tag", "failure_kind"])
async def test_a_selection_that_nothing_can_match_is_refused(connect: Connect, field: str) -> None:
    admin = connect(ADMIN)
    await admin.put(f"/v1/queues/{QUEUE}", json={"settings": {}})
    for verb in ("purge", "dead/requeue"):
        for dry_run in (False, True):
            selection = {field: NUL, "dry_run": dry_run}
            assert field_of(await admin.post(f"/v1/queues/{QUEUE}/{verb}", json=selection)) == field
    assert field_of(await admin.get("/v1/jobs", params={field: NUL})) == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue", NUL),
        ("task", NUL),
        ("tenant", NUL),
        ("group", NUL),
        ("concurrency", {"key": NUL}),
        ("unique_key", NUL),
        ("idempotency_key", NUL),
        ("tags", [NUL]),
    ],
)
async def test_a_name_with_a_nul_is_refused(connect: Connect, field: str, value: object) -> None:
    answer = await connect(ADMIN).post("/v1/jobs", json={"queue": QUEUE, "task": "x", field: value})
    assert field_of(answer).partition(".")[0] == field
    schedule = {"queue": QUEUE, "job": {"task": "x", field: value}, "cron": "@daily"}
    assert (await connect(ADMIN).put("/v1/schedules/nightly", json=schedule)).status_code == 422


async def test_a_lane_of_a_queue_has_a_key_that_jobs_can_have(connect: Connect) -> None:
    settings = {"lanes": {NUL: {"width": 1}}}
    for method, path in (("PUT", f"/v1/queues/{QUEUE}"), ("PATCH", f"/v1/queues/{QUEUE}")):
        await connect(ADMIN).put(f"/v1/queues/{QUEUE}", json={"settings": {}})
        assert field_of(await connect(ADMIN).request(method, path, json={"settings": settings})) == "settings.lanes"


async def test_payloads_results_failures_and_events_may_hold_any_text(connect: Connect) -> None:
    admin = connect(ADMIN)
    job_id = (await admin.post("/v1/jobs", json={"queue": QUEUE, "task": "x", "payload": {NUL: NUL}})).json()["id"]
    [offer] = (await admin.post("/v1/dequeue", json={"queues": [QUEUE]})).json()["offers"]
    assert offer["payload"] == {NUL: NUL}
    token = offer["token"]
    await admin.post(f"/v1/leases/{token}/accept")
    event: dict[str, Any] = {"token": token, "kind": "progress", "data": [NUL]}
    assert (await admin.post(f"/v1/jobs/{job_id}/events", json=event)).status_code == 201
    failure = {"kind": "Timeout", "message": NUL, "details": NUL}
    assert (await admin.post(f"/v1/leases/{token}/fail", json=failure)).status_code == 200
    job = (await admin.get(f"/v1/jobs/{job_id}")).json()
    assert (job["payload"], job["failure"]["message"]) == ({NUL: NUL}, NUL)


@pytest.mark.parametrize("last", [2**31, 10**18 - 1])
async def test_events_may_be_followed_from_a_number_beyond_all(connect: Connect, last: int) -> None:
    admin = connect(ADMIN)
    job_id = (await admin.post("/v1/jobs", json={"queue": QUEUE, "task": "x"})).json()["id"]
    await admin.post(f"/v1/jobs/{job_id}/cancel")
    answer = await admin.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": str(last)})
    assert answer.status_code == 204


@pytest.mark.parametrize("rate", ["rate", "rate_per_tenant"])
async def test_the_slowest_rate_that_is_accepted_works(connect: Connect, rate: str) -> None:
    admin = connect(ADMIN)
    for per_second in (5e-324, 1e-300, 1e-12, 0.000_009):
        settings = {rate: {"per_second": per_second, "burst": 1_000_000}}
        assert field_of(await admin.put(f"/v1/queues/{QUEUE}", json={"settings": settings})) == (
            f"settings.{rate}.per_second"
        )
    settings = {rate: {"per_second": 0.000_01, "burst": 1_000_000}}
    assert (await admin.put(f"/v1/queues/{QUEUE}", json={"settings": settings})).status_code == 201
    for _ in range(2):
        assert (await admin.post("/v1/jobs", json={"queue": QUEUE, "task": "x"})).status_code == 202
