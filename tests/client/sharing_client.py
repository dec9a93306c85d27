"""One of several processes that use all verbs on one store: `python -m tests.client.sharing_client URL N FACE`.

It writes what it enqueued and what it completed as one line of JSON, and waits for its input to end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from penstock import NewJob, Penstock, value_of
from tests.client.faces import face_of

QUEUE = "shared"
PROCESSES = 4
SINGLE = 15
TOGETHER = 15
JOBS = PROCESSES * (SINGLE + TOGETHER)


async def enqueue(app: Any, number: int) -> list[str]:
    """Enqueue jobs, one at a time and together, whose payloads are different numbers in all processes."""
    values = iter(range(number, PROCESSES * (SINGLE + TOGETHER), PROCESSES))
    ids = [(await app.jobs.enqueue(QUEUE, "add", next(values))).id for _ in range(SINGLE)]
    entries = await app.jobs.enqueue_many(NewJob(queue=QUEUE, task="add", payload=value) for value in values)
    return ids + [entry.job.id for entry in entries]


async def work(app: Any, queue: str, worker: str, count: int) -> dict[str, int]:
    """Work until as many jobs of the queue have succeeded, whoever did them."""
    done: dict[str, int] = {}
    while (await app.queues.get(queue)).counts.get("succeeded", 0) < count:
        for offer in (await app.work.dequeue([queue], count=3, wait=0.2, worker=worker)).offers:
            await app.work.accept(offer.token)
            await app.work.heartbeat(offer.token)
            await app.work.publish(offer.id, offer.token, "progress", worker)
            value = value_of(offer.payload)
            await app.work.complete(offer.token, value)
            done[offer.id] = value
    return done


async def use_own(app: Any, number: int) -> None:
    """Use the other verbs on a queue of this process alone; nothing that others do shows there."""
    own = f"own-{number}"
    await app.queues.create(own, depth_max=50)
    gather = await app.gathers.create(
        NewJob(queue=own, task="whole", payload=0), [NewJob(queue=own, task="part", payload=n) for n in range(3)]
    )
    await work(app, own, own, 4)
    found = await app.gathers.get(gather.gather.id)
    assert (found.state, found.succeeded) == ("done", 3), found
    dead = await app.jobs.enqueue(own, "dies")
    [offer] = (await app.work.dequeue([own], wait=10)).offers
    await app.work.accept(offer.token)
    assert (await app.work.fail(offer.token, "Broken", permanent=True)).state == "dead"
    assert [job.id for job in (await app.jobs.dead(queue=own)).jobs] == [dead.id]
    assert (await app.jobs.retry(dead.id)).state == "queued"
    assert (await app.jobs.cancel(dead.id)).state == "cancelled"
    assert [event.kind async for event in app.jobs.follow(dead.id)][-1] == "job.cancelled"
    await app.schedules.put(own, own, "digest", interval_ms=3_600_000)
    assert (await app.schedules.get(own)).queue == own
    assert await app.schedules.delete(own) is None
    purge = await app.queues.purge(own)
    assert (await app.operations.get(purge.id)).queue == own


async def main(url: str, number: int, face: str) -> None:
    async with Penstock(url, timeout=60) as client:
        app = face_of(client, face)
        await app.queues.put(QUEUE)
        enqueued = await enqueue(app, number)
        await use_own(app, number)
        completed = await work(app, QUEUE, f"worker-{number}", JOBS)
        sys.stdout.write(json.dumps({"enqueued": enqueued, "completed": completed}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
