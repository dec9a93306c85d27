"""One attempt of a job as a process: it does its effect with `ctx.once`, and kills itself where it is told to.

The places: begun, recorded, done, committed, nowhere. The exit code says whether it was the first.
"""

from __future__ import annotations

import os
import signal

from penstock.client.errors import AttemptStale
from tests.transactions.attempts import attempt_of
from tests.transactions.databases import UserDatabase

FIRST = 0
LATER = 3
STALE = 4


def main(url: str, job_id: str, number: str, place: str) -> int:
    try:
        return FIRST if _effect(url, job_id, number, place) else LATER
    except AttemptStale:
        return STALE


def _effect(url: str, job_id: str, number: str, place: str) -> bool:
    def reach(here: str) -> None:
        if here == place:
            os.kill(os.getpid(), signal.SIGKILL)

    ctx = attempt_of(job_id, int(number))
    with UserDatabase(url).connect() as connection:
        reach("begun")
        with ctx.once(connection) as first:
            reach("recorded")
            if first:
                connection.execute(f"INSERT INTO ledger (job_id, attempt) VALUES ('{job_id}', {number})")
            reach("done")
        connection.commit()
        reach("committed")
    return first
