"""Book a flight, a hotel and a car, or none of them: a saga with compensations, whose worker is killed in between.

    python examples/saga.py

Three worker processes run the jobs, one after the other, because the first two kill themselves. Set PENSTOCK_URL to use
a server or a database; otherwise the jobs are in a file in the present folder.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from penstock import Penstock, Retry, Worker, current

app = Penstock(os.environ.get("PENSTOCK_URL", "sqlite:saga-jobs.db"))
LEDGER = "saga-ledger.db"
PARTS = ("flight", "hotel", "car")
SOLD_OUT = {"trip-2": "car"}


def book(trip: str, part: str, key: str) -> str:
    """Stand in for another company's service. The same key again is the same booking.

    That it is sold out is an answer, not an exception: it is recorded, so that no later attempt decides otherwise.
    """
    if SOLD_OUT.get(trip) == part:
        return "sold out"
    write(key, f"booked {part} of {trip}")
    return "booked"


def cancel(trip: str, part: str, key: str) -> str:
    write(key, f"cancelled {part} of {trip}")
    return "cancelled"


@app.task(name="book_trip", queue="trips", retry=Retry(attempts=5, backoff="50ms"))
def book_trip(trip: str) -> str:
    """Book all parts. If one is sold out, cancel those before it, the last one first."""
    ctx = current()
    booked: list[str] = []
    for part in PARTS:
        die_once(f"{trip} after {len(booked)} bookings")
        # Each step is run once and recorded. One that was killed before its record runs again, with the same key.
        if ctx.step_sync(part, book, trip, part, f"{ctx.id}:{part}") == "sold out":
            for earlier in reversed(booked):
                ctx.step_sync(f"cancel {earlier}", cancel, trip, earlier, f"{ctx.id}:cancel {earlier}")
                die_once(f"{trip} after a cancellation")
            return f"nothing is booked: no {part} left"
        booked.append(part)
    return f"booked {', '.join(booked)}"


def write(key: str, line: str) -> None:
    """Write a line to the ledger of the other companies, once for each key."""
    with closing(sqlite3.connect(LEDGER, timeout=10)) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS ledger (key TEXT PRIMARY KEY, line TEXT)")
        db.execute("INSERT OR IGNORE INTO ledger VALUES (?, ?)", (key, line))


def ledger() -> list[str]:
    with closing(sqlite3.connect(LEDGER)) as db:
        return [line for (line,) in db.execute("SELECT line FROM ledger ORDER BY rowid")]


def die_once(where: str) -> None:
    """End this process as kill -9 does, if it is the first to come here."""
    if where in {"trip-2 after 2 bookings", "trip-2 after a cancellation"}:
        try:
            Path(f"saga-killed-{where.replace(' ', '-')}").touch(exist_ok=False)
        except FileExistsError:
            return
        print(f"killed: {where}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def start_worker() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "worker"])  # noqa: S603 - this very program


def main() -> None:
    # What a killed worker had is offered again after its lease: here after a second, otherwise after 30.
    app.sync.queues.put("trips", lease_ms=1_000, offer_ms=1_000)
    jobs = [book_trip.enqueue_sync(trip) for trip in ("trip-1", "trip-2")]
    workers = [start_worker()]
    while any(job.view_sync().finished_at_ms is None for job in jobs):
        try:
            workers[-1].wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
        workers.append(start_worker())
    workers[-1].terminate()
    workers[-1].wait()
    for job in jobs:
        print(job.result_sync(timeout=20))
    print(f"{len(workers)} workers:", "; ".join(line for line in ledger() if line.endswith("trip-2")))


if __name__ == "__main__":
    with app:
        if sys.argv[1:] == ["worker"]:
            logging.basicConfig(level=logging.CRITICAL)  # The losses of this example are meant.
            asyncio.run(Worker(app, {"trips": 1}).run())
        else:
            main()
