"""Streams of offers as lines of JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from penstock.engine.engine import Engine
from penstock.server.jobs import serving
from penstock.server.jobs.call import Streamed
from penstock.testing import ManualClock
from tests.support.job_service import make_queue
from tests.support.job_streams import turns
from tests.unit.server.jobs.conftest import QUEUE, Api

OFFER_MS = 10_000
KEEP_ALIVE_MS = 15_000


async def line_after(stream: Streamed, clock: ManualClock, ms: int) -> dict[str, Any]:
    """Read the line that comes when so much time has passed."""
    reading = asyncio.ensure_future(anext(stream.chunks))
    await turns()
    assert not reading.done()
    await clock.advance(ms=ms)
    return dict(json.loads(await reading))


async def test_a_worker_is_told_that_it_is_held_back_until_it_is_heard_from(
    api: Api, engine: Engine, clock: ManualClock
) -> None:
    await make_queue(engine.jobs, QUEUE, offer_ms=OFFER_MS)
    job_id = await api.enqueue()
    stream = await api.open("POST", "/v1/dequeue", {"queues": [QUEUE], "worker": "w"}, accept="application/x-ndjson")
    assert isinstance(stream, Streamed)
    name = json.loads(await anext(stream.chunks))["stream"]
    offer = json.loads(await anext(stream.chunks))["offer"]
    for ms in (OFFER_MS, KEEP_ALIVE_MS, KEEP_ALIVE_MS):
        assert await line_after(stream, clock, ms) == {"keep_alive": True, "held_back": True}
    refused = await api.report(offer["token"], "accept")
    assert refused.status == 409
    again = json.loads(await anext(stream.chunks))["offer"]
    assert again["id"] == job_id
    assert await line_after(stream, clock, OFFER_MS) == {"keep_alive": True, "held_back": True}
    credit = await api.ask("POST", f"/v1/dequeue/{name}/credit", {"add": 0})
    assert credit.json() == {"credit": 1, "taken": 0}
    again = json.loads(await anext(stream.chunks))["offer"]
    assert (await api.report(again["token"], "accept")).status == 200
    assert await line_after(stream, clock, KEEP_ALIVE_MS) == {"keep_alive": True}
    stream.closed()
    await stream.chunks.aclose()


async def test_a_stream_that_ends_while_it_is_cancelled_is_closed(api: Api, engine: Engine) -> None:
    stream = await api.open("POST", "/v1/dequeue", {"queues": [QUEUE]}, accept="application/x-ndjson")
    assert isinstance(stream, Streamed)
    gone = asyncio.get_running_loop().create_future()

    async def send(_event: object) -> None:
        await asyncio.sleep(0)

    writing = asyncio.create_task(serving._stream(stream, gone, send))  # noqa: SLF001 - it has no other door
    await turns()
    assert len(engine.jobs.streams) == 1
    for _ in range(2):
        writing.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([writing])
    assert len(engine.jobs.streams) == 0
