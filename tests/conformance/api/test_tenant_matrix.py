"""The tenant matrix: every field of a job, every route, two tenants in one queue.

Both tenants enqueue a job with the same value of one field. Then, while their jobs wait, run and are dead, each calls
every route: about its own job, about the other's, and about one that does not exist. The tables have an entry for every
field, header, query parameter and route; a new one without an entry fails the first test.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import httpx
import pytest

from penstock.domain.job import JobState
from penstock.server.jobs.endpoint import Endpoint
from penstock.testing import ManualClock
from penstock.wire.jobs.shapes import NewJob
from tests.conformance.api.conftest import ADMIN, TENANTS, WORKER, Connect

QUEUE, SCHEDULE, NOWHERE = "orders", "nightly", "00000000-0000-4000-8000-000000000000"
SOON_MS = 60_000

Fields = dict[str, Any]

FIELDS: dict[str, Callable[[str, int], Fields]] = {
    "id": lambda tenant, now_ms: {"id": str(UUID(int=1_000_000 + TENANTS.index(tenant)))},
    "queue": lambda tenant, now_ms: {"queue": QUEUE},
    "task": lambda tenant, now_ms: {"task": "charge"},
    "payload": lambda tenant, now_ms: {"payload": {"card": 1}},
    "priority": lambda tenant, now_ms: {"priority": 9},
    "tenant": lambda tenant, now_ms: {"tenant": tenant},
    "group": lambda tenant, now_ms: {"group": "g"},
    "concurrency": lambda tenant, now_ms: {"concurrency": {"key": "k", "width": 1}},
    "timeout_ms": lambda tenant, now_ms: {"timeout_ms": 5_000},
    "expires_in_ms": lambda tenant, now_ms: {"expires_in_ms": 2 * SOON_MS},
    "retention_ms": lambda tenant, now_ms: {"retention_ms": 0},
    "retry": lambda tenant, now_ms: {"retry": {"attempts_max": 1}},
    "unique_key": lambda tenant, now_ms: {"unique_key": "u"},
    "on_duplicate": lambda tenant, now_ms: {"unique_key": "u", "on_duplicate": "replace"},
    "start_rate": lambda tenant, now_ms: {"start_rate": {"key": "s", "per_second": 0.001, "burst": 3}},
    "tags": lambda tenant, now_ms: {"tags": ["red"]},
    "delay_ms": lambda tenant, now_ms: {"delay_ms": SOON_MS},
    "run_at_ms": lambda tenant, now_ms: {"run_at_ms": now_ms + SOON_MS},
    "idempotency_key": lambda tenant, now_ms: {"idempotency_key": "i"},
    "traceparent": lambda tenant, now_ms: {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    "correlation_id": lambda tenant, now_ms: {"correlation_id": "c-1"},
}
"""What a job has besides a queue and a task, by the field that is tried."""

HEADERS = {
    "Idempotency-Key": "i",
    "Penstock-First-Try": "true",
    "X-Correlation-Id": "c-1",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}

QUERIES = {
    "state": ",".join(state.label for state in JobState),
    "queue": QUEUE,
    "task": "charge",
    "tenant": None,
    "tag": "red",
    "failure_kind": "Timeout",
    "enqueued_from_ms": "1",
    "enqueued_before_ms": "9000000000000",
    "limit": "500",
    "cursor": None,
}
"""By parameter of a list, a value that both jobs match; None: tried in a way of its own."""


class Scene:
    """The two jobs, and those who ask for them. `tenant` asks, and `other` is the one whose job it must not touch."""

    def __init__(self, connect: Connect, jobs: dict[str, str], fields: dict[str, Fields], headers: Fields) -> None:
        self.clients = {tenant: connect(tenant) for tenant in TENANTS}
        self.admin, self.worker = connect(ADMIN), connect(WORKER)
        self.jobs = jobs
        self.fields = fields
        self.headers = headers
        self.made: dict[str, set[str]] = {tenant: set() for tenant in TENANTS}
        self.leases: dict[str, str] = {}
        self.operation = ""
        self.tenant, self.other = TENANTS

    async def ask(self, method: str, target: str, body: object = None, **headers: str) -> httpx.Response:
        return await self.clients[self.tenant].request(method, target, json=body, headers=headers)

    async def enqueue(self, tenant: str) -> httpx.Response:
        return await self.clients[tenant].post("/v1/jobs", json=self.fields[tenant], headers=self.headers)

    async def gather_of(self, tenant: str) -> str:
        """A gather of a tenant, which waits for ever."""
        gather = {"then": {"queue": QUEUE, "task": "then"}, "seal": False}
        return str((await self.clients[tenant].post("/v1/gathers", json=gather)).json()["gather"]["id"])

    async def seen_by_admin(self, tenant: str) -> dict[str, Any]:
        answer = await self.admin.get(f"/v1/jobs/{self.jobs[tenant]}")
        assert answer.status_code == 200
        return dict(answer.json())


Check = Callable[[Scene], Awaitable[list[httpx.Response]]]


async def _enqueued(scene: Scene, answer: httpx.Response) -> list[httpx.Response]:
    """A job was stored, or is one that the tenant itself has stored with the same key."""
    assert answer.status_code in (200, 202), answer.text
    told = answer.json()
    told = told["results"][0]["job"] if "results" in told else told
    own = {scene.jobs[scene.tenant]} | scene.made[scene.tenant]
    assert (answer.status_code == 202 or "results" in answer.json()) or told["id"] in own
    scene.made[scene.tenant].add(told["id"])
    if "replaced" in told:
        assert told["replaced"] in own
        scene.made[scene.tenant].add(told["replaced"])
        scene.jobs[scene.tenant] = told["id"]
    return [answer]


async def _enqueue(scene: Scene) -> list[httpx.Response]:
    stranger = await scene.ask("POST", "/v1/jobs", {**scene.fields[scene.tenant], "tenant": scene.other})
    assert stranger.status_code == 403
    return [stranger, *await _enqueued(scene, await scene.enqueue(scene.tenant))]


async def _enqueue_several(scene: Scene) -> list[httpx.Response]:
    fields = scene.fields[scene.tenant]
    stranger = await scene.ask("POST", "/v1/jobs/batch", {"jobs": [{**fields, "tenant": scene.other}]})
    assert stranger.status_code == 403
    return [stranger, *await _enqueued(scene, await scene.ask("POST", "/v1/jobs/batch", {"jobs": [fields]}))]


async def _enqueue_loosely(scene: Scene) -> list[httpx.Response]:
    simple = {key: value for key, value in scene.fields[scene.tenant].items() if key in ("queue", "task", "payload")}
    stranger = await scene.ask("POST", "/enqueue", {**simple, "tenant": scene.other})
    assert stranger.status_code == 403
    return [stranger, *await _enqueued(scene, await scene.ask("POST", "/enqueue", simple))]


def _of_a_job(method: str, end: str) -> Check:
    """About one job: the other's is not there, word for word."""

    async def check(scene: Scene) -> list[httpx.Response]:
        hidden = await scene.ask(method, f"/v1/jobs/{scene.jobs[scene.other]}{end}")
        missing = await scene.ask(method, f"/v1/jobs/{NOWHERE}{end}")
        assert hidden.text == missing.text.replace(NOWHERE, scene.jobs[scene.other])
        assert (hidden.status_code, hidden.json()["type"]) == (404, "urn:penstock:problem:job-not-found")
        state = (await scene.seen_by_admin(scene.tenant))["state"]
        if (end == "/events" and state != "dead") or (end == "/cancel" and state == "running"):
            return [hidden]  # Its own events would go on until it is finished; and it is to be dead in the end.
        own = await scene.ask(method, f"/v1/jobs/{scene.jobs[scene.tenant]}{end}")
        assert own.status_code in (200, 202, 409)
        return [hidden, own]

    return check


