"""Tokens of the job API: who is let in, to what, and to whose jobs."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from penstock.domain.errors import AccessDenied
from penstock.domain.job_errors import NotAuthenticated
from penstock.server.jobs.access import Access, Caller, Permission, Scope
from penstock.server.jobs.app import JobApp
from penstock.server.jobs.endpoint import Endpoint
from penstock.server.jobs.permissions import PERMISSIONS
from penstock.wire.http import Request
from tests.unit.server.jobs.conftest import QUEUE, Answer, Api, api_token

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

ALL = "all-scopes-of-all-tenants"
ACME = "of-the-tenant-acme"
BILLING = "of-the-queues-of-billing"
BY_SCOPE = {scope: f"with-the-scope-{scope.value}" for scope in Scope}


@pytest.fixture
def access() -> Access:
    return Access(
        [
            api_token(ALL, *Scope),
            api_token(ACME, Scope.ENQUEUE, Scope.READ, tenant="acme"),
            api_token(BILLING, *Scope, queues=("billing.*", "refund?")),
            *(api_token(token, scope) for scope, token in BY_SCOPE.items()),
        ]
    )


@pytest.fixture
def everybody(api: Api) -> Api:
    return api.bearing(ALL)


@pytest.fixture
def acme(api: Api) -> Api:
    return api.bearing(ACME)


@pytest.fixture
def billing(api: Api) -> Api:
    return api.bearing(BILLING)


def refused(answer: Answer, status: int, kind: str) -> str:
    """Check that a request was refused, and return the reason in words."""
    told = answer.json()
    assert (answer.status, told["status"], told["type"]) == (status, status, f"urn:penstock:problem:{kind}")
    return str(told["detail"])


def denied(answer: Answer) -> str:
    return refused(answer, 403, "access-denied")


def missing(answer: Answer) -> None:
    refused(answer, 404, "job-not-found")


# -- who ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", f"Basic {ALL}", ALL, f"Bearer {ALL}x", f"Bearer {ALL[:-1]}", "Bearer \xe9"]
)
async def test_a_request_without_a_known_token_is_not_let_in(api: Api, header: str) -> None:
    for asking in (api.with_headers(authorization=header), api):
        answer = await asking.ask("GET", "/v1/queues")
        assert refused(answer, 401, "not-authenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("header", [f"Bearer {ALL}", f"bearer {ALL}", f"Bearer  {ALL} "])
async def test_a_known_token_lets_in(api: Api, header: str) -> None:
    assert (await api.with_headers(authorization=header).ask("GET", "/v1/queues")).status == 200


async def test_without_tokens_everybody_may_do_everything_unless_some_are_required() -> None:
    request = Request("GET", "/v1/queues", "", {}, b"")
    assert Access().identify(request).scopes == frozenset(Scope)
    with pytest.raises(NotAuthenticated):
        Access(required=True).identify(request)


async def test_neither_tokens_nor_digests_are_ever_shown(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    token = api_token(ALL, *Scope)
    assert repr(token) == f"ApiToken({ALL!r})"  # Which is its name here; its digest is not told.
    with caplog.at_level(logging.DEBUG):
        await api.bearing("a-guess-that-is-wrong").ask("GET", "/v1/queues")
        await api.bearing(ALL).ask("GET", "/v1/queues")
    assert caplog.records
    for record in caplog.records:
        assert "a-guess" not in str(record.__dict__)
        assert ALL not in str(record.__dict__)


# -- scopes ---------------------------------------------------------------------------------------


async def get_document(endpoint: Endpoint) -> dict[str, Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "GET", "path": "/openapi.json", "query_string": b"", "headers": []}
    await JobApp(endpoint, body_bytes_max=1_000)(scope, receive, send)
    assert sent[0]["status"] == 200
    return dict(json.loads(b"".join(event.get("body", b"") for event in sent[1:])))


def operations_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for methods in document["paths"].values() for operation in methods.values()]


async def test_the_document_names_the_scope_of_every_operation_as_the_table_has_it(endpoint: Endpoint) -> None:
    document = await get_document(endpoint)
    needed = {operation["operationId"]: operation["security"] for operation in operations_of(document)}
    assert needed == {name: [{"token": [it.scope.value]}] for name, it in PERMISSIONS.items()}
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


async def test_a_token_is_optional_in_the_document_of_a_server_without_any(endpoint: Endpoint) -> None:
    open_to_all = Endpoint(endpoint.routes)
    for operation in operations_of(await get_document(open_to_all)):
        assert operation["security"][1:] == [{}]


@pytest.mark.parametrize("name", PERMISSIONS)
async def test_every_operation_takes_its_scope_and_no_other(endpoint: Endpoint, name: str) -> None:
    [route] = [route for route in endpoint.routes if route.name == name]
    permission = PERMISSIONS[name]
    for scope, token in BY_SCOPE.items():
        request = Request(route.method, route.path, "", {"authorization": f"Bearer {token}"}, b"not JSON")
        answer = await endpoint.answer(route, dict.fromkeys(("id", "name", "token", "stream"), "x"), request)
        status = getattr(answer, "status", 200)
        if scope is permission.scope:
            assert status not in {401, 403}
        else:
            assert status == 403
            assert f"{permission.scope.value!r}" in json.loads(answer.body)["detail"]  # type: ignore[union-attr]


# -- tenants --------------------------------------------------------------------------------------


async def test_jobs_of_a_tenants_token_are_of_that_tenant(everybody: Api, acme: Api) -> None:
    for fields in ({}, {"tenant": "acme"}):
        job_id = await acme.enqueue(**fields)
        assert (await everybody.ask("GET", f"/v1/jobs/{job_id}")).json()["tenant"] == "acme"
    new = {"queue": QUEUE, "task": "greet"}
    assert "tenant" in denied(await acme.ask("POST", "/v1/jobs", {**new, "tenant": "other"}))
    denied(await acme.ask("POST", "/v1/jobs/batch", {"jobs": [new, {**new, "tenant": "other"}]}))
    denied(await acme.ask("POST", "/enqueue", {"tenant": "other"}))
    assert len((await everybody.ask("GET", "/v1/jobs")).json()["jobs"]) == 2


async def test_a_tenants_token_sees_and_changes_jobs_of_that_tenant_only(everybody: Api, acme: Api) -> None:
    own = await acme.enqueue()
    others = await everybody.enqueue(tenant="other")
    nobodys = await everybody.enqueue()
    for target in ("/v1/jobs", "/v1/jobs?tenant=acme"):
        assert [job["id"] for job in (await acme.ask("GET", target)).json()["jobs"]] == [own]
    denied(await acme.ask("GET", "/v1/jobs?tenant=other"))
    assert (await acme.ask("GET", f"/v1/jobs/{own}")).status == 200
    for job_id in (others, nobodys):
        for method, end in (
            ("GET", ""),
            ("GET", "/result"),
            ("GET", "/events"),
            ("POST", "/cancel"),
            ("POST", "/retry"),
        ):
            missing(await acme.ask(method, f"/v1/jobs/{job_id}{end}"))
        assert (await everybody.ask("GET", f"/v1/jobs/{job_id}")).json()["state"] == "queued"


async def test_a_tenants_token_sees_dead_jobs_of_that_tenant_only(everybody: Api, acme: Api) -> None:
    own = await acme.enqueue()
    await everybody.enqueue(tenant="other")
    for offer in await everybody.dequeue(2):
        await everybody.report(offer["token"], "accept")
        await everybody.report(offer["token"], "fail", {"kind": "Broken", "permanent": True})
    for target in ("/dlq", f"/v1/queues/{QUEUE}/dead"):
        assert [job["id"] for job in (await acme.ask("GET", target)).json()["jobs"]] == [own]
        assert len((await everybody.ask("GET", target)).json()["jobs"]) == 2


@pytest.mark.parametrize("name", [name for name, it in PERMISSIONS.items() if it.scope is Scope.READ])
async def test_what_is_about_all_tenants_is_not_for_a_token_of_one(endpoint: Endpoint, name: str) -> None:
    about_all = {
        "GroupDead",
        "ListQueues",
        "ListWorkers",
        "GetQueue",
        "ListOperations",
        "GetOperation",
        "ListSchedules",
        "GetSchedule",
        "GetOwner",
    }
    [route] = [route for route in endpoint.routes if route.name == name]
    request = Request(route.method, route.path, "", {"authorization": f"Bearer {ACME}"}, b"")
    answer = await endpoint.answer(route, dict.fromkeys(("id", "name"), "x"), request)
    assert (getattr(answer, "status", 200) == 403) is (name in about_all)


# -- queues ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "name", "seen"),
    [
        (None, "any", True),
        ((), "any", False),
        (("orders",), "orders", True),
        (("orders",), "orders2", False),
        (("orders",), "my-orders", False),
        (("a", "b.*"), "b.c", True),
        (("b.*",), "bxc", False),
        (("o?",), "ox", True),
        (("o?",), "o", False),
        (("*",), "any", True),
    ],
)
async def test_patterns_name_queues(patterns: tuple[str, ...] | None, name: str, seen: bool) -> None:
    caller = Caller(queues=patterns)
    assert caller.sees_queue(name) is seen
    if not seen:
        with pytest.raises(AccessDenied, match=name):
            caller.need_queue(name)


async def test_a_token_for_some_queues_makes_and_takes_jobs_there_only(everybody: Api, billing: Api) -> None:
    own = await billing.enqueue("billing.eu")
    others = await everybody.enqueue()
    new = {"task": "greet", "queue": QUEUE}
    assert QUEUE in denied(await billing.ask("POST", "/v1/jobs", new))
    denied(await billing.ask("POST", "/v1/jobs/batch", {"jobs": [{**new, "queue": "billing.eu"}, new]}))
    denied(await billing.ask("POST", "/enqueue", {"queue": QUEUE}))
    denied(await billing.ask("POST", "/v1/dequeue", {"queues": ["billing.eu", QUEUE]}))
    denied(await billing.ask("POST", "/v1/dequeue", {"queues": [QUEUE]}, accept="application/x-ndjson"))
    assert [offer["id"] for offer in await billing.dequeue(9, "billing.eu")] == [own]
    assert [offer["id"] for offer in await everybody.dequeue(9)] == [others]


async def test_a_token_for_some_queues_sees_jobs_there_only(everybody: Api, billing: Api) -> None:
    own = await billing.enqueue("refund1")
    others = await everybody.enqueue()
    assert [job["id"] for job in (await billing.ask("GET", "/v1/jobs")).json()["jobs"]] == [own]
    denied(await billing.ask("GET", f"/v1/jobs?queue={QUEUE}"))
    missing(await billing.ask("GET", f"/v1/jobs/{others}"))
    missing(await billing.ask("POST", f"/v1/jobs/{others}/cancel"))
    missing(await billing.ask("POST", "/dlq/requeue", {"id": others}))
    denied(await billing.ask("POST", "/dlq/requeue", {"queue": QUEUE}))
    names = [queue["name"] for queue in (await billing.ask("GET", "/v1/queues")).json()["queues"]]
    assert names == ["refund1"]


async def test_a_token_for_some_queues_administers_those_only(everybody: Api, billing: Api, endpoint: Endpoint) -> None:
    await everybody.enqueue()
    denied(await billing.ask("POST", "/v1/queues", {"name": QUEUE}))
    for route in endpoint.routes:
        if "queues/{name}" in route.path:
            denied(await billing.ask(route.method, route.path.replace("{name}", QUEUE), {"settings": {}}))
    assert (await billing.ask("POST", "/v1/queues", {"name": "billing.us"})).status == 201
    assert (await billing.ask("POST", "/v1/queues/billing.us/pause")).status == 200
    purged = await everybody.ask("POST", f"/v1/queues/{QUEUE}/purge", {})
    operation = purged.json()["id"]
    for method, end in (("GET", ""), ("POST", "/cancel")):
        refused(await billing.ask(method, f"/v1/operations/{operation}{end}"), 404, "operation-not-found")
        assert (await everybody.ask(method, f"/v1/operations/{operation}{end}")).status == 200


async def test_a_token_for_some_queues_has_schedules_there_only(everybody: Api, billing: Api) -> None:
    schedule = {"job": {"task": "report"}, "interval_ms": 60_000}
    assert (await everybody.ask("PUT", "/v1/schedules/others", {**schedule, "queue": QUEUE})).status == 200
    assert (await billing.ask("PUT", "/v1/schedules/own", {**schedule, "queue": "billing.eu"})).status == 200
    denied(await billing.ask("PUT", "/v1/schedules/third", {**schedule, "queue": QUEUE}))
    denied(await billing.ask("PUT", "/v1/schedules/others", {**schedule, "queue": "billing.eu"}))
    assert [it["name"] for it in (await billing.ask("GET", "/v1/schedules")).json()["schedules"]] == ["own"]
    for method in ("GET", "DELETE"):
        refused(await billing.ask(method, "/v1/schedules/others"), 404, "schedule-not-found")
    assert (await everybody.ask("GET", "/v1/schedules/others")).json()["queue"] == QUEUE


async def test_a_scope_that_is_missing_is_named() -> None:
    with pytest.raises(AccessDenied, match="'admin'"):
        Caller(scopes=frozenset({Scope.READ})).need(Permission(Scope.ADMIN))


async def test_a_pattern_with_many_stars_costs_little_on_a_long_name() -> None:
    """It was a regular expression once, which tried every way to share the name out among the stars."""
    caller = Caller(queues=("*a" * 8 + "b", "orders-*"))
    assert not caller.sees_queue("a" * 200)
    assert not caller.sees_queue("orders-" + "a" * 1_000_000)
    assert caller.sees_queue("orders-" + "a" * 100)
