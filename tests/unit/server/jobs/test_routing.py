"""The endpoint answers whatever is asked of the job API by itself: routes, documents, and what is not there."""

from __future__ import annotations

import json

import pytest

from penstock import __version__
from penstock.server.jobs.call import Streamed
from penstock.server.jobs.endpoint import Endpoint
from penstock.wire.http import Request, Response


async def ask(endpoint: Endpoint, method: str, path: str) -> Response:
    answer = await endpoint.respond(Request(method, path, "", {"authorization": "Bearer of-all"}, b""))
    assert not isinstance(answer, Streamed)
    return answer


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_documents_are_there(endpoint: Endpoint, method: str) -> None:
    document = await ask(endpoint, method, "/openapi.json")
    assert (document.status, document.headers) == (200, [("content-type", "application/json")])
    assert json.loads(document.body)["info"] == {"title": "Penstock jobs", "version": __version__}
    page = await ask(endpoint, method, "/docs")
    assert (page.status, dict(page.headers)["content-type"]) == (200, "text/html; charset=utf-8")
    assert dict(page.headers)["content-security-policy"].startswith("default-src 'none'")


async def test_every_route_is_in_the_document_in_its_order(endpoint: Endpoint) -> None:
    document = json.loads((await ask(endpoint, "GET", "/openapi.json")).body)
    told = [(each["operationId"], method) for methods in document["paths"].values() for method, each in methods.items()]
    assert sorted(told) == sorted((route.name, route.method.lower()) for route in endpoint.routes)
    assert list(document["paths"]) == list(dict.fromkeys(route.path for route in endpoint.routes))


@pytest.mark.parametrize("path", ["/v1/", "/v1/nothing", "/v1/jobs/", "/docs/", "/openapi.json/", "/redoc", "/dlq/x"])
async def test_what_is_not_there_is_a_problem(endpoint: Endpoint, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        answer = await ask(endpoint, method, path)
        assert (answer.status, json.loads(answer.body)["type"]) == (404, "urn:penstock:problem:not-found")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/jobs", "GET, POST"),
        ("/v1/queues/orders", "DELETE, GET, PATCH, PUT"),
        ("/v1/jobs/x", "GET"),
        ("/docs", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
    ],
)
@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
async def test_what_is_not_done_at_a_place_names_what_is(
    endpoint: Endpoint, path: str, allowed: str, method: str
) -> None:
    answer = await ask(endpoint, method, path)
    assert (answer.status, dict(answer.headers)["allow"]) == (405, allowed)
    assert json.loads(answer.body)["type"] == "urn:penstock:problem:method-not-allowed"
