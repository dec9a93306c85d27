"""The client's transport beside httpx and aiohttp: single enqueues to one server, in turns."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import httpx
import msgspec

from benchmarks.errors import WorkFailed
from benchmarks.http_servers import penstock_server
from benchmarks.process import cpu_seconds_of
from penstock import Penstock
from penstock.client.reading import new_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Enqueue = Callable[[str], Awaitable[object]]

CALLERS = 16
PAYLOAD = {"to": "ada@example.org", "text": "x" * 200}


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of one client, from its second call on: connections and TLS settings are made by then."""

    calls: int
    seconds: float
    client_cpu_seconds: float
    server_cpu_seconds: float = 0.0


class _Watch:
    """Measures a turn."""

    def __init__(self) -> None:
        self._began_s, self._cpu_s = time.perf_counter(), time.process_time()

    def turn(self, calls: int) -> Turn:
        return Turn(
            calls=calls,
            seconds=time.perf_counter() - self._began_s,
            client_cpu_seconds=time.process_time() - self._cpu_s,
        )


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """One client over all rounds; the figures are medians."""

    name: str
    callers: int
    calls_per_s: float
    client_cpu_us: float
    """Of the client's process, for each call."""
    server_cpu_us: float
    client_cpu_ratio: float
    """As a multiple of ours with as many callers, round by round."""


class ClientReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    seconds: float
    rounds: int
    contenders: list[Contender]


async def run_client(seconds: float, rounds: int) -> ClientReport:
    """Measure all clients in turns, each for `seconds` a round."""
    with tempfile.TemporaryDirectory() as folder, penstock_server(Path(folder)) as server:
        url = f"http://127.0.0.1:{server.port}"
        contenders = {
            ("penstock", CALLERS): _penstock,
            ("aiohttp", CALLERS): _aiohttp,
            ("httpx", CALLERS): _httpx,
            ("penstock sync", 1): _penstock_sync,
            ("httpx sync", 1): _httpx_sync,
        }
        turns: dict[tuple[str, int], list[Turn]] = {key: [] for key in contenders}
        keys = list(contenders)
        # One turn that does not count: the server warms up, and so does the first store.
        await _turn(contenders[keys[0]], url, "warm", server.pid, seconds)
        for number in range(rounds):
            first = number % len(keys)
            for key in keys[first:] + keys[:first]:
                queue = f"{key[0]}-{number}".replace(" ", "-")
                turns[key].append(await _turn(contenders[key], url, queue, server.pid, seconds))
    ours = {CALLERS: turns["penstock", CALLERS], 1: turns["penstock sync", 1]}
    return ClientReport(
        seconds=seconds,
        rounds=rounds,
        contenders=[_summary(*key, each, ours[key[1]]) for key, each in turns.items()],
    )


def _summary(name: str, callers: int, turns: list[Turn], ours: list[Turn]) -> Contender:
    return Contender(
        name=name,
        callers=callers,
        calls_per_s=statistics.median(turn.calls / turn.seconds for turn in turns),
        client_cpu_us=statistics.median(_client_us(turn) for turn in turns),
        server_cpu_us=statistics.median(turn.server_cpu_seconds / turn.calls * 1e6 for turn in turns),
        client_cpu_ratio=statistics.median(
            _client_us(turn) / _client_us(our) for turn, our in zip(turns, ours, strict=True)
        ),
    )


def _client_us(turn: Turn) -> float:
    return turn.client_cpu_seconds / turn.calls * 1e6


async def _turn(
    contender: Callable[[str, str, float], Awaitable[Turn]], url: str, queue: str, pid: int, seconds: float
) -> Turn:
    before = cpu_seconds_of(pid)
    turn = await contender(url, queue, seconds)
    return msgspec.structs.replace(turn, server_cpu_seconds=cpu_seconds_of(pid) - before)


async def _together(enqueue: Enqueue, queue: str, seconds: float) -> Turn:
    """Let callers enqueue one job after the other."""
    await asyncio.gather(*(enqueue(queue) for _ in range(CALLERS)))
    watch, until = _Watch(), time.perf_counter() + seconds

    async def caller() -> int:
        count = 0
        while time.perf_counter() < until:
            await enqueue(queue)
            count += 1
        return count

    return watch.turn(sum(await asyncio.gather(*(caller() for _ in range(CALLERS)))))


async def _penstock(url: str, queue: str, seconds: float) -> Turn:
    async with Penstock(url) as app:
        return await _together(lambda name: app.jobs.enqueue(name, "greet", PAYLOAD), queue, seconds)


async def _aiohttp(url: str, queue: str, seconds: float) -> Turn:
    async with aiohttp.ClientSession() as session:

        async def enqueue(name: str) -> None:
            async with session.post(f"{url}/v1/jobs", data=_body(name)) as answer:
                _check(answer.status, await answer.read())

        return await _together(enqueue, queue, seconds)


async def _httpx(url: str, queue: str, seconds: float) -> Turn:
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:

        async def enqueue(name: str) -> None:
            answer = await client.post("/v1/jobs", content=_body(name))
            _check(answer.status_code, answer.content)

        return await _together(enqueue, queue, seconds)


async def _penstock_sync(url: str, queue: str, seconds: float) -> Turn:
    with Penstock(url) as app:
        enqueue = app.sync.jobs.enqueue
        return await _alone(lambda: enqueue(queue, "greet", PAYLOAD), seconds)


async def _httpx_sync(url: str, queue: str, seconds: float) -> Turn:
    with httpx.Client(base_url=url, trust_env=False) as client:

        def enqueue() -> None:
            answer = client.post("/v1/jobs", content=_body(queue))
            _check(answer.status_code, answer.content)

        return await _alone(enqueue, seconds)


async def _alone(enqueue: Callable[[], object], seconds: float) -> Turn:
    """Let one thread without an event loop enqueue one job after the other."""

    def work() -> Turn:
        enqueue()
        watch, until, count = _Watch(), time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            enqueue()
            count += 1
        return watch.turn(count)

    return await asyncio.to_thread(work)


def _body(queue: str) -> bytes:
    return msgspec.json.encode({"queue": queue, "task": "greet", "payload": PAYLOAD, "id": new_id()})


def _check(status: int, body: bytes) -> None:
    if status != 202:
        raise WorkFailed(f"A job was answered with {status}: {body[:200]!r}.")
    msgspec.json.decode(body)
