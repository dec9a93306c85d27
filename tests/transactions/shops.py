"""A shop whose orders become jobs, as tests look at it from outside."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from penstock import Penstock, Task
from penstock.client.errors import QueueNotFound

PATIENCE_S = 45.0
PAGE = 500


class Shop:
    """An app with one task, `confirm`, in a queue of the test's own."""

    def __init__(self, app: Penstock, queue: str, confirm: Task[[int], None, None]) -> None:
        self.app = app
        self.queue = queue
        self.confirm = confirm

    async def jobs(self, queue: str | None = None) -> list[Any]:
        """Return all jobs of a queue, the oldest first."""
        found: list[Any] = []
        cursor = None
        while True:
            try:
                page = await self.app.jobs.list(queue=queue or self.queue, limit=PAGE, cursor=cursor)
            except QueueNotFound:
                return []
            found += page.jobs
            if page.cursor is None:
                return found[::-1]
            cursor = page.cursor

    async def ids(self, queue: str | None = None) -> list[str]:
        return [job.id for job in await self.jobs(queue)]

    async def orders(self, queue: str | None = None) -> list[int]:
        """Return the orders of all jobs of a queue, in the order in which they were enqueued."""
        found = []
        for job in await self.jobs(queue):
            payload = (await self.app.jobs.get(job.id)).payload
            found.append(msgspec.json.decode(payload)["order"])
        return found

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(await self.jobs()) < count:  # noqa: ASYNC110 - nobody tells this process
                await asyncio.sleep(0.01)


def shop_of(app: Penstock, queue: str) -> Shop:
    @app.task(name="confirm", queue=queue)
    def confirm(order: int) -> None: ...

    return Shop(app, queue, confirm)