def _of_a_list(path: str) -> Check:
    """A list shows the tenant's own jobs, whatever it is filtered by."""

    async def check(scene: Scene) -> list[httpx.Response]:
        stranger = await scene.ask("GET", f"{path}?tenant={scene.other}")
        assert stranger.status_code == 403
        answers = [stranger]
        # Of dead jobs all that is filtered by is there.
        state = (await scene.seen_by_admin(scene.other))["state"]
        for name, value in {**QUERIES, "tenant": scene.tenant}.items() if state == "dead" else ():
            if value is not None:
                answers.append(await scene.ask("GET", f"{path}?{name}={value}"))
                assert answers[-1].status_code == 200
                assert {job["tenant"] for job in answers[-1].json()["jobs"]} <= {scene.tenant}
        expected = len((await scene.ask("GET", f"{path}?limit=500")).json()["jobs"])
        pages = [await scene.ask("GET", f"{path}?limit=2")]
        while (cursor := pages[-1].json()["cursor"]) is not None:
            pages.append(await scene.ask("GET", f"{path}?limit=2&cursor={cursor}"))
        # All but the last are full, whatever of the other tenant's lies in between.
        assert [len(page.json()["jobs"]) for page in pages[:-1]] == [2] * ((expected - 1) // 2)
        return answers + pages

    return check


async def _open_gather(scene: Scene) -> list[httpx.Response]:
    """The tenant's jobs become members of its own gather, and nobody else's id or tenant will do."""
    # Ids and keys stand for jobs that are there already.
    taken_up = {"id", "on_duplicate"}
    fields = {
        name: value for name, value in scene.fields[scene.tenant].items() if "key" not in name and name not in taken_up
    }
    then = {"queue": QUEUE, "task": "then"}
    gather = {"then": then, "jobs": [fields], "seal": False}
    stranger = await scene.ask("POST", "/v1/gathers", {**gather, "then": {**then, "tenant": scene.other}})
    members = await scene.ask("POST", "/v1/gathers", {**gather, "jobs": [{**fields, "tenant": scene.other}]})
    assert stranger.status_code == members.status_code == 403
    theirs = await scene.gather_of(scene.other)
    taken = await scene.ask("POST", "/v1/gathers", {**gather, "id": theirs})
    assert (taken.status_code, taken.json()["type"]) == (409, "urn:penstock:problem:gather-exists")
    answer = await scene.ask("POST", "/v1/gathers", gather)
    assert answer.status_code == 201
    # Whoever has it in its gather, another tenant's job cannot become a member.
    job = {**fields, "id": scene.jobs[scene.other]}
    joined = await scene.ask(
        "POST", f"/v1/gathers/{answer.json()['gather']['id']}/jobs", {"first": 1, "jobs": [job], "seal": False}
    )
    [entry] = joined.json()["results"]
    assert (entry["status"], entry["problem"]["type"]) == (409, "urn:penstock:problem:job-exists")
    scene.made[scene.tenant] |= {entry["job"]["id"] for entry in answer.json()["results"]}
    return [stranger, members, answer]


def _of_a_gather(method: str, end: str, body: object = None) -> Check:
    """About one gather: the other's is not there, word for word."""

    async def check(scene: Scene) -> list[httpx.Response]:
        theirs, own = await scene.gather_of(scene.other), await scene.gather_of(scene.tenant)
        before = (await scene.admin.get(f"/v1/gathers/{theirs}")).json()
        hidden = await scene.ask(method, f"/v1/gathers/{theirs}{end}", body)
        missing = await scene.ask(method, f"/v1/gathers/{NOWHERE}{end}", body)
        assert hidden.text == missing.text.replace(NOWHERE, theirs)
        assert (hidden.status_code, hidden.json()["type"]) == (404, "urn:penstock:problem:gather-not-found")
        assert (await scene.admin.get(f"/v1/gathers/{theirs}")).json() == before
        answer = await scene.ask(method, f"/v1/gathers/{own}{end}", body)
        assert answer.status_code == 200
        return [hidden, answer]

    return check


def _forbidden(method: str, path: str) -> Check:
    """About all tenants: refused in the same words, be there what is asked for or not."""

    async def forbid(scene: Scene) -> list[httpx.Response]:
        there = {
            "name": SCHEDULE if "schedules" in path else QUEUE,
            "id": scene.jobs[scene.other] if "jobs" in path else scene.operation,
            "token": scene.leases.get(scene.other, "x"),
            "stream": "x",
        }
        answers = [
            await scene.ask(method, path.format_map(there), {}),
            await scene.ask(method, path.format_map(dict.fromkeys(there, NOWHERE)), {}),
        ]
        first, second = answers
        assert (first.status_code, first.json()["type"]) == (403, "urn:penstock:problem:access-denied")
        assert first.content == second.content
        return answers

    return forbid


VERBS: dict[str, Check] = {
    "EnqueueJob": _enqueue,
    "EnqueueJobs": _enqueue_several,
    "EnqueueLoosely": _enqueue_loosely,
    "OpenGather": _open_gather,
    "FillGather": _of_a_gather("POST", "/jobs", {"first": 0, "jobs": [], "seal": False}),
    "CancelGather": _of_a_gather("POST", "/cancel"),
    "GetGather": _of_a_gather("GET", ""),
    "GetGatherResults": _of_a_gather("GET", "/results"),
    "GetJob": _of_a_job("GET", ""),
    "GetResult": _of_a_job("GET", "/result"),
    "FollowEvents": _of_a_job("GET", "/events"),
    "ListJobs": _of_a_list("/v1/jobs"),
    "ListDead": _of_a_list(f"/v1/queues/{QUEUE}/dead"),
    "ListAllDead": _of_a_list("/dlq"),
    "CancelJob": _of_a_job("POST", "/cancel"),
    "RetryJob": _of_a_job("POST", "/retry"),
    "Dequeue": _forbidden("POST", "/v1/dequeue"),
    "AddCredit": _forbidden("POST", "/v1/dequeue/{stream}/credit"),
    "ReportBatch": _forbidden("POST", "/v1/leases"),
    "Accept": _forbidden("POST", "/v1/leases/{token}/accept"),
    "Heartbeat": _forbidden("POST", "/v1/leases/{token}/heartbeat"),
    "Complete": _forbidden("POST", "/v1/leases/{token}/complete"),
    "Fail": _forbidden("POST", "/v1/leases/{token}/fail"),
    "Release": _forbidden("POST", "/v1/leases/{token}/release"),
    "Snooze": _forbidden("POST", "/v1/leases/{token}/snooze"),
    "PublishEvent": _forbidden("POST", "/v1/jobs/{id}/events"),
    "GroupDead": _forbidden("GET", "/v1/queues/{name}/dead/groups"),
    "ListWorkers": _forbidden("GET", "/v1/workers"),
    "ListQueues": _forbidden("GET", "/v1/queues"),
    "GetQueue": _forbidden("GET", "/v1/queues/{name}"),
    "ListOperations": _forbidden("GET", "/v1/queues/{name}/operations"),
    "GetOperation": _forbidden("GET", "/v1/operations/{id}"),
    "ListSchedules": _forbidden("GET", "/v1/schedules"),
    "GetSchedule": _forbidden("GET", "/v1/schedules/{name}"),
    "CreateQueue": _forbidden("POST", "/v1/queues"),
    "PutQueue": _forbidden("PUT", "/v1/queues/{name}"),
    "ChangeQueue": _forbidden("PATCH", "/v1/queues/{name}"),
    "DeleteQueue": _forbidden("DELETE", "/v1/queues/{name}"),
    "PauseQueue": _forbidden("POST", "/v1/queues/{name}/pause"),
    "ResumeQueue": _forbidden("POST", "/v1/queues/{name}/resume"),
    "PurgeQueue": _forbidden("POST", "/v1/queues/{name}/purge"),
    "RequeueDead": _forbidden("POST", "/v1/queues/{name}/dead/requeue"),
    "RequeueLoosely": _forbidden("POST", "/dlq/requeue"),
    "CancelOperation": _forbidden("POST", "/v1/operations/{id}/cancel"),
    "SaveSchedule": _forbidden("POST", "/v1/schedules"),
    "PutSchedule": _forbidden("PUT", "/v1/schedules/{name}"),
    "DeleteSchedule": _forbidden("DELETE", "/v1/schedules/{name}"),
}


def test_every_field_header_parameter_and_route_has_an_entry(endpoint: Endpoint) -> None:
    routes = {route.name: route for route in endpoint.routes}
    assert set(VERBS) == set(routes)
    assert set(FIELDS) == set(NewJob.__struct_fields__)
    headers = {it.name for it in routes["EnqueueJob"].parameters if it.place == "header"}
    assert set(HEADERS) == headers
    for name in ("ListJobs", "ListDead", "ListAllDead"):
        assert set(QUERIES) == {it.name for it in routes[name].parameters}


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [*FIELDS, *HEADERS])
async def test_tenants_neither_see_nor_touch_each_others_jobs(connect: Connect, clock: ManualClock, name: str) -> None:
    scene = await _enqueue_both(connect, clock, name)
    for stage in ("waiting", "running", "dead"):
        if stage == "running":
            await clock.advance(ms=SOON_MS)
            await _start_both(scene)
        elif stage == "dead":
            await _bury_both(scene)
        for verb, check in VERBS.items():
            if check.__name__ == "forbid" and stage != "running":
                continue  # What the job is like makes no difference; when it runs there is a lease, too.
            for scene.tenant, scene.other in (TENANTS, TENANTS[::-1]):
                before = await scene.seen_by_admin(scene.other)
                answers = await check(scene)
                hidden = {scene.jobs[scene.other]} | scene.made[scene.other]
                for answer in answers:
                    told, asked = answer.text + json.dumps(dict(answer.headers)), str(answer.request.url)
                    # An id that it named itself, it may read again.
                    assert not any(job_id in told for job_id in hidden if job_id not in asked), (name, verb, stage)
                assert await scene.seen_by_admin(scene.other) == before, (name, verb, stage)


