"""What is in a file decides whether it is opened: ours and of a schema that we know, or empty."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import apsw
import msgspec
import pytest

from penstock.domain.errors import StoreIncompatible
from penstock.domain.queue import QueueAttributes
from penstock.store.sqlite.migrations import APPLICATION_ID, MIGRATIONS
from penstock.testing import ManualClock
from tests.support import old_jobs
from tests.support.queues import ACCOUNT, REGION, lease_bodies, make_queue, queue_name, send
from tests.unit.store.sqlite.conftest import OpenStore


def write_diary(path: Path) -> None:
    path.write_text("Dear diary, " * 100)


def is_diary(path: Path) -> bool:
    return path.read_text() == "Dear diary, " * 100


def put_away(path: Path) -> None:
    path.rename(path.with_suffix(".diary"))


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3_000)


async def test_a_new_file_is_marked_as_ours_with_its_schema(path: Path, open_store: OpenStore) -> None:
    await (await open_store()).close()
    db = apsw.Connection(str(path))
    assert db.pragma("application_id") == APPLICATION_ID
    assert db.pragma("user_version") == len(MIGRATIONS)
    db.close()


async def test_a_store_of_the_first_version_is_brought_up_to_date(path: Path, open_store: OpenStore) -> None:
    db = apsw.Connection(str(path))
    db.execute((resources.files("penstock.store.sqlite") / MIGRATIONS[0]).read_text(encoding="utf-8"))
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", 1)
    db.close()
    store = await open_store()
    queue = await make_queue(store)
    await send(store, queue, "a")
    assert await lease_bodies(store, queue) == ["a"]


async def test_a_group_that_waited_for_all_its_leases_waits_for_its_first_message_only(
    path: Path, open_store: OpenStore, clock: ManualClock
) -> None:
    """In a store from before: the second of its messages is leased, and the group was blocked until that is over."""
    before = MIGRATIONS.index("schema_6.sql")
    db = apsw.Connection(str(path))
    for name in MIGRATIONS[:before]:
        db.execute((resources.files("penstock.store.sqlite") / name).read_text(encoding="utf-8"))
    now_ms, end_ms = clock.now_ms(), clock.now_ms() + 600_000
    attributes = msgspec.json.encode(QueueAttributes()).decode()
    first, tracked = 1 << 43, 1 << 42
    db.execute(
        """
        INSERT INTO queue (id, region, account, name, partition, attributes, tags, retention_ms, created_at_ms,
                           modified_at_ms, revision)
        VALUES (1, ?, ?, 'orders.fifo', 1, ?, '{}', 345600000, 0, 0, 1)
        """,
        (REGION, ACCOUNT, attributes),
    )
    db.execute("INSERT INTO contents VALUES (1, 3, 1, 0, 0, 1, ?, 3)", (first,))
    db.execute(
        "INSERT INTO message_group VALUES (-1, 1, 'g', ?, 0, 0, ?, ?)",
        (first + tracked + 1, end_ms, first + tracked + 2),
    )
    for number, state, visible_at_ms in ((1, 0, now_ms), (2, 1, end_ms), (3, 0, now_ms)):
        position = first + tracked + number
        db.execute(
            "INSERT INTO message VALUES (?, ?, ?, '', NULL, NULL, NULL, ?)",
            (position, f"id{number}", now_ms, f"m{number}"),
        )
        db.execute(
            """
            INSERT INTO delivery
                (position, partition, state, visible_at_ms, leased_at_ms, receipt, receive_count, group_id)
            VALUES (?, 1, ?, ?, ?, 1, 1, -1)
            """,
            (position, state, visible_at_ms, now_ms),
        )
    db.execute("INSERT INTO meta VALUES ('next_partition', 2)")
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", before)
    db.close()
    store = await open_store()
    queue = await store.find_queue(queue_name("orders.fifo"))
    assert await lease_bodies(store, queue) == ["m1"]
    await clock.advance(ms=600_000)
    assert await lease_bodies(store, queue) == ["m1", "m2", "m3"]


async def test_the_secret_is_made_once(open_store: OpenStore) -> None:
    store = await open_store()
    secret = store.secret
    await store.close()
    assert len(secret) == 32
    assert (await open_store()).secret == secret


async def test_a_newer_schema_is_refused_and_left_alone(path: Path, open_store: OpenStore) -> None:
    store = await open_store()
    await send(store, await make_queue(store), "kept")
    await store.close()
    db = apsw.Connection(str(path))
    db.pragma("user_version", len(MIGRATIONS) + 1)
    db.close()
    with pytest.raises(StoreIncompatible, match="newer version"):
        await open_store()
    db = apsw.Connection(str(path))
    assert db.execute("SELECT body FROM message").get == "kept"
    assert db.pragma("user_version") == len(MIGRATIONS) + 1
    db.close()


async def test_another_programs_database_is_refused_and_left_alone(path: Path, open_store: OpenStore) -> None:
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE theirs (id)")
    db.close()
    with pytest.raises(StoreIncompatible, match="not a Penstock store"):
        await open_store()
    db = apsw.Connection(str(path))
    assert db.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    db.close()


async def test_a_file_that_is_no_database_is_refused(path: Path, open_store: OpenStore) -> None:
    write_diary(path)
    with pytest.raises(StoreIncompatible, match="not a Penstock store"):
        await open_store()
    assert is_diary(path)


async def test_a_damaged_file_is_refused(path: Path, open_store: OpenStore) -> None:
    store = await open_store()
    await send(store, await make_queue(store), *("x" * 5_000 for _ in range(10)))
    await store.close()
    damage(path)
    with pytest.raises(StoreIncompatible, match="damaged"):
        await open_store()


async def test_a_refusal_lets_go_of_the_file(path: Path, open_store: OpenStore) -> None:
    write_diary(path)
    for _ in range(2):
        with pytest.raises(StoreIncompatible):
            await open_store()
    put_away(path)
    await open_store()


def write_jobs_before(path: Path, migration: str, *statements: str) -> None:
    """Make a store with old jobs as it was before a migration."""
    db = apsw.Connection(str(path))
    before = MIGRATIONS.index(migration)
    for name in MIGRATIONS[:3]:
        db.execute((resources.files("penstock.store.sqlite") / name).read_text(encoding="utf-8"))
    for statement in old_jobs.statements("", "x'{}'"):
        db.execute(statement)
    for name in MIGRATIONS[3:before]:
        db.execute((resources.files("penstock.store.sqlite") / name).read_text(encoding="utf-8"))
    for statement in statements:
        db.execute(statement)
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", before)
    db.close()


async def test_jobs_of_an_older_store_may_be_enqueued_and_purged_again(path: Path, open_store: OpenStore) -> None:
    write_jobs_before(path, "schema_8.sql", old_jobs.old_operation(""))
    await old_jobs.check_repeats(await open_store())


async def test_what_waited_in_an_older_store_goes_by_its_age_and_priority(path: Path, open_store: OpenStore) -> None:
    write_jobs_before(path, "schema_8.sql", *old_jobs.waiting("", "x'{}'"))
    await old_jobs.check_waiting(await open_store())


async def test_jobs_of_an_older_store_do_not_expire_and_new_ones_do(
    path: Path, open_store: OpenStore, clock: ManualClock
) -> None:
    db = apsw.Connection(str(path))
    before = MIGRATIONS.index("schema_11.sql")
    for name in MIGRATIONS[:before]:
        db.execute((resources.files("penstock.store.sqlite") / name).read_text(encoding="utf-8"))
    for statement in old_jobs.before_expiry("", "x'{}'", clock.now_ms()):
        db.execute(statement)
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", before)
    db.close()
    await old_jobs.check_expiry(await open_store(), clock)


async def test_lanes_that_tenants_shared_are_split(path: Path, open_store: OpenStore) -> None:
    db = apsw.Connection(str(path))
    for name in MIGRATIONS[:3]:
        db.execute((resources.files("penstock.store.sqlite") / name).read_text(encoding="utf-8"))
    for statement in old_jobs.statements("", "x'{}'"):
        db.execute(statement)
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", 3)
    db.close()
    store = await open_store()
    await old_jobs.check_split(store)
    await old_jobs.check_gathers(store)
    await store.close()
    db = apsw.Connection(str(path))
    breakers = db.execute("SELECT shared, tenant, key, failures FROM job_breaker ORDER BY shared, tenant").fetchall()
    assert breakers == [(0, "a", "k", 3), (0, "b", "k", 3), (1, "", "", 2)]
    assert db.execute("SELECT min(id) FROM job_lane").get == 4, "numbers are used again"
    db.close()
