"""An app with tasks in processes, which import it from here."""

from __future__ import annotations

import os

from penstock import Penstock, Retry, Snooze, current

app = Penstock("http://127.0.0.1:1", timeout=0.2)


@app.task(run_in="process", retry=Retry(1))
def render(page: int) -> int:
    if page < 0:
        raise ValueError(f"no page {page}")
    if page == 7 and current().attempt == 1:
        raise Snooze(60)
    current().publish("rendered", page)
    stamp.enqueue_sync(page)
    assert app.sync.jobs.list(limit=1).jobs
    return os.getpid()


@app.task
def stamp(page: int) -> int:
    return os.getpid()


@app.task(run_in="process", timeout="500ms", retry=Retry(1))
def hang() -> None:
    while True:
        pass
