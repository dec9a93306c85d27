"""lease-theft: a holder that stalls loses its lease, and its late report must change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.client.app import Penstock
from penstock.lab.checkers.evidence import number
from penstock.lab.environment import QueueSettings
from penstock.lab.holders import HOLDER_VARIABLE, HolderSettings
from penstock.lab.knobs import Knob
from penstock.lab.producer import Draft
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage

ENTRY = "penstock.lab.holders:hold"
OFFER_MS = 5_000
RETENTION_MS = 1_000


class LeaseTheft(Scenario):
    """A message and a job: the first holder of each stalls, and a second one takes over."""

    name = "lease-theft"
    rule = "A report under a lease that has gone to another changes nothing."
    short = "a stale report changes nothing"
    story = (
        "The first holder stalled at the end of its work, as a process does whose machine is paused. Its lease ran "
        "out, and the next holder began. Then the first one woke up and reported: the FIFO queue and the job refused "
        "that, as its handle and its token were old. Without a fence both reports count, and the work is done twice."
    )
    guide = (
        "A process cannot know that it was paused, so no heartbeat keeps it from reporting late. The other side has "
        "to refuse: by a token that is new with each lease. Jobs of this server and FIFO queues do so. A standard "
        "queue does not, here and on Amazon SQS: an old receipt handle still deletes the message that another "
        "consumer holds. There, let the store of your results check a token or a version."
    )
    try_this = "Let it wake in time: `penstock lab run lease-theft --knob stall-seconds=1`. Nothing is stolen then."
    try_command = "penstock lab run lease-theft --knob stall-seconds=1 --open"
    difference = Difference(
        name="TOKEN",
        protected="checked",
        broken="ignored",
        does="whether a report is judged by its lease; ignored: no heartbeat, and a standard queue",
        words=("heartbeat on, token checked", "heartbeat off, token ignored"),
    )
    knobs = (
        Knob("count", 1, "messages, and as many jobs", least=1, most=20),
        Knob("visibility-timeout", 7, "seconds that a lease lasts", least=1, most=3_600),
        Knob("processing-delay", 6.0, "seconds that the work takes", least=0.1, most=3_600),
        Knob(
            "stall-seconds",
            6.0,
            "seconds that the first holder stands still after its work",
            least=0.0,
            most=3_600,
        ),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:
        """Return how its queues are made: a standard queue takes the delete of whoever had the message once."""
        return QueueSettings(visibility_s=knobs.whole("visibility-timeout"), fifo=not broken, receives_max=0)

    def play(self, stage: Stage) -> None:
        """Give each kind of work two holders, of which the first one stalls."""
        names = [f"message-{place}" for place in range(1, stage.knobs.whole("count") + 1)]
        fifo = stage.environment.settings.fifo
        stage.produce(
            [
                Draft(body={"id": name}, group=name if fifo else None, deduplication=name if fifo else None)
                for name in names
            ]
        )
        if not stage.own_server:
            stage.differences.append(
                "Jobs are not part of SQS, so only messages were held. Amazon SQS refuses a delete on a FIFO queue "
                "once the receipt handle has expired; an emulator may not."
            )
            self._hold(stage, "A", "B")
        else:
            job_queue = _enqueue(stage)
            self._hold(stage, "A", "B")
            self._hold(stage, "C", "D", job_queue)
        stage.wait_for(lambda: not stage.running or _all_reported(stage))

    def _hold(self, stage: Stage, first: str, second: str, job_queue: str = "") -> None:
        """Start two holders of one kind of work, the second one when the first one has some."""
        knobs = stage.knobs
        lease_s, work_s, stall_s = (knobs.real(name) for name in ("visibility-timeout", *_TIMES))
        told = HolderSettings(
            work_s=work_s,
            heartbeat_s=0 if stage.broken else work_s / 2,
            stall_s=stall_s,
            idle_s=lease_s + work_s / 2 + 2,
            job_queue=job_queue,
            fenced=not stage.broken,
        )
        received = stage.counted("receive")
        stage.consumer_of(ENTRY, first, _variables(told))
        stage.wait_for(lambda: stage.counted("receive") > received)
        stage.consumer_of(ENTRY, second, _variables(msgspec.structs.replace(told, stall_s=0.0)))

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count leases, refused reports and what was committed."""
        ledger = () if seen.ledger is None else seen.ledger
        refused = len(seen.of("report", "fail"))
        return (number(len(seen.of("receive", "ok")), "lease"), f"{refused} refused", number(len(ledger), "effect"))

    def found(self, seen: Evidence) -> str:
        """Return all three."""
        return ", ".join(self.figures(seen))


_TIMES = ("processing-delay", "stall-seconds")


def _all_reported(stage: Stage) -> bool:
    """Return whether all work is done, and nobody holds any."""
    # The effect, or its refusal, is the last that a holder notes.
    done, refused = stage.counted("effect"), stage.counted("effect", "fail")
    kinds = 2 if stage.own_server else 1
    return done >= kinds * stage.knobs.whole("count") and done + refused == stage.counted("receive")


def _variables(told: HolderSettings) -> dict[str, object]:
    return {HOLDER_VARIABLE: msgspec.json.encode(told).decode()}


def _enqueue(stage: Stage) -> str:
    """Make a queue of jobs, enqueue them, and return its name.

    The server keeps finished jobs for a while and the queue with them, so it is not deleted here. In a store that goes
    with the run that does not matter, and in any other the next run finds the queue as it needs it.
    """
    name = f"{stage.environment.names.queue.removesuffix('.fifo')}-jobs"
    lease_ms = stage.knobs.whole("visibility-timeout") * 1_000
    with Penstock(stage.environment.endpoint or "") as app:
        app.sync.queues.put(name, lease_ms=lease_ms, offer_ms=OFFER_MS, retention_ms=RETENTION_MS)
        for place in range(1, stage.knobs.whole("count") + 1):
            app.sync.jobs.enqueue(name, "hold", f"job-{place}")
            stage.record("ok", "send", body_id=f"job-{place}", queue=name)
    return name
