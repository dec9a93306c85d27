"""Tasks whose effects are written down: in a ledger that only grows, and in a table that an older attempt cannot write.

The environment says where: `CHAOS_URL` is the server, `CHAOS_FOLDER` has the ledger and the table.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

from penstock import Penstock, current
from tests.tasks.chaos.ledger import LEDGER, TABLE, read_ledger

FOLDER = Path(os.environ["CHAOS_FOLDER"])

app = Penstock(os.environ["CHAOS_URL"])
_ledger = os.open(FOLDER / LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(what: str, **more: object) -> None:
    """Write a line at once, so that a kill leaves whole lines."""
    ctx = current()
    line = {"what": what, "job": ctx.id, "attempt": ctx.attempt, "pid": os.getpid(), "at": time.monotonic(), **more}
    os.write(_ledger, json.dumps(line).encode() + b"\n")


def write_fenced() -> bool:
    """Have the effect in the table, unless this or a later attempt has had it; return whether it had."""
    ctx = current()
    connection = sqlite3.connect(FOLDER / TABLE, timeout=60, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        changed = connection.execute(
            "INSERT INTO effects (job, attempt, times) VALUES (?, ?, 1) ON CONFLICT (job) DO UPDATE"
            " SET attempt = excluded.attempt, times = times + 1 WHERE excluded.attempt > attempt",
            (ctx.id, ctx.attempt),
        ).rowcount
        connection.execute("COMMIT")
    finally:
        connection.close()
    return changed == 1


def have_effect() -> int:
    note("effect" if write_fenced() else "fenced")
    return current().attempt


@app.task(name="nap")
async def nap(ms: int, until: str = "") -> int:
    """Sleep on the event loop, until there is a file if one is named, and then have an effect."""
    note("start")
    await asyncio.sleep(ms / 1_000)
    while until and not (FOLDER / until).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    return have_effect()


@app.task(name="thread_nap")
def thread_nap(ms: int, until: str = "") -> int:
    """Sleep in a thread, and then have an effect, whatever became of the attempt."""
    note("start")
    time.sleep(ms / 1_000)
    while until and not (FOLDER / until).exists():
        time.sleep(0.01)
    return have_effect()


@app.task(name="linger")
async def linger() -> int:
    """Take for ever in the first attempt."""
    note("start")
    if current().attempt == 1:
        await asyncio.Event().wait()
    return have_effect()


@app.task(name="thread_linger")
def thread_linger(until: str) -> int:
    """Wait for a file in the first attempt, and then have an effect, whatever became of the attempt."""
    note("start")
    while current().attempt == 1 and not (FOLDER / until).exists():
        time.sleep(0.01)
    return have_effect()


@app.task(name="process_nap", run_in="process")
def process_nap(ms: int, until: str = "") -> int:
    """Sleep in a process, and then have an effect."""
    note("start")
    time.sleep(ms / 1_000)
    while until and not (FOLDER / until).exists():
        time.sleep(0.01)
    return have_effect()


@app.task(name="quick")
async def quick() -> int:
    """Have an effect in the ledger only."""
    note("effect")
    return current().attempt


@app.task(name="block")
async def block(until: str) -> int:
    """Block the event loop until there is a file."""
    note("start")
    block_the_loop(FOLDER / until)
    return current().attempt


def block_the_loop(until: Path) -> None:
    while not until.exists():
        time.sleep(0.01)


_libc: Any = ctypes.CDLL(None)
_libc_with_gil: Any = ctypes.PyDLL(None)


def note_start() -> int:
    """Note a start, and return how often the job has started. Attempts whose time was up before that do not count."""
    note("start")
    return sum(line["job"] == current().id for line in read_ledger(FOLDER, "start"))


@app.task(name="hang_in_process", run_in="process")
def hang_in_process() -> int:
    """Hang in C at the first two starts, and at the first without letting any other thread of the process run."""
    start = note_start()
    if start == 1:
        _libc_with_gil.pause()
    if start == 2:
        _libc.pause()
    return current().attempt


@app.task(name="hang_in_thread")
def hang_in_thread() -> int:
    """Hang in C at the first start."""
    if note_start() == 1:
        _libc.pause()
    return current().attempt


@app.task(name="walk")
async def walk(steps: int, deaths: list[tuple[int, str]]) -> list[int]:
    """Take steps. In its n-th attempt it dies as the n-th of `deaths` says: at which step, and at which point of it."""
    attempt = current().attempt
    death = deaths[attempt - 1] if attempt <= len(deaths) else None
    taken = []
    for number in range(steps):

        def die_at(point: str, number: int = number) -> None:
            if death == (number, point):
                note("death", step=number, point=point)
                os.kill(os.getpid(), signal.SIGKILL)

        async def step(number: int = number) -> int:
            die_at("before the effect")
            note("effect", step=number)
            die_at("between effect and record")
            return attempt

        taken.append(await current().step(f"step {number}", step))
        note("recorded", step=number)
        die_at("after the record")
    return taken
