"""A shop whose tasks are moved from Celery to Penstock while it is open. Workers and producers of a test load it.

With SHOP_OLD it is the shop before the move: plain Celery. Which tasks are moved is read from a file at every call.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from celery import Celery

from penstock import Penstock
from penstock.celery import move

FOLDER = Path(os.environ["SHOP_FOLDER"])
QUEUE = os.environ["SHOP_QUEUE"]
VISIBILITY_S = int(os.environ["SHOP_VISIBILITY_S"])

celery = Celery("shop", broker=os.environ["SHOP_BROKER_URL"])
celery.conf.update(
    broker_transport_options={
        "is_secure": False,
        "region": os.environ["SHOP_REGION"],
        "wait_time_seconds": 1,
        "visibility_timeout": VISIBILITY_S,
    },
    task_default_queue=QUEUE,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=4,
    worker_redirect_stdouts=False,
    worker_enable_remote_control=False,
)
penstock = Penstock(os.environ["SHOP_URL"])


def effect(task: Any, call: str) -> None:
    """Write down that a call had its effect, by which worker, in one write: processes share the file."""
    where = "penstock" if getattr(task.request, "penstock", None) else "celery"
    line = f"{call} {where} {os.getpgid(0)} {task.request.id}\n"
    ledger = os.open(FOLDER / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, line.encode())
    finally:
        os.close(ledger)


@celery.task(name="mail", bind=True)  # type: ignore[untyped-decorator] # Celery has no types.
def mail(self: Any, call: str) -> None:
    effect(self, call)


@celery.task(name="report", bind=True)  # type: ignore[untyped-decorator] # as above
def report(self: Any, call: str) -> None:
    time.sleep(0.02)
    effect(self, call)
    time.sleep(0.02)


@celery.task(name="sync", bind=True, max_retries=5)  # type: ignore[untyped-decorator] # as above
def sync(self: Any, call: str) -> None:
    """Fail at first, for one call in three."""
    if not self.request.retries and int(call.rpartition("-")[2]) % 3 == 0:
        raise self.retry(countdown=0.1, exc=ConnectionError("away"))
    effect(self, call)


TASKS = [mail, report, sync]


def is_moved(name: str) -> bool:
    return name in (FOLDER / "moved").read_text().split()


if "SHOP_OLD" not in os.environ:
    move(celery, penstock, TASKS, active=is_moved)


def produce(prefix: str, pause_s: float) -> None:
    """Call one task after the other until there is a file `stop`, and print the name of each call that was accepted."""
    number = 0
    while not (FOLDER / "stop").exists():
        number += 1
        call = f"{prefix}-{number}"
        options = {"countdown": 0.5} if number % 5 == 0 else {}
        TASKS[number % len(TASKS)].apply_async((call,), **options)
        print(call, flush=True)  # noqa: T201 - the test reads it
        time.sleep(pause_s)


if __name__ == "__main__":
    produce(sys.argv[1], float(sys.argv[2]))
