"""Jobs that are known to be refused: answered as any other refusal, without a task and without the store."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.server.jobs.access import Access, Scope
from penstock.server.jobs.counters import JobCounters
from penstock.server.jobs.turning_away import AT_ONCE
from penstock.testing import ManualClock
from penstock.wire.http import Request, Response
from tests.unit.server.jobs.conftest import QUEUE, Api, api_token

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])
JOB = {"queue": QUEUE, "task": "greet", "tenant": "noisy"}


@pytest.fixture
async def flooded(api: Api) -> Api:
    """An API with a queue that takes no more of one tenant, and knows it."""
    settings = {"rate_per_tenant": {"per_second": 0.001, "burst": 1}}
    await api.ask("PUT", f"/v1/queues/{QUEUE}", {"settings": settings})
    await api.enqueue(tenant="noisy")
    assert (await api.ask("POST", "/v1/jobs", JOB)).status == 429
    return api


def begin(api: Api, body: object = JOB, /, **headers: str) -> list[Response] | None:
    """Have a request begun, and return where its answer will be; None if nothing was done."""
    answers: list[Response] = []
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    begun = api.endpoint.begin(Request("POST", "/v1/jobs", "", named, content), answers.append)
    assert begun or not answers
    return answers if begun else None


async def test_a_refusal_that_is_known_is_told_at_once_as_any_other(
    flooded: Api, counted: JobCounters, failpoints: Failpoints
) -> None:
    usual = await flooded.ask("POST", "/v1/jobs", JOB, x_correlation_id="mine")

    def fail() -> None:
        raise StoreUnavailable("The store was asked.")

    failpoints.arm("jobs.enqueue.begun", fail)
    answers = begin(flooded, x_correlation_id="mine")
    assert answers is not None
    [answer] = answers
    assert (answer.status, dict(answer.headers), json.loads(answer.body)) == (429, usual.headers, usual.json())
    assert counted.refused == {"rate_tenant": 3}
    assert counted.requests.requests["EnqueueJob", 429] == 3
    assert failpoints.armed("jobs.enqueue.begun")


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        ({"tenant": "quiet"}, {}),
        ({"idempotency_key": "k"}, {}),
        ({"unique_key": "u"}, {}),
        ({}, {"idempotency_key": "k"}),
        ({}, {"x_idempotency_key": "k"}),
        ({"queue": "absent"}, {}),
        ({"queue": 1}, {}),
    ],
)
async def test_whatever_else_goes_its_usual_way(flooded: Api, change: dict[str, Any], headers: dict[str, str]) -> None:
    assert begin(flooded, {**JOB, **change}, **headers) is None


@pytest.mark.parametrize("body", [b"{", b'{"queue": "\xff"}'])
async def test_what_cannot_be_read_goes_its_usual_way(flooded: Api, body: bytes) -> None:
    assert begin(flooded, body) is None


class Unread(bytes):
    """A body that nobody is to look at."""

    def isascii(self) -> bool:
        raise AssertionError


async def test_before_anything_was_refused_nothing_is_read_twice(api: Api) -> None:
    await api.enqueue()
    assert begin(api, Unread(b"{}")) is None


async def test_long_after_a_refusal_nothing_is_read_twice(flooded: Api, clock: ManualClock) -> None:
    with pytest.raises(AssertionError):
        begin(flooded, Unread(b"{}"))
    await clock.advance(seconds=1_001)
    assert begin(flooded, Unread(b"{}")) is None


async def test_a_clock_that_is_set_back_makes_nobody_wait(
    flooded: Api, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begin(flooded) is not None
    monkeypatch.setattr(clock, "_now_ms", clock.now_ms() - 3_600_000)
    assert begin(flooded) is None


class TestWithTokens:
    """A refusal tells something about a queue, so it is for those who may use it."""

    @pytest.fixture
    def access(self) -> Access:
        return Access(
            [
                api_token("all", *Scope),
                api_token("reader", Scope.READ),
                api_token("other", Scope.ENQUEUE, queues=("elsewhere",)),
                api_token("quiet", Scope.ENQUEUE, tenant="quiet"),
                api_token("noisy", Scope.ENQUEUE, tenant="noisy"),
            ]
        )

    @pytest.fixture
    def api(self, api: Api) -> Api:
        return api.bearing("all")

    @pytest.mark.parametrize(
        ("token", "refused"),
        [("", False), ("reader", False), ("other", False), ("quiet", False), ("noisy", True), ("all", True)],
    )
    async def test_whoever_may_not_use_it_goes_the_usual_way(self, flooded: Api, token: str, refused: bool) -> None:
        assert (begin(flooded, authorization=f"Bearer {token}") is not None) == refused

    async def test_the_tenant_of_a_token_counts(self, flooded: Api) -> None:
        job = {"queue": QUEUE, "task": "greet"}
        assert begin(flooded, job, authorization="Bearer noisy") is not None
        assert begin(flooded, job, authorization="Bearer quiet") is None


async def test_most_of_a_flood_are_told_later_and_all_in_the_end(flooded: Api) -> None:
    begun = [begin(flooded) for _ in range(AT_ONCE + 100)]
    refused = [answers for answers in begun if answers is not None]
    assert len(refused) == AT_ONCE + 100
    assert sum(map(len, refused)) <= AT_ONCE
    while not all(refused):  # noqa: ASYNC110 # Nothing tells, and a test's timeout ends it if it never does.
        await asyncio.sleep(0)
    assert {answer.status for [answer] in refused} == {429}
