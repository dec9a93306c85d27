"""wrk on real queues: FIFO, and several in turn."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from benchmarks.errors import WorkFailed
from benchmarks.http_generator import some_generator
from benchmarks.http_load import Job
from benchmarks.http_servers import Serving, penstock_server, with_queue
from benchmarks.timing import Rate


def job(serving: Serving) -> Job:
    return Job(
        port=serving.port,
        pid=serving.pid,
        queue_url=serving.queue_url,
        kind="lifecycle",
        batch=1,
        connections=4,
        body_bytes=64,
        seconds=1,
    )


async def lifecycles(folder: Path, asked: Job) -> Rate:
    """Do a job that is long enough to be told of: how long that is, the machine decides."""
    async with some_generator(folder) as wrk:
        for seconds in (1, 5):
            try:
                return await wrk.run(msgspec.structs.replace(asked, seconds=seconds))
            except WorkFailed as failure:
                assert "no message was done with" in str(failure)  # noqa: PT017 # Any other is what is looked for.
        return await wrk.run(msgspec.structs.replace(asked, seconds=20))


@pytest.fixture(autouse=True)
def _wrk() -> None:
    if shutil.which("wrk") is None:
        pytest.skip("wrk is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 10])
async def test_wrk_names_groups_on_fifo(tmp_path: Path, batch: int) -> None:
    with penstock_server(tmp_path) as server:
        asked = job(with_queue(server, "orders", fifo=True))
        rate = await lifecycles(tmp_path, msgspec.structs.replace(asked, batch=batch, groups=7))
    assert rate.messages > 0


@pytest.mark.slow
async def test_wrk_spreads_lifecycles_over_queues(tmp_path: Path) -> None:
    with penstock_server(tmp_path) as server:
        queues = [with_queue(server, f"orders-{number}") for number in range(3)]
        urls = [queue.queue_url for queue in queues]
        rate = await lifecycles(tmp_path, msgspec.structs.replace(job(queues[0]), queue_urls=urls))
    # Each was deleted from the queue that it came from, or the server would have refused that.
    assert rate.messages > 0
