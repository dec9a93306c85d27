"""All verbs together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.verbs.gathers import Gathers
from penstock.client.verbs.jobs import Jobs
from penstock.client.verbs.operations import Operations
from penstock.client.verbs.queues import Queues
from penstock.client.verbs.schedules import Schedules
from penstock.client.verbs.work import Work
from penstock.client.verbs.workers import Workers

if TYPE_CHECKING:
    from penstock.client.verbs.caller import Caller


class AsyncFace:
    """The verbs of the job API by what they are about."""

    def __init__(self, caller: Caller) -> None:
        self.jobs = Jobs(caller)
        self.work = Work(caller)
        self.queues = Queues(caller)
        self.schedules = Schedules(caller)
        self.operations = Operations(caller)
        self.gathers = Gathers(caller)
        self.workers = Workers(caller)
