"""A Celery application whose broker is a Penstock server; the worker of a test runs it in a process of its own."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("shop", broker=os.environ.get("SHOP_BROKER_URL"))
app.conf.update(
    broker_transport_options={
        "is_secure": False,
        "region": os.environ.get("SHOP_REGION"),
        "wait_time_seconds": 5,
        "visibility_timeout": 60,
    },
    task_default_queue="shop",
    task_acks_late=True,
    worker_redirect_stdouts=False,
    worker_enable_remote_control=False,  # SQS cannot broadcast, so Celery's remote control has no way to travel.
)


@app.task  # type: ignore[untyped-decorator]  # Celery has no types.
def add(left: int, right: int) -> None:
    print(f"sum={left + right}", flush=True)  # noqa: T201 - the test reads it from the worker's stdout
