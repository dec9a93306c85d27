"""Extract 42 fields with three consumers on one queue, each a process of its own, one of which is killed.

    python examples/three_consumers.py [DOCUMENT]

Each field is a job. Set PENSTOCK_URL to use a server or a database; otherwise the jobs are in a file in the present
folder.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections import Counter

from penstock import Penstock, Retry, Worker

CONSUMERS = 3
FIELDS = [f"field{number}" for number in range(1, 43)]

app = Penstock(os.environ.get("PENSTOCK_URL", "sqlite:consumers-jobs.db"))


@app.task(name="extract", queue="fields", timeout=30, retry=Retry(attempts=3, backoff="50ms"))
async def extract(document: str, field: str) -> tuple[str, str]:
    """Stand in for a model that reads one field; say which consumer asked it."""
    await asyncio.sleep(0.1)
    return f"{field} of {document}", os.environ["CONSUMER"]


@app.task(name="assemble", queue="documents")
async def assemble(document: str, values: list[tuple[str, str]]) -> dict[str, int]:
    """Make a record of all values; return how many of them each consumer has read."""
    assert [value for value, _ in values] == [f"{field} of {document}" for field in FIELDS]
    return Counter(consumer for _, consumer in values)


def start_consumer(name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "consumer"], env={**os.environ, "CONSUMER": name})  # noqa: S603 - this very program


def main(document: str) -> None:
    # What a killed consumer had is offered again after its lease: here after a second, otherwise after 30.
    app.sync.queues.put("fields", lease_ms=1_000, offer_ms=1_000)
    flow = app.fan_out_sync([extract.call(document, field) for field in FIELDS], entity=document, then=assemble)
    consumers = [start_consumer(name) for name in ("a", "b", "c")[:CONSUMERS]]
    while not 0 < flow.progress_sync().done < len(FIELDS):
        if all(consumer.poll() is not None for consumer in consumers):
            raise SystemExit("No consumer has started.")
        time.sleep(0.02)
    consumers[0].kill()
    read = flow.result_sync(timeout=60)
    for consumer in consumers[1:]:
        consumer.terminate()
    for consumer in consumers:
        consumer.wait()
    print(
        f"{sum(read.values())} of {len(FIELDS)} fields of {document}, read by {CONSUMERS} consumers, one of them killed"
    )


if __name__ == "__main__":
    with app:
        if sys.argv[1:] == ["consumer"]:
            logging.basicConfig(level=logging.CRITICAL)  # The losses of this example are meant.
            asyncio.run(Worker(app, {"fields": 4, "documents": 1}).run())
        else:
            main(sys.argv[1] if len(sys.argv) > 1 else "doc-123")
