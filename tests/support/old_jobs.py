"""Jobs as versions stored them in which tenants shared lanes, and what has to come of them."""

from __future__ import annotations

from collections import Counter

import msgspec

from penstock.domain.job import JobState, Lane
from penstock.domain.job_errors import JobExists
from penstock.domain.job_queue import JobQueueSettings
from penstock.domain.limits import HOUR_MS, MINUTE_MS, REPEAT_WINDOW_MS
from penstock.domain.operation import JobFilter, OperationKind, OperationState
from penstock.domain.schedule import Schedule
from penstock.store.job_port import Enqueued
from penstock.store.jobs.rows import JobOptions, encode_options
from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.gathers import assert_continued, open_gather, run_members
from tests.support.job_steps import draft, enqueue, enqueue_one, make_queue, offer, offered_ids
from tests.support.job_sweeps import left, sweep

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


WAITING: list[tuple[str, int, int, int]] = [
    # id, priority, minute of its enqueueing, minute since which it waits: 0 if that is the same
    ("waits-4", 4, 10, 0),  # A step of priority is worth a minute, so this one counts from the sixth.
    ("waits-2", 9, 13, 0),
    ("waits-1", 0, 3, 0),
    ("waits-5", 9, 1, 16),
    ("waits-3", 9, 14, 0),
    ("waits-6", 0, 8, 0),
]
"""Jobs without lanes that were ready. Their ids say which goes first."""


SCHEDULE = Schedule(name="nightly", queue="mail", draft=draft(id="", tags=("a",)), cron="@daily")


class _Rows:
    """Statements that write rows; `schema` goes before the names of tables, and `blob` is how bytes are written."""

    def __init__(self, schema: str, blob: str) -> None:
        self.statements: list[str] = []
        self._schema = schema
        self._blob = blob
        # PostgreSQL numbers rows by itself, unless it is told otherwise.
        self._by_hand = "OVERRIDING SYSTEM VALUE" if schema else ""

    def write(self, table: str, **columns: object) -> None:
        values = ", ".join(_literal(value, self._blob) for value in columns.values())
        self.statements.append(
            f"INSERT INTO {self._schema}{table} ({', '.join(columns)}) {self._by_hand} VALUES ({values})"
        )


def statements(schema: str, blob: str) -> list[str]:
    """Write the rows of `JOBS`, their queue and their lanes."""
    made = _Rows(schema, blob)
    insert = made.write
    settings = msgspec.json.decode(msgspec.json.encode(JobQueueSettings()))
    del settings["lanes"]
    insert("job_queue", id=1, name="mail", settings=msgspec.json.encode(settings), created_at=0)
    insert("job_lane", id=1, queue_id=1, key="g", width=1, ordered=1, occupied=1, jobs=4)
    insert("job_lane", id=2, queue_id=1, key="k", width=1, ordered=0, occupied=1, jobs=3)
    insert("job_lane", id=3, queue_id=1, key="empty", width=1, ordered=0, occupied=0, jobs=0)
    insert("job_breaker", queue_id=1, key="", failures=2, probes=0)
    insert("job_breaker", queue_id=1, key="k", failures=3, probes=0)
    for state, number in Counter(job[2] for job in JOBS).items():
        insert("job_count", queue_id=1, state=int(state), shard=0, number=number)
    for position, (job_id, tenant, state, lane, lane_id, in_lane, priority) in enumerate(JOBS, 1):
        runs = state is JobState.RUNNING
        insert(
            "job",
            position=position,
            id=job_id,
            queue_id=1,
            task="mail",
            tenant=tenant,
            priority=priority,
            state=int(state),
            ready=0,
            due_at=9_000_000_000_000 if runs else None,
            times_out_at=9_000_000_000_000 if runs else None,
            lane_id=lane_id,
            in_lane=in_lane,
            fence=int(runs),
            attempts=int(runs),
            unique_key=job_id if job_id == UNIQUE else None,
            enqueued_at=0,
            finished_at=1_700_000_000_000 if state is JobState.DEAD else None,
        )
        insert("job_content", position=position, payload=b"1", options=encode_options(JobOptions(lane=lane)))
    for table, column in (("job_queue", "id"), ("job_lane", "id"), ("job", "position")) if schema else ():
        made.statements.append(f"ALTER TABLE {schema}{table} ALTER COLUMN {column} RESTART WITH 100")
    return made.statements


def _literal(value: object, blob: str) -> str:
    if isinstance(value, bytes):
        return blob.format(value.hex())
    return "NULL" if value is None else repr(value)


def waiting(schema: str, blob: str) -> list[str]:
    """Write the rows of `WAITING` and of `SCHEDULE`, after those of `statements`."""
    made = _Rows(schema, blob)
    made.write("job_count", queue_id=1, state=int(JobState.QUEUED), shard=1, number=len(WAITING))
    for position, (job_id, priority, minute, waits_from) in enumerate(WAITING, 50):
        made.write(
            "job",
            position=position,
            id=job_id,
            queue_id=1,
            task="mail",
            tenant="w",
            priority=priority,
            state=int(JobState.QUEUED),
            ready=1,
            in_lane=0,
            enqueued_at=minute * MINUTE_MS,
            queued_at=waits_from * MINUTE_MS,
        )
        made.write("job_content", position=position, payload=b"1", options=encode_options(JobOptions()))
    spec = msgspec.to_builtins(SCHEDULE, builtin_types=(bytes,))
    for later in ("on_duplicate", "start_rate", "chosen", "member", "gathered", "expires_in_ms", "retention_ms"):
        del spec["draft"][later]
    made.write(
        "job_schedule", name="nightly", queue_id=1, spec=msgspec.msgpack.encode(spec), paused=0, next_at=1, revision=3
    )
    return made.statements


