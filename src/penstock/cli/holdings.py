"""What a store holds, counted once when a server starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from penstock.domain.errors import QueueDoesNotExist
from penstock.domain.job import JobState
from penstock.domain.job_errors import JobQueueDoesNotExist
from penstock.domain.queue import Queue
from penstock.engine.engine import Engine
from penstock.engine.jobs.queues import depth

COUNT_S_MAX = 1.0
"""A start waits no longer than this for numbers that are only shown."""
QUEUES_MAX = 1_000


class Holdings(msgspec.Struct, kw_only=True):
    """How many queues there are, and what is in them."""

    sqs_queues: int = 0
    job_queues: int = 0
    waiting: int = 0
    dead: int = 0
    """Dead jobs, and messages in dead-letter queues."""


async def count_holdings(engine: Engine) -> Holdings | None:
    """Count what a store holds; None if it holds more than can be counted in a moment."""
    try:
        async with asyncio.timeout(COUNT_S_MAX):
            return await _count(engine)
    except TimeoutError:
        return None


async def _count(engine: Engine) -> Holdings | None:
    held = Holdings()
    queues: list[Queue] = []
    async for queue in _sqs_queues(engine):
        queues.append(queue)
        if len(queues) > QUEUES_MAX:
            return None
    dead_letters = {
        queue.attributes.redrive.dead_letter_queue for queue in queues if queue.attributes.redrive is not None
    }
    for queue in queues:
        try:
            counts = await engine.queues.count(queue.name)
        except QueueDoesNotExist:
            continue  # Another node deleted it since it was listed.
        held.sqs_queues += 1
        waiting = counts.visible + counts.delayed
        if queue.name in dead_letters:
            held.dead += waiting + counts.in_flight
        else:
            held.waiting += waiting
    return await _count_jobs(engine, held)


async def _count_jobs(engine: Engine, held: Holdings) -> Holdings | None:
    after: str | None = ""
    while after is not None:
        page = await engine.jobs.queues.list_queues(after=after)
        for queue in page.queues:
            try:
                counts = await engine.jobs.queues.counts(queue)
            except JobQueueDoesNotExist:
                continue  # As above.
            held.job_queues += 1
            held.waiting += depth(counts)
            held.dead += counts.by_state.get(JobState.DEAD, 0)
        if held.job_queues > QUEUES_MAX:
            return None
        after = page.after
    return held


async def _sqs_queues(engine: Engine) -> AsyncIterator[Queue]:
    places = await engine.queues.list_places()
    while places:
        for region, account in places:
            after: str | None = ""
            while after is not None:
                page = await engine.queues.list_queues(region, account, after=after)
                for queue in page.queues:
                    yield queue
                after = page.after
        places = await engine.queues.list_places(after=places[-1])
