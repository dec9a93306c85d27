"""Events published by reports: each entry of a batch answers for all its events."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conformance.api.conftest import ADMIN, Connect

QUEUE = "orders"


@pytest.fixture
def admin(connect: Connect) -> httpx.AsyncClient:
    return connect(ADMIN)


async def running(admin: httpx.AsyncClient) -> dict[str, Any]:
    await admin.post("/v1/jobs", json={"queue": QUEUE, "task": "greet"})
    [offer] = (await admin.post("/v1/dequeue", json={"queues": [QUEUE]})).json()["offers"]
    await admin.post(f"/v1/leases/{offer['token']}/accept")
    return dict(offer)


def publish(offer: dict[str, Any], *events: dict[str, Any]) -> dict[str, Any]:
    return {"do": "publish", "token": offer["token"], "events": list(events)}


async def said(admin: httpx.AsyncClient, *reports: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await admin.post("/v1/leases", json={"reports": list(reports)})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["results"])


async def events(admin: httpx.AsyncClient, offer: dict[str, Any]) -> list[tuple[str, object]]:
    page = (await admin.get(f"/v1/jobs/{offer['id']}/events?follow=false")).json()
    return [(event["kind"], event["data"]) for event in page["events"]]


async def test_a_batch_publishes_events_of_several_jobs(admin: httpx.AsyncClient) -> None:
    first, second = await running(admin), await running(admin)
    answers = await said(
        admin,
        publish(first, {"kind": "line", "data": {"n": 1}}, {"kind": "line", "data": {"n": 2}, "id": "l-2"}),
        publish(second, {"kind": "progress"}),
        {"do": "complete", "token": first["token"]},
        publish(first, {"kind": "line"}),
        publish(first, {"kind": "line", "id": "l-2"}),
    )
    assert [one["status"] for one in answers] == [200, 200, 200, 409, 200]
    assert (answers[0]["report"]["state"], answers[0]["report"]["attempt"]) == ("running", 1)
    assert answers[3]["problem"]["type"] == "urn:penstock:problem:lease-lost"
    assert answers[4]["report"]["state"] == "succeeded"
    assert await events(admin, first) == [("line", {"n": 1}), ("line", {"n": 2}), ("job.succeeded", {})]
    assert await events(admin, second) == [("progress", None)]


@pytest.mark.parametrize(
    ("wrong", "status", "field"),
    [
        ({"kind": "job.failed"}, 422, "events[1].kind"),
        ({"kind": "end"}, 422, "events[1].kind"),
        ({"kind": "a\nb"}, 422, "events[1].kind"),
        ({"kind": "line", "id": "\u0000"}, 422, "events[1].id"),
        ({"kind": "line", "id": "~1"}, 422, "id"),
        ({"kind": "line", "data": "x" * 65_536}, 413, "events[1].data"),
        ({"data": 1}, 422, "reports[0].events[1].kind"),
        ({"kind": "line", "other": 1}, 422, "reports[0].events[1].other"),
    ],
)
async def test_a_wrong_event_keeps_out_those_of_its_entry(
    admin: httpx.AsyncClient, wrong: dict[str, Any], status: int, field: str
) -> None:
    offer = await running(admin)
    answers = await said(
        admin, publish(offer, {"kind": "line", "data": 1}, wrong), publish(offer, {"kind": "line", "data": 2})
    )
    assert [one["status"] for one in answers] == [status, 200]
    assert answers[0]["problem"].get("field") == field
    assert await events(admin, offer) == [("line", 2)]


async def test_an_entry_has_events(admin: httpx.AsyncClient) -> None:
    [answer] = await said(admin, publish(await running(admin)))
    assert answer["status"] == 422


async def test_a_batch_has_only_so_many_events(admin: httpx.AsyncClient) -> None:
    first, second = await running(admin), await running(admin)
    event = {"kind": "line"}
    batch = [publish(first, *[event] * 500), publish(second, *[event] * 500)]
    assert [one["status"] for one in await said(admin, *batch)] == [200, 200]
    answer = await admin.post("/v1/leases", json={"reports": [*batch, publish(first, event)]})
    assert (answer.status_code, answer.json()["field"]) == (422, "reports")
    page = (await admin.get(f"/v1/jobs/{first['id']}/events?follow=false&after=400&limit=500")).json()
    assert (len(page["events"]), page["complete"]) == (100, True)
