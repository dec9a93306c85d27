"""Tokens for some queues only: lists say nothing about what is in the others, nor that there are any."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from tests.conformance.api.conftest import ADMIN, BILLING, Connect

HIDDEN = "secret-orders"
LISTS = ("/v1/jobs", "/v1/jobs?state=dead", "/v1/jobs?tag=red", "/v1/jobs?task=greet", "/dlq")


async def enqueue(client: httpx.AsyncClient, queue: str, number: int = 1, **fields: Any) -> None:
    jobs = [{"queue": queue, "task": "greet", "tags": ["red"], **fields}] * number
    answer = await client.post("/v1/jobs/batch", json={"jobs": jobs})
    assert {entry["status"] for entry in answer.json()["results"]} == {202}, answer.text


async def bury(client: httpx.AsyncClient, queue: str) -> None:
    """Let all jobs of a queue die."""
    offers = (await client.post("/v1/dequeue", json={"queues": [queue], "count": 500})).json()["offers"]
    for offer in offers:
        await client.post(f"/v1/leases/{offer['token']}/accept")
        await client.post(f"/v1/leases/{offer['token']}/fail", json={"kind": "Timeout", "permanent": True})


async def walk(client: httpx.AsyncClient, target: str, limit: int) -> list[list[str]]:
    """The ids on each page of a list."""
    pages: list[list[str]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await client.get(target, params={"limit": limit, "cursor": cursor})).json()
        pages.append([job["id"] for job in page["jobs"]])
        assert {job["queue"] for job in page["jobs"]} <= {"billing.eu", "billing.us"}
        cursor = page["cursor"]
    return pages


@pytest.mark.parametrize("target", LISTS)
async def test_a_list_of_nothing_but_hidden_jobs_is_empty_and_has_no_cursor(connect: Connect, target: str) -> None:
    await enqueue(connect(ADMIN), HIDDEN, 3)
    await bury(connect(ADMIN), HIDDEN)
    assert (await connect(BILLING).get(target)).json() == {"jobs": [], "cursor": None}


@pytest.mark.parametrize("target", LISTS)
async def test_hidden_jobs_do_not_show_in_how_a_list_is_cut_into_pages(connect: Connect, target: str) -> None:
    admin, billing = connect(ADMIN), connect(BILLING)
    for queue in ("billing.eu", HIDDEN, "billing.us", HIDDEN, "billing.eu", HIDDEN):
        await enqueue(admin, queue, 4)
    for queue in ("billing.eu", "billing.us", HIDDEN):
        await bury(admin, queue)
    pages = await walk(billing, target, 5)
    assert [len(page) for page in pages] == [5, 5, 2]
    assert [len(page) for page in await walk(billing, target, 4)] == [4, 4, 4]


async def test_a_cursor_does_not_tell_a_position(connect: Connect) -> None:
    admin, billing = connect(ADMIN), connect(BILLING)
    cursors = []
    for hidden in (1, 100):
        await enqueue(admin, HIDDEN, hidden)
        await enqueue(admin, "billing.eu", 2)
        cursors.append((await billing.get("/v1/jobs?limit=1")).json()["cursor"])
    for cursor in cursors:
        assert re.fullmatch(r"[A-Za-z0-9_-]{24}", cursor)
    assert cursors[0][:4] != cursors[1][:4]


@pytest.mark.parametrize("cursor", ["7", "x", "é", "A" * 24, "A" * 25, "A" * 10_000, "%00", "-1", "9" * 30])
async def test_a_cursor_that_was_not_given_out_is_refused(connect: Connect, cursor: str) -> None:
    answer = await connect(ADMIN).get(f"/v1/jobs?cursor={cursor}")
    assert (answer.status_code, answer.json()["field"]) == (422, "cursor")


async def test_pages_of_queues_and_schedules_neither_name_nor_count_hidden_ones(connect: Connect) -> None:
    admin, billing = connect(ADMIN), connect(BILLING)
    for queue in ("a-hidden", "billing.a", "billing.b", "billing.c", "c-hidden", "d-hidden"):
        await admin.put(f"/v1/queues/{queue}", json={"settings": {}})
        schedule = {"queue": queue, "job": {"task": "x"}, "cron": "@daily"}
        assert (await admin.put(f"/v1/schedules/{queue}", json=schedule)).status_code == 200
    for kind in ("queues", "schedules"):
        pages = []
        after: str | None = ""
        while after is not None:
            page = (await billing.get(f"/v1/{kind}", params={"limit": 2, "after": after})).json()
            pages.append([one["name"] for one in page[kind]])
            after = page["after"]
            assert after is None or after.startswith("billing.")
        assert pages == [["billing.a", "billing.b"], ["billing.c"]]


@pytest.mark.parametrize("kind", ["operations", "schedules"])
async def test_what_is_hidden_is_missing_word_for_word(connect: Connect, kind: str) -> None:
    admin, billing = connect(ADMIN), connect(BILLING)
    await admin.put(f"/v1/queues/{HIDDEN}", json={"settings": {}})
    name = "nightly"
    await admin.put(f"/v1/schedules/{name}", json={"queue": HIDDEN, "job": {"task": "x"}, "cron": "@daily"})
    if kind == "operations":
        name = (await admin.post(f"/v1/queues/{HIDDEN}/purge", json={})).json()["id"]
    hidden = await billing.get(f"/v1/{kind}/{name}")
    missing = await billing.get(f"/v1/{kind}/{'0' * len(name)}")
    assert hidden.status_code == missing.status_code == 404
    assert hidden.text == missing.text.replace("0" * len(name), name)


async def test_a_filter_by_a_hidden_queue_is_refused_whether_there_is_one_or_not(connect: Connect) -> None:
    await enqueue(connect(ADMIN), HIDDEN)
    there, nowhere = [await connect(BILLING).get(f"/v1/jobs?queue={name}") for name in (HIDDEN, "nowhere")]
    assert there.status_code == nowhere.status_code == 403
    assert there.text.replace(HIDDEN, "nowhere") == nowhere.text


async def test_a_refusal_to_replace_a_schedule_does_not_name_its_queue(connect: Connect) -> None:
    schedule = {"job": {"task": "x"}, "cron": "@daily"}
    await connect(ADMIN).put("/v1/schedules/nightly", json={**schedule, "queue": HIDDEN})
    answer = await connect(BILLING).put("/v1/schedules/nightly", json={**schedule, "queue": "billing.eu"})
    assert answer.status_code == 403
    assert HIDDEN not in answer.text
