# Made of penstock/client/verbs by scripts/make_sync.py. Change that, and run the script.
"""All verbs together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.sync.gathers import Gathers
from penstock.client.sync.jobs import Jobs
from penstock.client.sync.operations import Operations
from penstock.client.sync.queues import Queues
from penstock.client.sync.schedules import Schedules
from penstock.client.sync.work import Work
from penstock.client.sync.workers import Workers

if TYPE_CHECKING:
    from penstock.client.sync.caller import Caller


class SyncFace:
    """The verbs of the job API by what they are about."""

    def __init__(self, caller: Caller) -> None:
        self.jobs = Jobs(caller)
        self.work = Work(caller)
        self.queues = Queues(caller)
        self.schedules = Schedules(caller)
        self.operations = Operations(caller)
        self.gathers = Gathers(caller)
        self.workers = Workers(caller)
