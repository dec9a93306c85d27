"""The list of workers: what this node knows of its own, kept in the store, and what all nodes have kept there."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from penstock.domain.errors import StoreUnavailable
from penstock.domain.job_errors import JobInvalid
from penstock.domain.job_request import check_range
from penstock.domain.limits import SECOND_MS
from penstock.domain.worker import Worker, WorkerKind
from penstock.engine.jobs.pages import every_name, read_page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.job_limits import JobLimits
    from penstock.store.job_port import JobStore

SAVE_MS = SECOND_MS
"""How soon the store has a worker that is new, or is rid of one that is gone."""

BATCH = 500
GONE_MAX = 10_000
"""How many that are gone are remembered while the store does not answer; others are removed once they are stale."""

_log = logging.getLogger(__name__)


class Poll:
    """The polls of one worker name for the same queues and tasks. It is seen as long as one of them waits."""

    __slots__ = ("_clock", "count", "id", "open", "queues", "seen_at_ms", "since_at_ms", "tasks", "worker")

    def __init__(
        self, poll_id: str, worker: str, queues: tuple[str, ...], tasks: tuple[str, ...] | None, clock: Clock
    ) -> None:
        self.id = poll_id
        self.worker = worker
        self.queues = queues
        self.tasks = tasks
        self.count = 0
        self.open = 0
        self.since_at_ms = self.seen_at_ms = clock.now_ms()
        self._clock = clock

    def end(self) -> None:
        """Take in that a poll was answered, or that its worker left."""
        self.open -= 1
        self.seen_at_ms = self._clock.now_ms()

    def seen(self) -> Worker:
        """Say what is known of it now."""
        return Worker(
            id=self.id,
            name=self.worker,
            kind=WorkerKind.POLL,
            queues=self.queues,
            tasks=self.tasks,
            credit=self.count,
            since_at_ms=self.since_at_ms,
            seen_at_ms=self._clock.now_ms() if self.open else self.seen_at_ms,
        )


class WorkerPage(NamedTuple):
    """Workers by name, and what asks for those that follow; None is the end."""

    workers: list[Worker]
    after: str | None


class Workers:
    """Who is connected. Polls and streams only note in memory that they are here; `save` keeps it in the store.

    `expect` is called with how soon, in ms, that is to be done.
    """

    def __init__(
        self, store: JobStore, clock: Clock, ids: IdSource, limits: JobLimits, expect: Callable[[int], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._expect = expect
        self._here: dict[str, Callable[[], Worker]] = {}
        """By id, what says what is known of a worker."""
        self._unsaved: set[str] = set()
        self._gone: dict[str, Worker] = {}
        self._polls: dict[tuple[str, tuple[str, ...], tuple[str, ...] | None], Poll] = {}
        self._all_at_ms = 0
        """When all are to be saved again."""
        self._saving = asyncio.Lock()

    def enter(self, seen: Callable[[], Worker], worker_id: str) -> None:
        """Note a worker that is here from now on; `seen` says what is known of it."""
        self._here[worker_id] = seen
        self._unsaved.add(worker_id)
        self._expect(SAVE_MS)

    def leave(self, worker_id: str) -> None:
        """Note that a worker is here no longer."""
        seen = self._here.pop(worker_id, None)
        if seen is not None:
            self._unsaved.discard(worker_id)
            if len(self._gone) < GONE_MAX:
                self._gone[worker_id] = seen()
            self._expect(SAVE_MS)

    def polling(self, worker: str, queues: Sequence[str], *, count: int, tasks: tuple[str, ...] | None = None) -> Poll:
        """Note that a poll begins; whoever calls this calls `end` of what it returns."""
        key = (worker, tuple(queues), tasks)
        poll = self._polls.get(key)
        if poll is None:
            if len(self._polls) >= self._limits.polls_listed_max:
                self.leave(self._polls.pop(next(iter(self._polls))).id)
            poll = self._polls[key] = Poll(self._ids.new_id(), *key, self._clock)
            self.enter(poll.seen, poll.id)
        poll.open += 1
        poll.count = count
        return poll

    async def save(self) -> int:
        """Keep in the store who is new, and every `limits.keep_alive_ms` all who are here; return in how many ms next.

        Who is gone, or has not polled for long, is removed.
        """
        async with self._saving:
            now_ms = self._clock.now_ms()
            self._drop_idle_polls(now_ms)
            in_full = now_ms >= self._all_at_ms
            ids = list(self._here if in_full else self._unsaved)
            seen, gone = [self._here[worker_id]() for worker_id in ids], list(self._gone.values())
            for start in range(0, max(len(seen), len(gone), int(in_full)), BATCH):
                await self._store.note_workers(seen[start : start + BATCH], gone[start : start + BATCH], now_ms=now_ms)
            self._unsaved.difference_update(ids)
            for worker in gone:
                self._gone.pop(worker.id, None)
            if in_full:
                self._all_at_ms = now_ms + self._limits.keep_alive_ms
            return self._all_at_ms - now_ms

    async def page(
        self,
        *,
        after: str = "",
        limit: int,
        queue: str | None = None,
        sees_queue: Callable[[str], bool] = every_name,
    ) -> WorkerPage:
        """List the workers of all nodes by name, those that serve a queue which the caller `sees`.

        This node's are all there; what came to another node, or left it, in the last second may not show yet.
        """
        check_range("limit", limit, 1, self._limits.list_page_max)
        await self.save()
        found = await read_page(
            lambda after, limit: self._store.workers(after=_place(after), limit=limit, queue=queue),
            lambda worker: any(map(sees_queue, worker.queues)),
            after,
            limit,
            key=lambda worker: f"{worker.id}:{worker.name}",
        )
        return WorkerPage(*found)

    async def close(self) -> None:
        """Take all who were here off the list. If the store does not answer, they go once they are stale."""
        for worker_id in list(self._here):
            self.leave(worker_id)
        self._polls.clear()
        try:
            await self.save()
        except StoreUnavailable as error:
            _log.warning("The workers of this node stay on the list until they are stale: %s", error.reason)

    def _drop_idle_polls(self, now_ms: int) -> None:
        stale_ms = now_ms - self._limits.worker_stale_ms
        for key, poll in [(key, poll) for key, poll in self._polls.items() if not poll.open]:
            if poll.seen_at_ms <= stale_ms:
                del self._polls[key]
                self.leave(poll.id)


def _place(after: str) -> tuple[str, str]:
    """Read where a page ended: an id and a name."""
    worker_id, colon, name = after.partition(":")
    if after and not colon:
        raise JobInvalid("after is not what an earlier page ended with.", "after")
    return name, worker_id
