"""What a call costs by each way to the store: the engine in the process, a Unix socket, TCP; ours and aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from benchmarks.errors import WorkFailed
from benchmarks.http_servers import penstock_server
from benchmarks.process import cpu_seconds_of
from penstock import Penstock
from penstock.client.reading import new_id
from penstock.domain.job_request import JobRequest
from penstock.engine import Engine
from penstock.store.job_port import Accept, Complete

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Cycle = Callable[[str], Awaitable[object]]
    """Takes one job of a queue through its life: enqueue, dequeue, accept, complete."""

CALLS_PER_CYCLE = 4
CALLERS = (1, 16)
ENGINE = "engine in the process"
PAYLOAD = {"to": "ada@example.org", "text": "x" * 200}


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way with a number of callers. Figures are medians over the rounds, per call."""

    name: str
    callers: int
    cpu_us: float
    """Of client and server together."""
    cpu_ratio: float
    """As a multiple of the engine in the process, round by round; the same holds below."""
    p50_us: float
    p50_ratio: float


class WaysReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    seconds: float
    rounds: int
    ways: list[Way]


class _Turn(msgspec.Struct, frozen=True):
    cpu_us: float
    p50_us: float


async def run_ways(seconds: float, rounds: int) -> WaysReport:
    """Measure all ways in turns, each for `seconds` a round and with each number of callers."""
    turns: dict[tuple[str, int], list[_Turn]] = {}
    with tempfile.TemporaryDirectory() as name:
        async with _ways(Path(name)) as ways:
            for number in range(rounds + 1):
                for callers in CALLERS:
                    for way, (cycle, server) in ways.items():
                        turn = await _turn(cycle, server, callers, f"{way}-{number}-{callers}", seconds)
                        # The first round warms everything up.
                        if number:
                            turns.setdefault((way, callers), []).append(turn)
    return WaysReport(
        seconds=seconds,
        rounds=rounds,
        ways=[_summary(*key, each, turns[ENGINE, key[1]]) for key, each in turns.items()],
    )


def _summary(name: str, callers: int, turns: list[_Turn], engine: list[_Turn]) -> Way:
    return Way(
        name=name,
        callers=callers,
        cpu_us=statistics.median(turn.cpu_us for turn in turns),
        cpu_ratio=statistics.median(turn.cpu_us / one.cpu_us for turn, one in zip(turns, engine, strict=True)),
        p50_us=statistics.median(turn.p50_us for turn in turns),
        p50_ratio=statistics.median(turn.p50_us / one.p50_us for turn, one in zip(turns, engine, strict=True)),
    )


async def _turn(cycle: Cycle, server: int | None, callers: int, queue: str, seconds: float) -> _Turn:
    """Let callers take jobs through their lives, one after the other."""
    queue = queue.replace(" ", "-").replace(",", "")
    await cycle(queue)
    times: list[float] = []
    began_cpu_s = time.process_time() + (0.0 if server is None else cpu_seconds_of(server))
    until = time.perf_counter() + seconds

    async def caller() -> None:
        while (began := time.perf_counter()) < until:
            await cycle(queue)
            times.append(time.perf_counter() - began)

    await asyncio.gather(*(caller() for _ in range(callers)))
    cpu_s = time.process_time() + (0.0 if server is None else cpu_seconds_of(server)) - began_cpu_s
    calls = len(times) * CALLS_PER_CYCLE
    return _Turn(cpu_s / calls * 1e6, statistics.median(times) / CALLS_PER_CYCLE * 1e6)


@contextlib.asynccontextmanager
async def _ways(folder: Path) -> AsyncIterator[dict[str, tuple[Cycle, int | None]]]:
    """Open every way: by name, what takes a job through its life, and the process that serves it."""
    shared = folder / "shared.db"
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(Engine.open(f"sqlite:{folder / 'engine.db'}"))
        server = stack.enter_context(penstock_server(folder))
        tcp = await stack.enter_async_context(Penstock(f"http://127.0.0.1:{server.port}"))
        unix = await stack.enter_async_context(Penstock(f"sqlite:{shared}"))
        await unix.queues.list()
        owner = _owner_of(shared)
        by_unix = aiohttp.ClientSession("http://localhost", connector=aiohttp.UnixConnector(f"{shared}.sock"))
        by_tcp = aiohttp.ClientSession(f"http://127.0.0.1:{server.port}")
        yield {
            ENGINE: (_engine_cycle(engine), None),
            "Unix socket": (_client_cycle(unix), owner),
            "TCP": (_client_cycle(tcp), server.pid),
            "aiohttp, Unix socket": (_aiohttp_cycle(await stack.enter_async_context(by_unix)), owner),
            "aiohttp, TCP": (_aiohttp_cycle(await stack.enter_async_context(by_tcp)), server.pid),
        }


def _owner_of(database: Path) -> int:
    return int(json.loads(Path(f"{database}.lock").read_text())["pid"])


def _engine_cycle(engine: Engine) -> Cycle:
    jobs, payload = engine.jobs, msgspec.json.encode(PAYLOAD)

    async def cycle(queue: str) -> None:
        await jobs.enqueueing.enqueue(queue, JobRequest(task="greet", payload=payload))
        [offer] = await jobs.offering.poll([queue], count=1, worker="w", wait_ms=10_000)
        await jobs.reports.report(Accept(offer.lease))
        await jobs.reports.report(Complete(offer.lease, b"true"))

    return cycle


def _client_cycle(app: Penstock) -> Cycle:
    async def cycle(queue: str) -> None:
        await app.jobs.enqueue(queue, "greet", PAYLOAD)
        [offer] = (await app.work.dequeue([queue], worker="w", wait=10)).offers
        await app.work.accept(offer.token)
        await app.work.complete(offer.token, True)

    return cycle


def _aiohttp_cycle(session: aiohttp.ClientSession) -> Cycle:
    async def post(path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        async with session.post(path, data=b"" if body is None else msgspec.json.encode(body)) as answer:
            text = await answer.read()
            if answer.status >= 300:
                raise WorkFailed(f"{path} was answered with {answer.status}: {text[:200]!r}.")
            return msgspec.json.decode(text)

    async def cycle(queue: str) -> None:
        await post("/v1/jobs", {"queue": queue, "task": "greet", "payload": PAYLOAD, "id": new_id()})
        wanted = {"queues": [queue], "worker": "w", "wait_ms": 10_000, "request_id": new_id()}
        [offer] = (await post("/v1/dequeue", wanted))["offers"]
        await post(f"/v1/leases/{offer['token']}/accept")
        await post(f"/v1/leases/{offer['token']}/complete", {"result": True})

    return cycle
