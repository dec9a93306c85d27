"""Queues: made, found, changed and deleted; and a cache of them, which other nodes' changes empty."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from penstock.domain.errors import PurgeInProgress, QueueDeletedRecently, QueueDoesNotExist
from penstock.domain.queue import Queue, QueueName
from penstock.store.codec import decode_queue_attributes, decode_tags, encode_queue_attributes, encode_tags
from penstock.store.postgres.sql import statements

if TYPE_CHECKING:
    from collections.abc import Mapping

    import asyncpg

    from penstock.domain.limits import Limits
    from penstock.domain.queue import QueueAttributes
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Session
    from penstock.store.postgres.work import Work

CACHED_S = 1.0
"""How long a queue is believed to be what it was, if no other node says otherwise."""

CACHED_MAX = 10_000

_SQL = statements("queues")

_NUL = "\0"
"""PostgreSQL's texts cannot hold it, so that no name here does, and none with it is asked for."""


def queue_of(row: asyncpg.Record) -> Queue:
    """Read a queue from its row."""
    return Queue(
        id=row["id"],
        name=QueueName(row["region"], row["account"], row["name"]),
        attributes=decode_queue_attributes(row["attributes"]),
        tags=decode_tags(row["tags"]),
        created_at_ms=row["created_at"],
        modified_at_ms=row["modified_at"],
        revision=row["revision"],
    )


def no_queue() -> QueueDoesNotExist:
    """The error of every verb upon a queue that is gone."""
    return QueueDoesNotExist("The specified queue does not exist.")


async def check_exists(session: Session, queue: Queue) -> None:
    """Raise `QueueDoesNotExist` if a queue is gone."""
    if await session.fetchval(_SQL["exists"], queue.id) is None:
        raise no_queue()


class QueueCache:
    """Queues by name, each believed for a second."""

    def __init__(self) -> None:
        self._node = os.urandom(8).hex()
        self._queues: dict[QueueName, tuple[Queue, float]] = {}
        self._changes = 0

    @property
    def changes(self) -> int:
        """Grows with every change: what was read before one may not be remembered after it."""
        return self._changes

    def get(self, name: QueueName) -> Queue | None:
        """Return a queue if it is known well enough."""
        found = self._queues.get(name)
        if found is None or found[1] < asyncio.get_running_loop().time():
            return None
        return found[0]

    def put(self, queue: Queue, *, changes: int) -> None:
        """Remember a queue that was read when so many changes had been seen."""
        if changes != self._changes:
            return
        if len(self._queues) >= CACHED_MAX:
            self._queues.clear()
        self._queues[queue.name] = (queue, asyncio.get_running_loop().time() + CACHED_S)

    def forget(self, name: QueueName) -> None:
        """Forget a queue that was changed."""
        self._changes += 1
        self._queues.pop(name, None)

    def replace(self, name: QueueName, queue: Queue | None, *, changes: int) -> None:
        """Remember what this node has made of a queue, unless others have made changes since so many were seen."""
        alone = changes == self._changes
        self.forget(name)
        if alone and queue is not None:
            self.put(queue, changes=self._changes)

    def news(self, arn: str) -> str:
        """Say to other nodes that a queue was changed."""
        return f"{self._node} {arn}"

    def hear(self, news: str) -> None:
        """Forget a queue that another node has changed."""
        node, arn = news.split(" ")
        if node != self._node:
            self.forget(QueueName.from_arn(arn))

    def clear(self) -> None:
        """Forget all."""
        self._changes += 1
        self._queues.clear()


