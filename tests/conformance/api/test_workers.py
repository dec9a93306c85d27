"""GET /v1/workers: who is connected, and only what the caller may see."""

from __future__ import annotations

import httpx
import pytest

from penstock.testing import ManualClock
from tests.conformance.api.conftest import ADMIN, BILLING, TENANTS, WORKER, Connect


async def poll(client: httpx.AsyncClient, worker: str, *queues: str) -> None:
    answer = await client.post("/v1/dequeue", json={"queues": queues, "worker": worker, "count": 7})
    assert answer.status_code == 200, answer.text


async def test_workers_are_listed_by_name_a_page_at_a_time(connect: Connect, clock: ManualClock) -> None:
    admin, worker = connect(ADMIN), connect(WORKER)
    for name in ("b", "a", "c"):
        await poll(worker, name, "orders")
    first = (await admin.get("/v1/workers?limit=2")).json()
    assert first["workers"][0] == {
        "name": "a",
        "kind": "poll",
        "queues": ["orders"],
        "tasks": None,
        "credit": 7,
        "running": None,
        "since_ms": clock.now_ms(),
        "seen_at_ms": clock.now_ms(),
    }
    rest = (await admin.get("/v1/workers", params={"after": first["after"]})).json()
    assert [one["name"] for one in first["workers"] + rest["workers"]] == ["a", "b", "c"]
    assert rest["after"] is None


async def test_a_token_for_some_queues_sees_the_workers_of_those(connect: Connect) -> None:
    admin, billing = connect(ADMIN), connect(BILLING)
    await poll(admin, "hidden", "secret-orders")
    await poll(admin, "shared", "secret-orders", "billing.eu")
    told = (await billing.get("/v1/workers")).json()["workers"]
    assert [(one["name"], one["queues"]) for one in told] == [("shared", ["billing.eu"])]
    assert (await billing.get("/v1/workers?queue=secret-orders")).status_code == 403
    of_one = (await admin.get("/v1/workers?queue=billing.eu")).json()["workers"]
    assert [(one["name"], one["queues"]) for one in of_one] == [("shared", ["secret-orders", "billing.eu"])]


async def test_workers_are_all_tenants_so_a_tenant_does_not_see_them(connect: Connect) -> None:
    assert (await connect(TENANTS[0]).get("/v1/workers")).status_code == 403
    assert (await connect(WORKER).get("/v1/workers")).status_code == 403


@pytest.mark.parametrize(
    ("query", "field"), [("limit=0", "limit"), ("limit=501", "limit"), ("after=x", "after"), ("name=a", "name")]
)
async def test_what_makes_no_sense_is_refused(connect: Connect, query: str, field: str) -> None:
    answer = await connect(ADMIN).get(f"/v1/workers?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field)
