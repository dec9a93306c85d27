"""Extract 42 fields of a document at the same time, and assemble the record once all of them have ended.

    python examples/fan_out_42_fields.py [DOCUMENT]

Everything runs in this process, in memory. Set PENSTOCK_URL to use a server, a file or a database.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys

from penstock import Penstock, Retry, Worker, current, errors

# fmt: off
FIELDS = [
    "yearBuilt", "roofType", "roofAge", "sprinklered", "alarmType", "wallMaterial", "foundationType",
    "floorCount", "floorArea", "basement", "occupancy", "tenantCount", "heatingType", "heatingAge",
    "coolingType", "wiringType", "wiringAge", "plumbingType", "plumbingAge", "elevator", "parkingSpaces",
    "lotArea", "zoning", "floodZone", "quakeZone", "windZone", "hydrantDistance", "stationDistance",
    "priorLosses", "lossTotal", "insuredValue", "landValue", "contentsValue", "deductible", "policyStart",
    "policyEnd", "owner", "lender", "address", "city", "postalCode", "country",
]
# fmt: on

app = Penstock(os.environ.get("PENSTOCK_URL", "memory:"))
# Tasks of a program that is started have names of their own: a worker could not import them from `__main__`.


@app.task(name="extract", queue="fields", timeout=30, retry=Retry(attempts=3, backoff="50ms", permanent=(ValueError,)))
async def extract(document: str, field: str) -> str:
    """Stand in for a model that reads one field: slow, unreliable, and for one field without hope."""
    await asyncio.sleep(random.uniform(0.05, 0.2))
    if field == "lender":
        raise ValueError("the page with the lender is missing")
    if field == "yearBuilt" and current().attempt == 1:
        raise ConnectionError("the model is overloaded")
    return f"{field} of {document}"


@app.task(name="assemble", queue="documents")
async def assemble(document: str, values: list[str | errors.JobEnded]) -> dict[str, str | None]:
    """Make one record of all values; a field that could not be read is None."""
    return {"document": document} | {
        field: None if isinstance(value, errors.JobEnded) else value
        for field, value in zip(FIELDS, values, strict=True)
    }


async def show_progress(document: str) -> None:
    flow = await app.fan_out(
        [extract.call(document, field) for field in FIELDS], entity=document, then=assemble, on_error="collect"
    )
    while (progress := await flow.progress()).done < progress.total:
        print(f"\r{progress} fields", end="", flush=True)
        await asyncio.sleep(0.05)
    record = await flow.result(timeout=60)
    missing = [field for field in FIELDS if record[field] is None]
    print(f"\r{progress} fields, {progress.failed} failed")
    print(f"{len(FIELDS)} fields in the record of {document}, {len(missing)} without a value: {', '.join(missing)}")


async def main(document: str) -> None:
    assert len(FIELDS) == 42
    logging.basicConfig(level=logging.CRITICAL)  # The failures of this example are meant.
    async with app:
        worker = Worker(app, {"fields": 10, "documents": 1}, grace=5)
        running = asyncio.create_task(worker.run(signals=False))
        await show_progress(document)
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "doc-123"))