async def check_waiting(store: Store) -> None:
    """Check that jobs that waited are offered by how long they had waited and how urgent they are, and that a schedule
    saved again as it was stays as it is.
    """
    saved = await store.jobs.save_schedule(SCHEDULE)
    assert (saved.next_at_ms, saved.revision) == (1, 3)
    queue = await store.jobs.find_queue("mail")
    await enqueue(store.jobs, queue, draft(id="waits-7", tenant="w", priority=9))
    found = [job_id for job_id in await offered_ids(store.jobs, queue, 20) if job_id.startswith("waits")]
    assert found == [f"waits-{number}" for number in range(1, 8)]


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


def old_operation(schema: str) -> str:
    """Write an operation of a store in which none had a limit: it has requeued nothing yet."""
    bytes_of_filter = "'{}'" if schema else "CAST('{}' AS BLOB)"
    columns = "id, queue_id, kind, wanted, state, done, cursor, last, next_at, started_at"
    values = f"'old', 1, 1, {bytes_of_filter}, 0, 0, 0, 100, 0, 0"
    return f"INSERT INTO {schema}job_operation ({columns}) VALUES ({values})"


async def check_repeats(store: Store) -> None:
    """Check that repeats find the jobs of a store that knew nothing of them, and that its operations go on."""
    jobs = store.jobs
    queue = await jobs.find_queue("mail")
    again = draft(id="b-patient", payload=b"1", tenant="b")
    assert await enqueue_one(jobs, queue, again) == Enqueued("b-patient", JobState.QUEUED, new=False)
    assert isinstance(await enqueue_one(jobs, queue, draft(id="b-patient", tenant="b")), JobExists)
    while await jobs.advance_operations() is not None:
        pass
    done = await jobs.operation("old")
    assert (done.state, done.done, done.limit) == (OperationState.DONE, 1, None)
    one = draft()
    await enqueue(jobs, queue, one)
    await jobs.start_operation("purge", OperationKind.PURGE, queue, JobFilter(), None)
    while await jobs.advance_operations() is not None:
        pass
    assert await enqueue_one(jobs, queue, one) == Enqueued(one.id, JobState.CANCELLED, new=False)


def before_expiry(schema: str, blob: str, now_ms: int) -> list[str]:
    """Write jobs of a store in which none expired: one waits, and one succeeded half of its queue's retention ago."""
    made = _Rows(schema, blob)
    settings = msgspec.json.encode(JobQueueSettings(retention_ms=2 * HOUR_MS))
    made.write("job_queue", id=1, name="mail", settings=settings, created_at=0)
    for position, (job_id, state) in enumerate((("waits", JobState.QUEUED), ("succeeded", JobState.SUCCEEDED)), 1):
        made.write("job_count", queue_id=1, state=int(state), shard=0, number=1)
        made.write(
            "job",
            position=position,
            id=job_id,
            queue_id=1,
            task="mail",
            tenant="",
            priority=4,
            state=int(state),
            ready=int(state is JobState.QUEUED),
            enqueued_at=0,
            finished_at=None if state is JobState.QUEUED else now_ms - HOUR_MS,
            rank=0,
        )
        made.write("job_content", position=position, payload=b"1", options=encode_options(JobOptions()))
    for table, column in (("job_queue", "id"), ("job", "position")) if schema else ():
        made.statements.append(f"ALTER TABLE {schema}{table} ALTER COLUMN {column} RESTART WITH 100")
    return made.statements


async def check_expiry(store: Store, clock: ManualClock) -> None:
    """Check that jobs from before are offered and swept as they were to be, and that new ones expire."""
    jobs = store.jobs
    queue = await jobs.find_queue("mail")
    new = draft(expires_in_ms=1_000, retention_ms=0)
    await enqueue(jobs, queue, new)
    shown = [await jobs.job(job_id) for job_id in ("waits", "succeeded", new.id)]
    assert [job.retention_ms for job in shown] == [2 * HOUR_MS, 2 * HOUR_MS, REPEAT_WINDOW_MS]
    assert [job.expires_at_ms for job in shown] == [None, None, clock.now_ms() + 1_000]
    await clock.advance(ms=1_000)
    assert await offered_ids(jobs, queue) == ["waits"]
    assert (await jobs.job(new.id)).state is JobState.CANCELLED
    await clock.advance(ms=REPEAT_WINDOW_MS)
    await sweep(jobs)
    assert await left(jobs) == ["waits", "succeeded"]
    await clock.advance(ms=HOUR_MS)
    await sweep(jobs)
    assert await left(jobs) == ["waits"]


async def check_gathers(store: Store) -> None:
    """Check that a gather is taken and continued, and that jobs from before, which know of none, still end."""
    jobs = store.jobs
    gather_id, _ = await open_gather(jobs, await make_queue(jobs, "new"), 2)
    await run_members(jobs, await jobs.find_queue("new"), 2)
    await assert_continued(jobs, gather_id)
    assert (await jobs.cancel("b-patient")).state is JobState.CANCELLED
