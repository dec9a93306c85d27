"""A program with a child that hangs in C, one that waits for an answer and one that is idle; it prints their pids."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.client.worker.processes.frames import Assignment
from penstock.client.worker.processes.pool import Pool

MODULE = "tests.unit.client.processes.assigned"


async def main() -> None:
    pool = Pool(entry=f"{MODULE}:entry", size=3)
    pids: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(request: bytes) -> bytes:
        await pids.put(request)
        return b""

    async def never_answer(request: bytes) -> bytes:
        await pids.put(request)
        await asyncio.Event().wait()
        return b""

    def start(function: str, handle: Callable[[bytes], Awaitable[bytes]] = answer) -> asyncio.Task[bytes]:
        assignment = Assignment(module=MODULE, qualname=function, call=b"")
        return asyncio.create_task(pool.run(assignment, handle=handle))

    running = [start("hang_in_c"), start("finish_after_answer", never_answer)]
    found = [await pids.get(), await pids.get(), await start("pid")]
    print(*(pid.decode() for pid in found), flush=True)  # noqa: T201 - the test reads it
    await asyncio.gather(*running)


if __name__ == "__main__":
    asyncio.run(main())
