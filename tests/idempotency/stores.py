"""What tests of every store of records share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from penstock.client.idempotency.records import Records
from penstock.testing import ManualClock

Opener = Callable[..., Records]

LEASE_MS = 60_000
DAY_MS = 86_400_000


def later(clock: ManualClock, seconds: float) -> None:
    """Move the time, where no event loop runs."""
    asyncio.run(clock.advance(seconds=seconds))


def in_a_child(work: Callable[[], object]) -> int:
    """Run work in a forked child, and return its exit code: 0 if the work returned, or minus a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
