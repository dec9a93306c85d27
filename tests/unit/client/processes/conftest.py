"""Pools for tests, and what answers their children."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for one call here.
import pytest
import uvloop

from penstock.client.worker.processes.frames import Assignment
from penstock.client.worker.processes.pool import Pool

MODULE = "tests.unit.client.processes.assigned"


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run these tests on both loops that a worker runs on."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


Running = asyncio.Task[bytes]
MakeDesk = Callable[..., "Desk"]


def exists(pid: int) -> bool:
    """Return whether there is such a process, be it a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def children() -> set[int]:
    """Return the pids of the children that this process has now, zombies included."""
    return {child.pid for child in psutil.Process().children()}


async def ended(pidfd: int) -> None:
    """Wait until a process has ended, whoever is its parent."""
    loop = asyncio.get_running_loop()
    seen = asyncio.Event()
    loop.add_reader(pidfd, seen.set)
    try:
        async with asyncio.timeout(10):
            await seen.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


class Desk:
    """Runs functions in a pool's children, and lets a test see and hold up what they ask."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.asked: asyncio.Queue[bytes] = asyncio.Queue()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.cancelled = 0

    async def handle(self, request: bytes) -> bytes:
        await self.asked.put(request)
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            await self.turns()  # Whoever cancels it has to wait for it.
            self.cancelled += 1
            raise
        return b"answer to " + request

    def run(self, function: str, call: bytes = b"", *, module: str = MODULE, kill_after_s: float = 0.0) -> Running:
        assignment = Assignment(module=module, qualname=function, call=call)
        return asyncio.create_task(self.pool.run(assignment, handle=self.handle, kill_after_s=kill_after_s))

    async def asked_pid(self) -> int:
        return int(await self.asked.get())

    async def turns(self) -> None:
        """Let the loop do all that it can do now."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def idle_pid(self) -> int:
        return int(await self.run("pid"))


@pytest.fixture
async def make_desk() -> AsyncIterator[MakeDesk]:
    desks: list[Desk] = []

    def make(
        size: int = 1, *, entry: str = f"{MODULE}:entry", recycle_after: int | None = None, start_s: float = 30.0
    ) -> Desk:
        desks.append(Desk(Pool(entry=entry, size=size, recycle_after=recycle_after, start_s=start_s)))
        return desks[-1]

    yield make
    for desk in desks:
        await desk.pool.close()


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    return make_desk()
