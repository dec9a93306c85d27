"""The bare log writes what it says, and gathers what waits into one fsync."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.log_limit import CHANGE_BYTES, GroupCommitLog, frame, measure_log
from benchmarks.process import run
from benchmarks.timing import Budget
from benchmarks.workload import Workload


async def test_records_that_arrive_together_are_made_durable_together(tmp_path: Path) -> None:
    path = tmp_path / "log"
    records = [bytes([number]) * 3 for number in range(50)]
    async with GroupCommitLog(path) as log:
        await asyncio.gather(*(log.append(record) for record in records))
        assert log.syncs == 1
        await log.append(b"last")
        assert log.syncs == 2
    assert path.read_bytes() == b"".join([*records, b"last"])


async def test_a_failed_write_reaches_every_caller_that_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("benchmarks.log_limit._make_durable", fail)
    async with GroupCommitLog(tmp_path / "log") as log:
        answers = await asyncio.gather(log.append(b"a"), log.append(b"b"), return_exceptions=True)
        assert [type(answer) for answer in answers] == [OSError, OSError]
        with pytest.raises(OSError, match="no space left"):
            await log.append(b"c")


def test_a_lifecycle_is_three_records_for_each_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0
    append = GroupCommitLog.append

    async def count(log: GroupCommitLog, record: bytes) -> None:
        nonlocal written
        written += len(record)
        await append(log, record)

    monkeypatch.setattr(GroupCommitLog, "append", count)
    rate = run(measure_log(tmp_path, Workload(callers=4, batch=10, body_bytes=100), Budget(messages=45)))
    header = len(frame(b""))
    assert (rate.messages, rate.operations) == (45, 5)
    assert written == 45 * (3 * (header + CHANGE_BYTES) + 100)
    assert list(tmp_path.iterdir()) == []
