"""A flood: sends as fast as they are accepted, while consumers take only a few of the messages."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from benchmarks.findings import Figure
from benchmarks.http_handover import Client
from benchmarks.http_requests import RequestWriter
from benchmarks.http_servers import with_queue
from benchmarks.process import memory_bytes_of
from benchmarks.scaling.findings import Flood, Window

if TYPE_CHECKING:
    from benchmarks.http_servers import Serving
    from benchmarks.scaling.place import Place

CONSUMERS = 4
_PAUSE_SECONDS = 0.05
"""How long a slow consumer thinks about ten messages."""
_HANDLES = re.compile(rb'"ReceiptHandle": ?"([^"]+)"')


async def flood(place: Place) -> Flood:
    """Flood a server, and look at it again and again."""
    async with AsyncExitStack() as opened:
        serving = with_queue(place.server(opened), "flood")
        place.narrator.say(f"A flood of sends and {CONSUMERS} slow consumers …")
        before_bytes = memory_bytes_of(serving.pid)
        consumed = _Consumed()
        consumers = [asyncio.create_task(_consume(serving, consumed)) for _ in range(CONSUMERS)]
        windows: list[Window] = []
        sent = 0
        try:
            for _ in range(place.scope.flood_windows):
                rate = await place.generator.run(place.job(serving, kind="send"))
                sent += rate.messages
                windows.append(
                    Window(rate=rate, memory_bytes=memory_bytes_of(serving.pid), waiting=sent - consumed.messages)
                )
                for consumer in consumers:
                    if consumer.done():
                        consumer.result()
        finally:
            for consumer in consumers:
                consumer.cancel()
            for consumer in consumers:
                with contextlib.suppress(asyncio.CancelledError):
                    await consumer
    return Flood(windows=windows, consumed=consumed.messages, figures=_figures(windows, before_bytes))


class _Consumed:
    messages = 0


async def _consume(serving: Serving, consumed: _Consumed) -> None:
    writer, client = RequestWriter(f"127.0.0.1:{serving.port}", serving.queue_url, ["none"]), Client(serving.port)
    try:
        while True:
            answer, _ = await client.ask(writer.receive(10))
            handles = [handle.decode() for handle in _HANDLES.findall(answer)]
            await asyncio.sleep(_PAUSE_SECONDS)
            if handles:
                await client.ask(writer.delete(handles, batch=True))
                consumed.messages += len(handles)
    finally:
        client.close()


def _figures(windows: list[Window], before_bytes: int) -> list[Figure]:
    third = max(1, len(windows) // 3)
    early, late = windows[:third], windows[-third:]
    p99 = [max(window.rate.latency.p99_ms for window in each) for each in (early, late)]
    cpu = [sum(window.rate.cpu_us_per_operation for window in each) / third for each in (early, late)]
    grown_mb = (windows[-1].memory_bytes - before_bytes) / 1e6
    waiting = max(1, windows[-1].waiting)
    return [
        Figure(
            name="p99 of accepted sends, last third to first", value=round(p99[1] / (p99[0] or math.inf), 2), unit="×"
        ),
        Figure(
            name="processor time a send, last third to first", value=round(cpu[1] / (cpu[0] or math.inf), 2), unit="×"
        ),
        Figure(name="memory gained in all", value=round(grown_mb, 1), unit="MB"),
        Figure(name="memory for each waiting message", value=round(grown_mb * 1e6 / waiting, 1), unit="bytes"),
    ]
