"""Scripts about workers: what each node knows of its own, for all nodes to see."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.domain.worker import Worker, WorkerKind
from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.store.jobs.script import Row, Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


def note(tx: Tx, around: Surroundings, seen: Sequence[Worker], gone: Sequence[Worker], now_ms: int) -> Script[None]:
    """Keep the workers that were seen, remove those that are gone, and some of those that nobody has seen for long."""
    # By the caller's clock they are so old; the instants that are kept are by the store's.
    ahead_ms = tx.now_ms - now_ms
    kept: list[Sequence[object]] = [
        (
            worker.name,
            worker.id,
            worker.kind.value,
            listed(worker.queues),
            None if worker.tasks is None else listed(worker.tasks),
            worker.credit,
            worker.running,
            worker.since_at_ms + ahead_ms,
            worker.seen_at_ms + ahead_ms,
        )
        for worker in seen
    ]
    if kept:
        yield "save_worker", kept
    if gone:
        yield "remove_worker", [(worker.name, worker.id) for worker in gone]
    yield "remove_stale_workers", (tx.now_ms - around.limits.worker_stale_ms, around.limits.sweep_rows_max)


class Page(NamedTuple):
    """Which workers a reader asks for: those beyond a name and id, of all queues or of one."""

    after: tuple[str, str]
    limit: int
    queue: str | None


def page(tx: Tx, around: Surroundings, wanted: Page) -> Script[list[Worker]]:
    """Read workers in the order of their names."""
    stale_ms = tx.now_ms - around.limits.worker_stale_ms
    rows = yield "workers_after", (*wanted.after, stale_ms, wanted.queue, wanted.limit)
    return [_worker(row) for row in rows]


def _worker(row: Row) -> Worker:
    name, worker_id, kind, queues, tasks, credit, running, since, seen_at = row
    return Worker(
        id=worker_id,
        name=name,
        kind=WorkerKind(kind),
        queues=_decode_names(queues),
        tasks=None if tasks is None else _decode_names(tasks),
        credit=credit,
        running=running,
        since_at_ms=since,
        seen_at_ms=seen_at,
    )
