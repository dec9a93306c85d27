"""Every verb of the API repeated after a lost answer, in every state that the job may have reached: one effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import httpx
import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.job_queue import JobQueue
from penstock.domain.limits import REPEAT_WINDOW_MS
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.conformance.api.conftest import ADMIN, TENANTS, WORKER, Connect
from tests.support.job_fates import SINCE, run_operations

QUEUE = "orders"
ID, OTHER_ID = (str(UUID(int=number)) for number in (17, 18))
JOB: dict[str, Any] = {"queue": QUEUE, "task": "greet", "payload": {"name": "Ada"}}
SETTINGS = {"retention_ms": 0, "dead_retention_ms": 0, "key_ttl_ms": 1}
REPLAYED = "idempotency-replayed"


class Api:
    """A client that may do everything, with a queue that keeps nothing for longer than it has to."""

    def __init__(self, client: httpx.AsyncClient, store: Store, clock: ManualClock) -> None:
        self.client = client
        self.jobs = store.jobs
        self.clock = clock

    async def post(self, path: str, body: object = None, status: int | None = None) -> Any:
        answer = await self.client.post(path, json=body)
        assert answer.status_code == (status or answer.status_code), answer.text
        return answer.json()

    async def queue(self) -> JobQueue:
        return await self.jobs.find_queue(QUEUE)

    async def live(self, since: str, job_id: str = ID) -> None:
        await SINCE[since](self.jobs, await self.queue(), self.clock, job_id)

    async def seen(self, job_id: str = ID) -> tuple[Any, Any]:
        """Everything that a second effect would change."""
        job, queue = await self.client.get(f"/v1/jobs/{job_id}"), await self.client.get(f"/v1/queues/{QUEUE}")
        return job.json(), queue.json()["counts"]


@pytest.fixture
async def api(connect: Connect, store: Store, clock: ManualClock) -> Api:
    client = connect(ADMIN)
    await client.put(f"/v1/queues/{QUEUE}", json={"settings": SETTINGS})
    return Api(client, store, clock)


async def test_a_first_try_is_refused_without_a_look_for_its_id(api: Api, failpoints: Failpoints) -> None:
    limited = {**JOB, "queue": "limited"}
    settings = {"rate": {"per_second": 1, "burst": 1}}
    await api.client.put("/v1/queues/limited", json={"settings": settings})
    await api.post("/v1/jobs", {**limited, "id": ID}, 202)
    await api.post("/v1/jobs", limited, 429)

    def fail() -> None:
        raise StoreUnavailable("The store was asked.")

    failpoints.arm("jobs.enqueue.begun", fail)
    first = await api.client.post("/v1/jobs", json={**limited, "id": OTHER_ID}, headers={"Penstock-First-Try": "true"})
    assert first.status_code == 429
    await api.post("/v1/jobs", {**limited, "id": OTHER_ID}, 503)
    assert (await api.post("/v1/jobs", {**limited, "id": ID}, 200))["replayed"]


Way = Callable[[Api, dict[str, Any]], Awaitable[tuple[int, dict[str, Any], bool]]]


async def _one(api: Api, job: dict[str, Any]) -> tuple[int, dict[str, Any], bool]:
    answer = await api.client.post("/v1/jobs", json=job)
    return answer.status_code, answer.json(), REPLAYED in answer.headers


async def _loosely(api: Api, job: dict[str, Any]) -> tuple[int, dict[str, Any], bool]:
    answer = await api.client.post("/enqueue", json=job)
    return answer.status_code, answer.json(), REPLAYED in answer.headers


async def _batch(api: Api, job: dict[str, Any]) -> tuple[int, dict[str, Any], bool]:
    [entry] = (await api.post("/v1/jobs/batch", {"jobs": [job]}, 200))["results"]
    told = entry.get("job") or entry["problem"]
    return entry["status"], told, told.get("replayed", False)


WAYS: dict[str, Way] = {"one": _one, "loosely": _loosely, "batch": _batch}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("since", SINCE)
async def test_a_repeated_enqueue_answers_with_the_job_as_it_is(api: Api, since: str, way: str) -> None:
    enqueue = WAYS[way]
    assert await enqueue(api, {**JOB, "id": ID}) == (202, {"id": ID, "queue": QUEUE, "state": "queued"}, False)
    await api.live(since)
    before = await api.seen()
    expected = {"id": ID, "queue": QUEUE, "state": before[0].get("state", "cancelled"), "replayed": True}
    if expected["state"] == "succeeded":
        expected["result"] = 17
    for _ in range(2):
        assert await enqueue(api, {**JOB, "id": ID}) == (200, expected, True)
    assert await api.seen() == before


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("since", ["nothing", "succeeded", "purged"])
@pytest.mark.parametrize("other", [{"queue": "elsewhere"}, {"task": "t"}, {"tenant": "bolt"}, {"payload": 2}])
async def test_an_id_of_another_job_is_refused_in_the_same_words(
    api: Api, other: dict[str, Any], since: str, way: str
) -> None:
    await api.post("/v1/jobs", {**JOB, "id": ID, "tenant": "acme"}, 202)
    await api.live(since)
    before = await api.seen()
    status, problem, _ = await WAYS[way](api, {**JOB, "id": ID, "tenant": "acme"} | other)
    assert (status, problem) == (
        409,
        {
            "type": "urn:penstock:problem:job-exists",
            "title": "Another job has this id",
            "status": 409,
            "detail": "Another job has this id.",
        },
    )
    assert await api.seen() == before


async def test_a_tenant_learns_nothing_of_anothers_job(connect: Connect) -> None:
    acme, bolt = (connect(tenant) for tenant in TENANTS)
    assert (await acme.post("/v1/jobs", json={**JOB, "id": ID})).status_code == 202
    theirs = await bolt.post("/v1/jobs", json={**JOB, "id": ID})
    assert (theirs.status_code, theirs.json()["detail"]) == (409, "Another job has this id.")
    assert (await acme.post("/v1/jobs", json={**JOB, "id": ID})).json()["replayed"]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("text", [ID.replace("0", "A"), ID.replace("-", ""), f"{ID}\n", "17", "", 17])
@pytest.mark.parametrize("path", ["/v1/jobs", "/enqueue"])
async def test_an_id_that_is_no_canonical_uuid_is_refused(api: Api, path: str, text: object) -> None:
    problem = await api.post(path, {**JOB, "id": text}, 422)
    assert problem["field"] == "id"


# -- interventions --------------------------------------------------------------------------------


@pytest.mark.sampled(8)
@pytest.mark.parametrize("since", SINCE)
@pytest.mark.parametrize("at_first", ["nothing", "running", "cancelled"])
async def test_a_repeated_cancellation_is_one(api: Api, at_first: str, since: str) -> None:
    await api.post("/v1/jobs", {**JOB, "id": ID}, 202)
    await api.live(at_first)
    path, body = f"/v1/jobs/{ID}/cancel", {"request_id": "r-1"}
    if (await api.post(path, body, 200))["state"] == "running":
        await api.clock.advance(seconds=30)
        await api.jobs.advance()
    await api.jobs.retry(ID)
    await _same_again(api, path, body, since)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("since", SINCE)
@pytest.mark.parametrize("at_first", ["nothing", "dead", "cancelled", "retrying"])
@pytest.mark.parametrize("path", [f"/v1/jobs/{ID}/retry", "/dlq/requeue"])
async def test_a_repeated_retry_is_one(api: Api, path: str, at_first: str, since: str) -> None:
    await api.post("/v1/jobs", {**JOB, "id": ID}, 202)
    await api.live(at_first)
    body = {"request_id": "r-1"} | ({"id": ID} if path == "/dlq/requeue" else {})
    assert (await api.post(path, body, 200))["state"] == "queued"
    await _same_again(api, path, body, since)


async def _same_again(api: Api, path: str, body: dict[str, Any], since: str) -> None:
    await api.live(since)
    before = await api.seen()
    for _ in range(2):
        again = await api.post(path, body)
        assert again == before[0]
    assert await api.seen() == before


async def test_requests_of_other_callers_and_verbs_are_not_taken_for_repeats(api: Api, connect: Connect) -> None:
    acme = connect("acme")
    await acme.post("/v1/jobs", json={**JOB, "id": ID})
    body = {"request_id": "r-1"}
    assert (await acme.post(f"/v1/jobs/{ID}/cancel", json=body)).json()["state"] == "cancelled"
    assert (await acme.post(f"/v1/jobs/{ID}/retry", json=body)).json()["state"] == "queued"
    assert (await api.post(f"/v1/jobs/{ID}/cancel", body))["state"] == "cancelled"
    assert (await api.post(f"/v1/jobs/{ID}/retry", body))["state"] == "queued"


# -- workers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_ms", [0, 1_000])
async def test_a_repeated_dequeue_has_the_same_jobs_and_new_tokens(api: Api, wait_ms: int) -> None:
    for job_id in (ID, OTHER_ID):
        await api.post("/v1/jobs", {**JOB, "id": job_id}, 202)
    wanted = {"queues": [QUEUE], "worker": "w", "count": 1, "wait_ms": wait_ms, "request_id": "r-1"}
    [lost] = (await api.post("/v1/dequeue", wanted, 200))["offers"]
    [again] = (await api.post("/v1/dequeue", wanted, 200))["offers"]
    assert (lost["id"], again["id"]) == (ID, ID)
    assert (await api.post(f"/v1/leases/{lost['token']}/release", status=409))["type"].endswith("lease-lost")
    await api.post(f"/v1/leases/{again['token']}/accept", status=200)
    [other] = (await api.post("/v1/dequeue", wanted, 200))["offers"]
    assert other["id"] == OTHER_ID


async def test_nobody_is_offered_what_another_caller_was(api: Api, connect: Connect) -> None:
    await api.post("/v1/jobs", {**JOB, "id": ID}, 202)
    wanted = {"queues": [QUEUE], "worker": "w", "request_id": "r-1"}
    assert len((await api.post("/v1/dequeue", wanted, 200))["offers"]) == 1
    other = await connect(WORKER).post("/v1/dequeue", json=wanted)
    assert other.json()["offers"] == []


@pytest.mark.parametrize("field", ["id", "request_id"])
async def test_a_repeated_event_is_one(api: Api, field: str) -> None:
    await api.post("/v1/jobs", {**JOB, "id": ID}, 202)
    [offer] = (await api.post("/v1/dequeue", {"queues": [QUEUE]}, 200))["offers"]
    await api.post(f"/v1/leases/{offer['token']}/accept", status=200)
    event = {"token": offer["token"], "kind": "progress", "data": 1, field: "e-1"}
    first = await api.post(f"/v1/jobs/{ID}/events", event, 201)
    assert await api.post(f"/v1/jobs/{ID}/events", event, 201) == first
    await api.post(f"/v1/leases/{offer['token']}/complete", {"result": 1}, 200)
    assert await api.post(f"/v1/jobs/{ID}/events", event, 201) == first
    both = {**event, "id": "e-2", "request_id": "e-2"}
    assert (await api.post(f"/v1/jobs/{ID}/events", both, 422))["field"] == "request_id"


REPORTS: dict[str, dict[str, Any]] = {
    "complete": {"result": 1},
    "fail": {"kind": "Timeout"},
    "release": {},
    "snooze": {"delay_ms": 1_000},
}


@pytest.mark.parametrize("verb", REPORTS)
async def test_a_repeated_report_is_one(api: Api, verb: str) -> None:
    await api.post("/v1/jobs", {**JOB, "id": ID}, 202)
    [offer] = (await api.post("/v1/dequeue", {"queues": [QUEUE]}, 200))["offers"]
    for _ in range(2):
        await api.post(f"/v1/leases/{offer['token']}/accept", status=200)
    first = await api.post(f"/v1/leases/{offer['token']}/{verb}", REPORTS[verb], 200)
    before = await api.seen()
    assert await api.post(f"/v1/leases/{offer['token']}/{verb}", REPORTS[verb], 200) == first
    assert await api.seen() == before


# -- operators ------------------------------------------------------------------------------------


async def test_a_repeated_purge_leaves_what_was_acknowledged_in_between(api: Api) -> None:
    await api.post("/v1/jobs", {**JOB, "id": ID}, 202)
    body = {"request_id": "r-1"}
    first = await api.post(f"/v1/queues/{QUEUE}/purge", body, 202)
    await run_operations(api.jobs)
    await api.post("/v1/jobs", {**JOB, "id": OTHER_ID}, 202)
    await api.clock.advance(ms=REPEAT_WINDOW_MS - 1)
    again = await api.post(f"/v1/queues/{QUEUE}/purge", body, 202)
    assert (again["id"], again["state"], again["done"]) == (first["id"], "done", 1)
    await run_operations(api.jobs)
    assert (await api.seen(OTHER_ID))[0]["state"] == "queued"
    # Another selection, queue or caller is another request.
    other = await api.post(f"/v1/queues/{QUEUE}/purge", {**body, "task": "none"}, 202)
    assert other["id"] != first["id"]


@pytest.mark.parametrize("path", [f"/v1/queues/{QUEUE}/dead/requeue", "/dlq/requeue"])
async def test_a_repeated_requeue_leaves_what_has_died_since(api: Api, path: str) -> None:
    await api.post("/v1/jobs", {**JOB, "id": ID}, 202)
    await api.live("dead")
    body = {"request_id": "r-1"} | ({"queue": QUEUE} if path == "/dlq/requeue" else {})
    first = await api.post(path, body, 202)
    await run_operations(api.jobs)
    await api.live("dead")
    before = await api.seen()
    assert (await api.post(path, body, 202))["id"] == first["id"]
    await run_operations(api.jobs)
    assert await api.seen() == before


@pytest.mark.parametrize("with_revision", [False, True])
async def test_a_repeated_change_of_a_queue_is_not_made_over_anothers(api: Api, with_revision: bool) -> None:
    path = f"/v1/queues/{QUEUE}"
    mine: dict[str, Any] = {"settings": {"lease_ms": 11_000}, "request_id": "r-1"}
    if with_revision:
        mine["revision"] = (await api.client.get(path)).json()["revision"]
    assert (await api.client.patch(path, json=mine)).json()["settings"]["lease_ms"] == 11_000
    theirs = (await api.client.patch(path, json={"settings": {"lease_ms": 22_000}})).json()
    again = await api.client.patch(path, json=mine)
    assert (again.status_code, again.json()) == (200, theirs)
    other = await api.client.patch(path, json={**mine, "request_id": "r-2"})
    assert other.status_code == (409 if with_revision else 200)


@pytest.mark.parametrize(
    ("query", "body", "limit"),
    [("?limit=2", {}, 2), ("", {"limit": 2}, 2), ("?limit=2", {"limit": 2}, 2), ("", {}, None)],
)
async def test_dead_jobs_are_requeued_up_to_a_limit(
    api: Api, query: str, body: dict[str, Any], limit: int | None
) -> None:
    ids = [str(UUID(int=number)) for number in range(1, 4)]
    for job_id in ids:
        await api.post("/v1/jobs", {**JOB, "id": job_id}, 202)
        await api.live("dead", job_id)
    operation = await api.post(f"/dlq/requeue{query}", {"queue": QUEUE, **body}, 202)
    assert operation["limit"] == limit
    await run_operations(api.jobs)
    states = [(await api.seen(job_id))[0]["state"] for job_id in ids]
    assert states == ["queued"] * (limit or 3) + ["dead"] * (3 - (limit or 3))


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("?limit=0", {}),
        ("?limit=x", {}),
        ("?limit=", {}),
        ("?limit=99999999999", {}),
        ("?limit=2", {"limit": 3}),
        ("", {"limit": 0}),
        ("?limit=1", {"id": ID}),
        ("", {"id": ID, "limit": 1}),
    ],
)
async def test_a_limit_that_makes_no_sense_is_refused(api: Api, query: str, body: dict[str, Any]) -> None:
    assert (await api.post(f"/dlq/requeue{query}", body, 422))["field"] == "limit"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/dequeue", {"queues": [QUEUE]}),
        ("POST", "/v1/dequeue/x/credit", {"add": 1}),
        ("POST", f"/v1/jobs/{ID}/retry", {}),
        ("POST", f"/v1/jobs/{ID}/cancel", {}),
        ("POST", f"/v1/queues/{QUEUE}/purge", {}),
        ("POST", f"/v1/queues/{QUEUE}/dead/requeue", {}),
        ("POST", "/dlq/requeue", {}),
        ("POST", f"/v1/jobs/{ID}/events", {"token": "x", "kind": "k"}),
        ("PATCH", f"/v1/queues/{QUEUE}", {"settings": {}}),
    ],
)
async def test_a_request_id_has_1_to_200_characters(api: Api, method: str, path: str, body: dict[str, Any]) -> None:
    await api.post("/v1/jobs", {**JOB, "id": ID}, 202)
    for text in ("", "x" * 201, 17):
        answer = await api.client.request(method, path, json={**body, "request_id": text})
        assert (answer.status_code, answer.json()["field"]) == (422, "request_id")
