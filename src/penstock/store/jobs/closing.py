"""The end of every transaction: what it has noted about gathers and counters is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.jobs.gathers import settle
from penstock.store.jobs.script import save_counts

if TYPE_CHECKING:
    from penstock.store.jobs.script import Script, Tx


def close(tx: Tx) -> Script[None]:
    """Write what was noted. Gathers come after all that jobs are locked for, and counters last."""
    if tx.gathers:
        yield from settle(tx)
    yield from save_counts(tx)