async def _enqueue_both(connect: Connect, clock: ManualClock, name: str) -> Scene:
    fields = {
        tenant: {"queue": QUEUE, "task": "greet"} | (FIELDS[name](tenant, clock.now_ms()) if name in FIELDS else {})
        for tenant in TENANTS
    }
    headers = {name: HEADERS[name]} if name in HEADERS else {}
    scene = Scene(connect, {}, fields, headers)
    # The operation purges nothing: no job has the task.
    await scene.admin.put(f"/v1/schedules/{SCHEDULE}", json={"queue": QUEUE, "job": {"task": "x"}, "cron": "@yearly"})
    purge = await scene.admin.post(f"/v1/queues/{QUEUE}/purge", json={"task": "nothing"})
    scene.operation = purge.json()["id"]
    for tenant in TENANTS:
        answer = await scene.enqueue(tenant)
        assert answer.status_code == 202, "another tenant's job stands for it"
        scene.jobs[tenant] = answer.json()["id"]
    if not fields[TENANTS[0]].keys() & {"delay_ms", "run_at_ms"}:
        offers = await _offers(scene)
        assert offers.keys() == set(scene.jobs.values()), "one waits for the other"
        for token in offers.values():
            await scene.worker.post(f"/v1/leases/{token}/release")
    return scene


async def _offers(scene: Scene) -> dict[str, str]:
    """Be offered what there is, and return the leases by the ids of the jobs."""
    wanted = {"queues": [QUEUE], "count": 500, "worker": "w"}
    return {it["id"]: it["token"] for it in (await scene.worker.post("/v1/dequeue", json=wanted)).json()["offers"]}


async def _start_both(scene: Scene) -> None:
    """Have both jobs running, after those that their own tenants have put before them."""
    leases: dict[str, str] = {}
    while not leases.keys() >= set(scene.jobs.values()):
        offers = await _offers(scene)
        assert offers
        leases |= offers
        for job_id, token in offers.items():
            assert (await scene.worker.post(f"/v1/leases/{token}/accept")).status_code == 200
            if job_id not in scene.jobs.values():
                await scene.worker.post(f"/v1/leases/{token}/complete", json={})
    scene.leases = {tenant: leases[job_id] for tenant, job_id in scene.jobs.items()}


async def _bury_both(scene: Scene) -> None:
    for tenant in TENANTS:
        report = {"kind": "Timeout", "permanent": True}
        answer = await scene.worker.post(f"/v1/leases/{scene.leases[tenant]}/fail", json=report)
        assert answer.status_code == 200
