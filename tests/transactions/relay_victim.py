"""A relay as a process that kills itself where it is told to.

It passes the place PASSES times before that.
"""

from __future__ import annotations

import os
import signal

from penstock import Relay
from penstock.domain.failpoints import Failpoints


def main(database: str, server: str, place: str, passes: str) -> None:
    failpoints = Failpoints()
    for _ in range(int(passes)):
        failpoints.arm(place, lambda: None)
    failpoints.arm(place, lambda: os.kill(os.getpid(), signal.SIGKILL))
    Relay(server, database, batch=3, failpoints=failpoints).drain_sync()
