"""The end of every transaction: what it has noted about gathers, gates and counters is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.jobs.gates import save_gates
from penstock.store.jobs.gathers import settle
from penstock.store.jobs.script import save_counts

if TYPE_CHECKING:
    from penstock.store.jobs.running import Body
    from penstock.store.jobs.script import Answer, Script, Tx
    from penstock.store.jobs.surroundings import Surroundings


def closed(tx: Tx, body: Body[Answer], around: Surroundings) -> Script[Answer]:
    """Run a script, then write what it noted. Gathers come after all that jobs are locked for, and counters last."""
    answer = yield from body(tx)
    if tx.gathers:
        yield from settle(tx, around)
    if tx.gates or tx.refunds:
        yield from save_gates(tx)
    yield from save_counts(tx)
    return answer
