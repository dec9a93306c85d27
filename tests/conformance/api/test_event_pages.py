"""Events without following: a page at a time, filtered by kind and time; the followed form takes the same filters."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from penstock.testing import ManualClock
from tests.conformance.api.conftest import ADMIN, Connect

QUEUE = "orders"


@pytest.fixture
def admin(connect: Connect) -> httpx.AsyncClient:
    return connect(ADMIN)


async def run_job(admin: httpx.AsyncClient, clock: ManualClock, *, finish: bool = True) -> str:
    """Publish six events, one a second, of alternating kinds."""
    job_id = str((await admin.post("/v1/jobs", json={"queue": QUEUE, "task": "greet"})).json()["id"])
    [offer] = (await admin.post("/v1/dequeue", json={"queues": [QUEUE]})).json()["offers"]
    await admin.post(f"/v1/leases/{offer['token']}/accept")
    for number in range(6):
        event = {"token": offer["token"], "kind": "line" if number % 2 else "progress", "data": number}
        assert (await admin.post(f"/v1/jobs/{job_id}/events", json=event)).status_code == 201
        await clock.advance(seconds=1)
    if finish:
        await admin.post(f"/v1/leases/{offer['token']}/complete")
    return job_id


async def page(admin: httpx.AsyncClient, job_id: str, **query: Any) -> dict[str, Any]:
    answer = await admin.get(f"/v1/jobs/{job_id}/events", params={"follow": "false", **query})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return dict(answer.json())


def numbers(page: dict[str, Any]) -> list[int]:
    return [event["seq"] for event in page["events"]]


async def test_a_page_of_events_of_a_job_that_runs_ends_where_the_events_do(
    admin: httpx.AsyncClient, clock: ManualClock
) -> None:
    job_id = await run_job(admin, clock, finish=False)
    first = await page(admin, job_id, limit=4)
    assert (numbers(first), first["after"], first["complete"], first["state"]) == ([1, 2, 3, 4], 4, False, "running")
    assert first["events"][3] == {
        "seq": 4,
        "attempt": 1,
        "kind": "line",
        "data": 3,
        "at_ms": ManualClock.START_MS + 3_000,
    }
    rest = await page(admin, job_id, after=first["after"])
    assert (numbers(rest), rest["after"], rest["complete"]) == ([5, 6], 6, True)
    nothing = await page(admin, job_id, after=rest["after"])
    assert (nothing["events"], nothing["after"], nothing["complete"]) == ([], 6, True)


async def test_a_page_is_filtered_by_kind_and_time(admin: httpx.AsyncClient, clock: ManualClock) -> None:
    job_id = await run_job(admin, clock)
    start_ms = ManualClock.START_MS
    assert numbers(await page(admin, job_id, kind="line,job.succeeded")) == [2, 4, 6, 7]
    assert numbers(await page(admin, job_id, from_ms=start_ms + 2_000, before_ms=start_ms + 5_000)) == [3, 4, 5]
    last = await page(admin, job_id, kind="never")
    assert last == {"events": [], "after": 7, "complete": True, "state": "succeeded"}


async def test_the_followed_form_is_filtered_too(admin: httpx.AsyncClient, clock: ManualClock) -> None:
    job_id = await run_job(admin, clock)
    target = f"/v1/jobs/{job_id}/events?kind=line&from_ms={ManualClock.START_MS + 2_000}"
    told = (await admin.get(target)).text
    assert [line for line in told.splitlines() if line.startswith(("id", "event"))] == [
        "id: 4",
        "event: line",
        "id: 6",
        "event: line",
        "event: end",
    ]
    assert (await admin.get(target, headers={"Last-Event-ID": "6"})).status_code == 204


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("follow=no", "follow"),
        ("follow=", "follow"),
        ("limit=5", "limit"),
        ("follow=true&limit=5", "limit"),
        ("follow=false&limit=0", "limit"),
        ("follow=false&limit=501", "limit"),
        ("follow=false&kind=%00", "kind"),
        ("follow=false&kind=" + ",".join(map(str, range(51))), "kind"),
        ("from_ms=-1", "from_ms"),
        ("before_ms=soon", "before_ms"),
        ("follow=false&after=x", "after"),
        ("since_ms=1", "since_ms"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    admin: httpx.AsyncClient, clock: ManualClock, query: str, field: str
) -> None:
    job_id = await run_job(admin, clock)
    answer = await admin.get(f"/v1/jobs/{job_id}/events?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field)
