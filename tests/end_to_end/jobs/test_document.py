"""The OpenAPI document is true: what it says can be asked for is answered, and never by a failure of the server."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from tests.end_to_end.jobs.api import Api
from tests.end_to_end.running import STOP_TIMEOUT_S
from tests.support.exploring import EXPLORING

EXAMPLES = 8
"""For each operation; always the same ones."""


def test_the_document_names_every_place(api: Api) -> None:
    document = api.client.get("/openapi.json").json()
    operations = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert {"POST /v1/jobs", "POST /v1/dequeue", "POST /v1/leases/{token}/complete", "GET /v1/jobs/{id}"} <= operations
    assert len(operations) >= 40
    accepted = document["paths"]["/v1/jobs"]["post"]["responses"]["202"]["content"]["application/json"]["schema"]
    assert accepted == {"$ref": "#/components/schemas/Accepted"}
    assert document["components"]["schemas"]["NewJob"]["properties"]["priority"]["maximum"] == 9


def test_the_page_for_people_has_everything_and_fetches_nothing(api: Api) -> None:
    document = api.client.get("/openapi.json").json()
    answer = api.client.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    page = Page()
    page.feed(answer.text)
    operations = {each["operationId"] for methods in document["paths"].values() for each in methods.values()}
    assert operations | {f"schema-{name}" for name in document["components"]["schemas"]} <= page.ids
    assert page.links - {"/openapi.json"} == {f"#{name}" for name in page.pointed_at}
    assert page.pointed_at <= page.ids
    assert page.tags.isdisjoint({"script", "link", "img", "iframe"})
    assert "urn:penstock:problem:too-many" in answer.text


class Page(HTMLParser):
    """What a page has and points to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: set[str] = set()
        self.links: set[str] = set()

    @property
    def pointed_at(self) -> set[str]:
        return {link[1:] for link in self.links if link.startswith("#")}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id" and value is not None:
                self.ids.add(value)
            elif name in {"href", "src"} and value is not None:
                self.links.add(value)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_nothing_that_can_be_asked_for_fails_the_server(own_api: Api, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_dict(own_api.client.get("/openapi.json").json())
    asked = 0
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        try:
            strategy = operation.as_strategy(generation_mode=mode)
            ask_all(own_api, strategy)
        except hypothesis.errors.Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # Nothing is wrong where nothing is asked for.
        else:
            asked += 1
    assert asked > 20


def ask_all(api: Api, strategy: st.SearchStrategy[schemathesis.Case[Any]]) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=not EXPLORING,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def ask(case: schemathesis.Case[Any]) -> None:
        if isinstance(case.body, dict) and "wait_ms" in case.body:
            case.body["wait_ms"] = 0
        answer = case.call(base_url=str(api.client.base_url), timeout=STOP_TIMEOUT_S)
        assert answer.status_code < 500, f"{case.as_curl_command()}: {answer.text}"

    ask()
