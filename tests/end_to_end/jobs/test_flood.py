"""A flood far above what a queue takes: all are told so, nothing is kept of them, and the service goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for one call here.
import pytest

from tests.end_to_end.jobs.api import Api
from tests.end_to_end.running import CLIENT_TIMEOUT_S, RunningServer
from tests.support.campaigns import GATHERING_EVIDENCE, campaign

CONNECTIONS = 50
REQUESTS = 800 if GATHERING_EVIDENCE else 400
PAYLOAD = "x" * 200_000
DEPTH_MAX = 150
BURST = 100


@campaign
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("settings", "least", "most", "reason"),
    [
        # What comes at the same time may exceed the bound of a queue that is not strict.
        ({"depth_max": DEPTH_MAX}, DEPTH_MAX, DEPTH_MAX + CONNECTIONS, "queue_full"),
        ({"rate": {"per_second": 0.001, "burst": BURST}}, BURST, BURST, "rate_global"),
    ],
)
def test_a_flood_takes_nothing_down(
    own_api: Api, server: RunningServer, settings: dict[str, Any], least: int, most: int, reason: str
) -> None:
    own_api.make_queue(**settings)
    process = psutil.Process(server.process.pid)
    answers = asyncio.run(flood(server.url, own_api.queue, REQUESTS // 4))
    before_bytes = process.memory_info().rss
    answers += asyncio.run(flood(server.url, own_api.queue, REQUESTS))
    # 80 megabytes or more came in, and of those that were refused nothing is left but what the allocator keeps.
    assert process.memory_info().rss - before_bytes < 50_000_000
    assert set(answers) == {(202, ""), (429, reason)}
    assert least <= answers[202, ""] <= most
    assert own_api.counts() == {"queued": answers[202, ""]}
    assert server.stop()[0] == 0


async def flood(url: str, queue: str, count: int) -> Counter[tuple[int, str]]:
    """Send so many jobs over many connections, and ask meanwhile whether the service is well."""
    limits = httpx.Limits(max_connections=CONNECTIONS)
    answers: Counter[tuple[int, str]] = Counter()
    left = iter(range(count))
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=CLIENT_TIMEOUT_S, trust_env=False) as client:

        async def send() -> None:
            for number in left:
                answer = await client.post("/v1/jobs", json={"queue": queue, "task": "greet", "payload": PAYLOAD})
                assert answer.status_code == 202 or int(answer.headers["retry-after"]) >= 1
                answers[answer.status_code, answer.json().get("reason", "")] += 1
                if number % 20 == 0:
                    assert (await client.get("/healthz")).json() == {"status": "ok"}

        await asyncio.gather(*(send() for _ in range(CONNECTIONS)))
    return answers