class Queues:
    """Administration."""

    def __init__(self, work: Work, cache: QueueCache, clock: PinnedClock, limits: Limits) -> None:
        self._work = work
        self._cache = cache
        self._clock = clock
        self._limits = limits

    async def find(self, name: QueueName) -> Queue:
        """Return a queue, from the cache if it is there."""
        queue = self._cache.get(name)
        if queue is not None:
            return queue
        if _NUL in name.arn:
            raise no_queue()
        changes = self._cache.changes
        queue = await self._work.read(lambda session: self._read(session, name))
        if queue is None:
            raise no_queue()
        self._cache.put(queue, changes=changes)
        return queue

    async def create(self, name: QueueName, attributes: QueueAttributes, tags: Mapping[str, str]) -> tuple[Queue, bool]:
        """Create a queue, unless there is one of this name."""
        found = await self._work.read(lambda session: self._read(session, name))
        if found is not None:
            return found, False

        async def create(session: Session) -> tuple[Queue, bool]:
            await session.fetch(_SQL["take_turns"])
            found = await self._read(session, name)
            if found is not None:
                return found, False
            ago_ms = await session.fetchval(_SQL["deleted_ago"], self._clock.pinned_ms, name.arn)
            reuse_ms = self._limits.name_reuse_ms
            # Without a wait, a name is free at once, also where the clock has gone back since.
            if ago_ms is not None and reuse_ms and ago_ms < reuse_ms:
                raise QueueDeletedRecently(
                    f"You must wait {reuse_ms // 1000} seconds after deleting a queue "
                    "before you can create another with the same name."
                )
            await session.fetch(_SQL["free_name"], name.arn)
            row = await session.fetchrow(
                _SQL["create"],
                self._clock.pinned_ms,
                name.region,
                name.account,
                name.name,
                name.arn,
                name.fifo,
                encode_queue_attributes(attributes),
                encode_tags(tags),
                *_copied(attributes),
            )
            await session.fetch(_SQL["tell"], self._cache.news(name.arn))
            assert row is not None
            return queue_of(row), True

        changes = self._cache.changes
        created = await self._work.write(create, tuple[Queue, bool], verb="create_queue")
        self._cache.replace(name, created[0], changes=changes)
        return created

    async def page(self, region: str, account: str, prefix: str, after: str, limit: int) -> list[Queue]:
        """Return queues in the order of their names."""
        if _NUL in f"{region}{account}{prefix}":
            return []
        after = _before_nul(after)
        rows = await self._work.read(lambda session: session.fetch(_SQL["list"], region, account, after, prefix, limit))
        return [queue_of(row) for row in rows]

    async def places(self, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
        """Return regions and accounts that have queues, in their order."""
        rows = await self._work.read(lambda session: session.fetch(_SQL["places"], *after, limit))
        return [(row["region"], row["account"]) for row in rows]

    async def sources(self, name: QueueName, after: str, limit: int) -> list[Queue]:
        """Return the queues whose dead letters go to this one."""
        after = _before_nul(after)
        rows = await self._work.read(lambda session: session.fetch(_SQL["sources"], name.arn, after, limit))
        return [queue_of(row) for row in rows]

    async def save(
        self, queue: Queue, attributes: QueueAttributes | None, tags: Mapping[str, str] | None
    ) -> Queue | None:
        """Replace attributes or tags, unless the queue was changed since."""

        async def save(session: Session) -> Queue | None:
            row = await session.fetchrow(
                _SQL["save"],
                self._clock.pinned_ms,
                queue.id,
                queue.revision,
                None if attributes is None else encode_queue_attributes(attributes),
                None if tags is None else encode_tags(tags),
                *((None, None) if attributes is None else _copied(attributes)),
            )
            if row is None:
                await check_exists(session, queue)
                return None
            await session.fetch(_SQL["tell"], self._cache.news(queue.name.arn))
            return queue_of(row)

        changes = self._cache.changes
        saved = None
        try:
            saved = await self._work.write(save, Queue | None, verb="save_queue")  # type: ignore[arg-type] # A union is a type to msgspec.
        finally:
            # Also after an error: it may have happened.
            self._cache.replace(queue.name, saved, changes=changes)
        return saved

    async def delete(self, queue: Queue) -> None:
        """Delete a queue: its row goes, and its partition is left to the sweeper."""

        async def delete(session: Session) -> bool:
            await session.fetch(_SQL["take_turns"])
            arn = await session.fetchval(_SQL["delete"], self._clock.pinned_ms, queue.id)
            if arn is None:
                raise no_queue()
            await session.fetch(_SQL["tell"], self._cache.news(arn))
            return True

        try:
            await self._work.write(delete, bool, verb="delete_queue")
        finally:
            # Also after an error: it may have happened.
            self._cache.forget(queue.name)

    async def purge(self, queue: Queue) -> None:
        """Give a queue an empty partition, and leave the one it had to the sweeper."""

        async def purge(session: Session) -> bool:
            row = await session.fetchrow(_SQL["lock"], self._clock.pinned_ms, queue.id)
            if row is None:
                raise no_queue()
            if row["purged_ago"] is not None and row["purged_ago"] < self._limits.purge_interval_ms:
                raise PurgeInProgress(
                    f"Only one PurgeQueue operation on {queue.name.name} is allowed "
                    f"every {self._limits.purge_interval_ms // 1000} seconds."
                )
            await session.fetch(_SQL["retire"], row["partition"], row["fifo"])
            await session.fetch(_SQL["purge"], self._clock.pinned_ms, queue.id)
            return True

        await self._work.write(purge, bool, verb="purge_queue")

    @staticmethod
    async def _read(session: Session, name: QueueName) -> Queue | None:
        row = await session.fetchrow(_SQL["find"], name.arn)
        return None if row is None else queue_of(row)


def _before_nul(after: str) -> str:
    """Return a text that the same names come after: without a NUL of their own, all longer ones come after it."""
    return after.partition(_NUL)[0]


def _copied(attributes: QueueAttributes) -> tuple[int, str | None]:
    """What of the attributes has columns of its own: retention, and the dead-letter queue."""
    redrive = attributes.redrive
    return attributes.retention_s * 1000, None if redrive is None else redrive.dead_letter_queue.arn
