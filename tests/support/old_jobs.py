"""Jobs as versions stored them in which tenants shared lanes, and what has to come of them."""

from __future__ import annotations

import msgspec

from penstock.domain.job import JobState, Lane
from penstock.domain.job_queue import JobQueueSettings
from penstock.store.jobs.rows import JobOptions, encode_options
from penstock.store.port import Store
from tests.support.job_steps import draft, enqueue, enqueue_one, offer, offered_ids

GROUP, KEY = Lane(key="g", ordered=True), Lane(key="k")
JOBS: list[tuple[str, str, JobState, Lane, int, int, int]] = [
    # id, tenant, state, lane, its number, whether it has a place, priority
    ("a-holds-group", "a", JobState.RUNNING, GROUP, 1, 1, 4),
    ("b-first-of-group", "b", JobState.QUEUED, GROUP, 1, 0, 4),
    ("a-second-of-group", "a", JobState.QUEUED, GROUP, 1, 0, 4),
    ("b-second-of-group", "b", JobState.QUEUED, GROUP, 1, 0, 9),
    ("a-holds-key", "a", JobState.RUNNING, KEY, 2, 1, 4),
    ("b-patient", "b", JobState.QUEUED, KEY, 2, 0, 4),
    ("b-urgent", "b", JobState.QUEUED, KEY, 2, 0, 9),
    ("a-dead", "a", JobState.DEAD, KEY, 2, 0, 4),
]
UNIQUE = "b-patient"
"""Its unique key is its id."""


def statements(schema: str, blob: str) -> list[str]:
    """Write the rows; `schema` goes before the names of tables, and `blob` is how bytes are written."""

    def written(value: bytes) -> str:
        return blob.format(value.hex())

    settings = msgspec.json.decode(msgspec.json.encode(JobQueueSettings()))
    del settings["lanes"]
    always = "OVERRIDING SYSTEM VALUE" if schema else ""
    made = [
        f"INSERT INTO {schema}job_queue (id, name, settings, created_at) {always} "
        f"VALUES (1, 'mail', {written(msgspec.json.encode(settings))}, 0)",
        f"INSERT INTO {schema}job_lane (id, queue_id, key, width, ordered, occupied, jobs) {always} "
        "VALUES (1, 1, 'g', 1, 1, 1, 4), (2, 1, 'k', 1, 0, 1, 3), (3, 1, 'empty', 1, 0, 0, 0)",
        f"INSERT INTO {schema}job_breaker (queue_id, key, failures, probes) VALUES (1, '', 2, 0), (1, 'k', 3, 0)",
    ]
    for position, (job_id, tenant, state, lane, number, in_lane, priority) in enumerate(JOBS, 1):
        running = state is JobState.RUNNING
        made += [
            f"INSERT INTO {schema}job (position, id, queue_id, task, tenant, priority, state, ready, due_at, lane_id, "
            f"in_lane, fence, attempts, unique_key, enqueued_at, times_out_at, finished_at) {always} VALUES "
            f"({position}, '{job_id}', 1, 'mail', '{tenant}', {priority}, {int(state)}, 0, "
            f"{9_000_000_000_000 if running else 'NULL'}, {number}, {in_lane}, {int(running)}, {int(running)}, "
            f"{repr(job_id) if job_id == UNIQUE else 'NULL'}, 0, {9_000_000_000_000 if running else 'NULL'}, "
            f"{1_700_000_000_000 if state is JobState.DEAD else 'NULL'})",
            f"INSERT INTO {schema}job_content (position, payload, options) VALUES "
            f"({position}, {written(b'1')}, {written(encode_options(JobOptions(lane=lane)))})",
            f"INSERT INTO {schema}job_count VALUES (1, {int(state)}, 0, 1) "
            "ON CONFLICT (queue_id, state, shard) DO UPDATE SET number = job_count.number + 1",
        ]
    if schema:
        made += [
            f"ALTER TABLE {schema}{table} ALTER COLUMN {column} RESTART WITH 100"
            for table, column in (("job_queue", "id"), ("job_lane", "id"), ("job", "position"))
        ]
    return made


async def check_split(store: Store) -> None:
    """Check that each tenant has lanes and unique keys of its own now, and that free places were given."""
    jobs = store.jobs
    queue = await jobs.find_queue("mail")
    assert sorted(await offered_ids(jobs, queue)) == ["b-first-of-group", "b-urgent"]
    [retried] = [await jobs.retry("a-dead")]
    assert retried.state is JobState.QUEUED
    # It waits in the lane of its tenant.
    assert await offer(jobs, queue) == []
    assert (await enqueue_one(jobs, queue, draft(tenant="b", unique_key=UNIQUE))).job_id == UNIQUE  # type: ignore[union-attr]
    [other] = await enqueue(jobs, queue, draft(tenant="a", unique_key=UNIQUE))
    assert await offered_ids(jobs, queue) == [other]
    await jobs.cancel("b-first-of-group")
    assert await offered_ids(jobs, queue) == ["b-second-of-group"]
    [third] = await enqueue(jobs, queue, draft(tenant="c", lane=GROUP))
    assert await offered_ids(jobs, queue) == [third]
