"""Processes that may run only part of the time: several small machines on one."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PERIOD_S = 0.02
"""Each process has its share of every such stretch: shorter than what a client would notice, longer than a system's own
turns."""


@contextlib.contextmanager
def held(pids: Sequence[int], share: float) -> Iterator[None]:
    """Stop and continue processes, one after the other, so that each runs for this share of the time at most."""
    over = threading.Event()
    holders = [
        threading.Thread(target=_hold, args=(pid, share, number / len(pids), over), name=f"hold-{pid}", daemon=True)
        for number, pid in enumerate(pids)
    ]
    for holder in holders:
        holder.start()
    try:
        yield
    finally:
        over.set()
        for holder in holders:
            holder.join()


def _hold(pid: int, share: float, phase: float, over: threading.Event) -> None:
    continue_at_s = time.monotonic() + phase * PERIOD_S
    with contextlib.suppress(ProcessLookupError):  # It has ended.
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            try:
                over.wait(continue_at_s - time.monotonic())
            finally:
                os.kill(pid, signal.SIGCONT)
            over.wait(share * PERIOD_S)
            # Who comes late does not make up for it, or its process would have more than its share.
            continue_at_s = max(continue_at_s + PERIOD_S, time.monotonic() + (1 - share) * PERIOD_S)
