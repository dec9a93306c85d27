"""Gathers over the API: opened, filled, looked at; and nobody meets another's."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from penstock.domain.gather import ErrorPolicy, GatherState
from penstock.wire.jobs.gathers import POLICIES
from tests.conformance.api.conftest import ADMIN, BILLING, Connect

QUEUE = "orders"
THEN = {"queue": "reports", "task": "sum", "payload": {"all": True}}
JOB = {"queue": QUEUE, "task": "count"}
GATHER_ID = "0192f0c0-1234-7abc-8def-0123456789ab"
NOWHERE = "00000000-0000-4000-8000-000000000000"


async def run(client: httpx.AsyncClient, queue: str = QUEUE, count: int = 500) -> list[dict[str, Any]]:
    """Carry out all jobs of a queue; each comes to its index."""
    wanted = {"queues": [queue], "count": count}
    offers: list[dict[str, Any]] = (await client.post("/v1/dequeue", json=wanted)).json()["offers"]
    for one in offers:
        assert (await client.post(f"/v1/leases/{one['token']}/accept")).status_code == 200
        result = {"result": one.get("gather", {}).get("index")}
        assert (await client.post(f"/v1/leases/{one['token']}/complete", json=result)).status_code == 200
    return offers


async def test_a_gather_from_its_opening_to_its_end(connect: Connect) -> None:
    admin = connect(ADMIN)
    answer = await admin.post("/v1/gathers", json={"id": GATHER_ID, "then": THEN, "jobs": [JOB] * 3})
    assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/gathers/{GATHER_ID}")
    opened = answer.json()
    assert [entry["status"] for entry in opened["results"]] == [202] * 3
    gather = opened["gather"]
    assert {name: gather[name] for name in ("id", "state", "on_error", "total", "remaining", "sealed")} == {
        "id": GATHER_ID,
        "state": "waiting",
        "on_error": "fail",
        "total": 3,
        "remaining": 3,
        "sealed": True,
    }
    assert gather["continuation"] == {"queue": "reports", "task": "sum", "id": None}
    assert gather["expires_at_ms"] - gather["created_at_ms"] == 86_400_000
    offers = await run(admin)
    assert [one["gather"] for one in offers] == [{"id": GATHER_ID, "index": index} for index in range(3)]
    [then] = (await admin.post("/v1/dequeue", json={"queues": ["reports"]})).json()["offers"]
    assert (then["gathered"], then["payload"], "gather" in then) == (GATHER_ID, {"all": True}, False)
    shown = (await admin.get(f"/v1/gathers/{GATHER_ID}")).json()
    assert (shown["state"], shown["succeeded"], shown["continuation"]["id"]) == ("done", 3, then["id"])
    page = (await admin.get(f"/v1/gathers/{GATHER_ID}/results?limit=2")).json()
    assert page["after"] == 1
    assert [(one["index"], one["state"], one["result"]) for one in page["results"]] == [
        (0, "succeeded", 0),
        (1, "succeeded", 1),
    ]
    page = (await admin.get(f"/v1/gathers/{GATHER_ID}/results?after=1")).json()
    assert ([one["result"] for one in page["results"]], page["after"]) == ([2], None)
    job = (await admin.get(f"/v1/jobs/{offers[1]['id']}")).json()
    assert (job["gather"], "gathered" in job) == ({"id": GATHER_ID, "index": 1}, False)


async def test_a_gather_is_shown_once_it_has_ended(connect: Connect) -> None:
    admin = connect(ADMIN)
    await admin.post("/v1/gathers", json={"id": GATHER_ID, "then": THEN, "jobs": [JOB]})
    waiting = asyncio.create_task(admin.get(f"/v1/gathers/{GATHER_ID}?wait=60"))
    await run(admin)
    assert (await waiting).json()["state"] == "done"
    for wait in ("x", "-1", "61"):
        answer = await admin.get(f"/v1/gathers/{GATHER_ID}?wait={wait}")
        assert (answer.status_code, answer.json()["field"]) == (422, "wait")


async def test_a_member_that_replaces_a_job_says_which(connect: Connect) -> None:
    admin = connect(ADMIN)
    before = (await admin.post("/v1/jobs", json={**JOB, "unique_key": "u"})).json()["id"]
    member = {**JOB, "unique_key": "u", "on_duplicate": "replace"}
    answer = await admin.post("/v1/gathers", json={"then": THEN, "jobs": [member]})
    assert [entry["job"]["replaced"] for entry in answer.json()["results"]] == [before]


async def test_a_plain_job_says_nothing_of_gathers(connect: Connect) -> None:
    admin = connect(ADMIN)
    job_id = (await admin.post("/v1/jobs", json=JOB)).json()["id"]
    [offer] = await run(admin)
    for shown in (offer, (await admin.get(f"/v1/jobs/{job_id}")).json()):
        assert not {"gather", "gathered"} & shown.keys()


async def test_everything_may_be_repeated(connect: Connect) -> None:
    admin = connect(ADMIN)
    opening = {"id": GATHER_ID, "then": THEN, "jobs": [JOB] * 2, "seal": False}
    filling = {"first": 2, "jobs": [{**JOB, "id": NOWHERE}], "seal": True}
    jobs = []
    for status in (201, 200, 200):
        opened = await admin.post("/v1/gathers", json=opening)
        filled = await admin.post(f"/v1/gathers/{GATHER_ID}/jobs", json=filling)
        assert (opened.status_code, filled.status_code) == (status, 200)
        entries = opened.json()["results"] + filled.json()["results"]
        assert {entry["status"] for entry in entries} == ({202} if status == 201 else {200})
        jobs.append([entry["job"]["id"] for entry in entries])
        assert filled.json()["gather"]["total"] == 3
    assert jobs[0] == jobs[1] == jobs[2]
    assert jobs[0][2] == NOWHERE
    assert len(await run(admin)) == 3
    for _ in range(2):
        assert (await admin.post("/v1/gathers", json=opening)).json()["gather"]["state"] == "done"
    assert len(await run(admin, "reports")) == 1


async def test_members_that_make_no_sense_keep_it_open(connect: Connect) -> None:
    admin = connect(ADMIN)
    wrong = [JOB, {"queue": QUEUE}, {**JOB, "group": "g", "concurrency": {"key": "k"}}]
    answer = await admin.post("/v1/gathers", json={"id": GATHER_ID, "then": THEN, "jobs": wrong})
    assert [entry["status"] for entry in answer.json()["results"]] == [202, 422, 422]
    assert answer.json()["results"][1]["problem"]["field"] == "jobs[1].task"
    gather = answer.json()["gather"]
    assert (gather["state"], gather["sealed"], gather["total"]) == ("open", False, 1)
    answer = await admin.post(f"/v1/gathers/{GATHER_ID}/jobs", json={"first": 1, "jobs": [JOB] * 2, "seal": True})
    assert answer.json()["gather"]["state"] == "waiting"


async def test_members_that_die_hold_it_up_or_are_collected(connect: Connect) -> None:
    admin = connect(ADMIN)
    for on_error, state in (("fail", "waiting"), ("collect", "done")):
        gather = {"then": THEN, "jobs": [JOB], "on_error": on_error}
        gather_id = (await admin.post("/v1/gathers", json=gather)).json()["gather"]["id"]
        [offer] = (await admin.post("/v1/dequeue", json={"queues": [QUEUE]})).json()["offers"]
        await admin.post(f"/v1/leases/{offer['token']}/accept")
        await admin.post(f"/v1/leases/{offer['token']}/fail", json={"kind": "Broken", "permanent": True})
        shown = (await admin.get(f"/v1/gathers/{gather_id}")).json()
        assert (shown["state"], shown["failed"], shown["on_error"]) == (state, 1, on_error)
        [result] = (await admin.get(f"/v1/gathers/{gather_id}/results")).json()["results"]
        assert (result["state"], result["failure"]["kind"], "result" in result) == ("dead", "Broken", False)


async def test_a_cancelled_one_stays_so(connect: Connect) -> None:
    admin = connect(ADMIN)
    await admin.post("/v1/gathers", json={"id": GATHER_ID, "then": THEN, "jobs": [JOB]})
    for _ in range(2):
        answer = await admin.post(f"/v1/gathers/{GATHER_ID}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    await run(admin)
    assert await run(admin, "reports") == []


@pytest.mark.parametrize(
    ("change", "status", "problem"),
    [
        ({"then": {**THEN, "task": "other"}}, 409, "gather-exists"),
        ({"then": {**THEN, "payload": 1}}, 409, "gather-exists"),
        ({"on_error": "collect"}, 409, "gather-exists"),
        ({"id": "x"}, 422, "invalid"),
        ({"id": GATHER_ID.upper()}, 422, "invalid"),
        ({"on_error": "other"}, 422, "invalid"),
        ({"expires_in_ms": 0}, 422, "invalid"),
        ({"expires_in_ms": 366 * 86_400_000}, 422, "invalid"),
        ({"then": {**THEN, "unique_key": "u"}}, 422, "invalid"),
        ({"then": {**THEN, "idempotency_key": "u"}}, 422, "invalid"),
        ({"then": {**THEN, "delay_ms": 1, "run_at_ms": 1}}, 422, "invalid"),
        ({"then": {"queue": "reports"}}, 422, "invalid"),
        ({"jobs": [JOB] * 501}, 422, "invalid"),
        ({"other": 1}, 422, "invalid"),
    ],
)
async def test_what_cannot_be_opened(connect: Connect, change: dict[str, Any], status: int, problem: str) -> None:
    admin = connect(ADMIN)
    gather = {"id": GATHER_ID, "then": THEN, "jobs": [JOB]}
    assert (await admin.post("/v1/gathers", json=gather)).status_code == 201
    answer = await admin.post("/v1/gathers", json=gather | change)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:penstock:problem:{problem}"), answer.text


async def test_the_id_of_a_job_is_not_taken_twice(connect: Connect) -> None:
    admin = connect(ADMIN)
    gather = {"then": THEN, "jobs": [{**JOB, "id": NOWHERE}]}
    assert (await admin.post("/v1/gathers", json=gather)).status_code == 201
    answer = await admin.post("/v1/gathers", json=gather)
    assert answer.status_code == 201
    [entry] = answer.json()["results"]
    assert (entry["status"], entry["problem"]["type"]) == (409, "urn:penstock:problem:job-exists")
    answer = await admin.post("/v1/gathers", json={"then": {**THEN, "id": NOWHERE}})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:penstock:problem:job-exists")


@pytest.mark.parametrize(("method", "end"), [("GET", ""), ("GET", "/results"), ("POST", "/cancel"), ("POST", "/jobs")])
async def test_one_that_is_not_there_is_not_found(connect: Connect, method: str, end: str) -> None:
    for gather_id in (NOWHERE, "x", NOWHERE.replace("-", "")):
        answer = await connect(ADMIN).request(method, f"/v1/gathers/{gather_id}{end}", json={})
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:penstock:problem:gather-not-found")


async def test_all_members_are_of_the_gathers_tenant(connect: Connect) -> None:
    admin, acme = connect(ADMIN), connect("acme")
    answer = await admin.post(
        "/v1/gathers",
        json={
            "id": GATHER_ID,
            "then": {**THEN, "tenant": "acme"},
            "jobs": [JOB, {**JOB, "tenant": "acme"}, {**JOB, "tenant": "bolt"}],
        },
    )
    assert [entry["status"] for entry in answer.json()["results"]] == [202, 202, 422]
    assert answer.json()["results"][2]["problem"]["field"] == "tenant"
    answer = await acme.post(f"/v1/gathers/{GATHER_ID}/jobs", json={"first": 2, "jobs": [JOB], "seal": True})
    assert answer.json()["gather"]["sealed"]
    assert len(await run(admin)) == 3
    [then] = await run(admin, "reports")
    assert then["tenant"] == "acme"
    jobs = (await admin.get("/v1/jobs")).json()["jobs"]
    assert {job["tenant"] for job in jobs} == {"acme"}


async def test_a_token_of_some_queues_sees_neither_gathers_nor_members_of_others(connect: Connect) -> None:
    admin, billing = connect(ADMIN), connect(BILLING)
    for queue, other in (("billing.eu", "hidden"), ("hidden", "billing.eu")):
        answer = await billing.post(
            "/v1/gathers", json={"then": {**THEN, "queue": queue}, "jobs": [{**JOB, "queue": other}]}
        )
        assert answer.status_code == 403
    hidden = {"id": NOWHERE, "then": {**THEN, "queue": "hidden"}, "jobs": [{**JOB, "queue": "billing.eu"}]}
    await admin.post("/v1/gathers", json=hidden)
    assert (await billing.get(f"/v1/gathers/{NOWHERE}")).status_code == 404
    mixed = [{**JOB, "queue": "hidden"}, {**JOB, "queue": "billing.eu"}]
    await admin.post("/v1/gathers", json={"id": GATHER_ID, "then": {**THEN, "queue": "billing.eu"}, "jobs": mixed})
    page = (await billing.get(f"/v1/gathers/{GATHER_ID}/results")).json()
    assert [one["index"] for one in page["results"]] == [1]


def test_the_names_of_states_and_policies_are_all_listed() -> None:
    assert {state.label for state in GatherState} == {"pending", "open", "waiting", "done", "expired", "cancelled"}
    assert set(POLICIES) == {"fail", "collect"} == {policy.label for policy in ErrorPolicy}
