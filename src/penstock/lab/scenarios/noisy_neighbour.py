"""noisy-neighbour: one tenant fills the queue, and a quiet one must not wait behind all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers import suites
from penstock.lab.checkers.bounds import p99, waits_ms
from penstock.lab.checkers.evidence import seconds
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.producer import Draft
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage

QUIET, LOUD = "quiet", "loud"
RATE = 2.0
"""How many messages the quiet tenant sends in a second."""
CONSUMERS = ("A", "B", "C")
VISIBILITY_S = 30
IDLE_S = 3


class NoisyNeighbour(Scenario):
    """A quiet tenant is measured alone, and then beside one that sends everything at once."""

    name = "noisy-neighbour"
    rule = "A quiet tenant’s p99 wait is at most k × its wait alone."
    short = "a quiet tenant does not wait long"
    story = (
        "One tenant sent all its messages at once while a quiet one sent now and then. With a group id for each "
        "tenant the queue gave the next free consumer to whoever had the fewest messages in flight, so the quiet one "
        "waited for one message at most. Without, it waited behind the whole backlog."
    )
    guide = (
        "Give each message of a shared queue its tenant as MessageGroupId, on a standard queue: that orders nothing "
        "and makes the queue fair, here and on Amazon SQS. Keep one receive small (MaxNumberOfMessages), as a batch "
        "that is taken is not fair any more. It shares consumers; it does not add any: if all tenants together send "
        "more than you can do, see backpressure."
    )
    try_this = "Send more noise: `penstock lab run noisy-neighbour --count 100`. The quiet tenant’s wait stays."
    try_command = "penstock lab run noisy-neighbour --count 100 --open"
    difference = Difference(
        name="MESSAGE_GROUP_ID",
        protected="the tenant",
        broken="none",
        does="whether the queue knows whose message it is",
        words=("group id per tenant", "no group ids"),
    )
    knobs = (
        Knob("count", 60, "messages that the loud tenant sends at once", least=1, most=10_000),
        Knob("quiet-count", 6, "messages of the quiet tenant, alone and then beside the loud one", least=1, most=1_000),
        Knob("processing-delay", 0.2, "seconds that the work takes", least=0.01, most=60.0),
        Knob("wait-factor", 3.0, "how many times its wait alone the quiet tenant may wait", least=1.0, most=100.0),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made."""
        return QueueSettings(visibility_s=VISIBILITY_S)

    def play(self, stage: Stage) -> None:
        """Measure the quiet tenant alone, and then beside the loud one."""
        knobs = stage.knobs
        for name in CONSUMERS:
            stage.consumer(
                name,
                SIDE_EFFECT_DELAY_SECONDS=knobs.real("processing-delay"),
                # They outlast the time between two messages of the quiet tenant.
                IDLE_TIMEOUT_SECONDS=IDLE_S,
                # Nothing fails here, so nothing has to be kept in tables.
                MESSAGE_STATUS_TABLE="",
                MESSAGE_SIDE_EFFECTS_TABLE="",
            )
        quiet = knobs.whole("quiet-count")
        stage.phase("alone")
        stage.wait(stage.producer(self._drafts(stage, QUIET, "alone", quiet), name=QUIET, rate=RATE, batch_size=1))
        stage.phase("shared")
        loud = stage.producer(self._drafts(stage, LOUD, "shared", knobs.whole("count")), name=LOUD)
        again = stage.producer(self._drafts(stage, QUIET, "shared", quiet), name=QUIET, rate=RATE, batch_size=1)
        stage.wait(loud, again)
        sent = knobs.whole("count") + quiet * 2
        stage.wait_for(lambda: not stage.running or stage.counted("delete") >= sent)
        if not stage.broken and not stage.own_server:
            stage.differences.append(
                "Whether a standard queue is fair by MessageGroupId is up to its endpoint: Amazon SQS and this server "
                "are, and others may ignore it."
            )

    def _drafts(self, stage: Stage, tenant: str, phase: str, count: int) -> list[Draft]:
        return [
            Draft(body={"id": f"{tenant}-{phase}-{place}", "tenant": tenant}, group=None if stage.broken else tenant)
            for place in range(1, count + 1)
        ]

    def bounds(self, knobs: Knobs) -> suites.Knobs:
        """Return what its checks need to know: a wait alone is at least the time of one message."""
        return suites.Knobs(
            visibility_ms=VISIBILITY_S * 1_000,
            quiet_tenant=QUIET,
            wait_factor=knobs.real("wait-factor"),
            wait_floor_ms=round(knobs.real("processing-delay") * 1_000),
        )

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Say how long the quiet tenant waited."""
        shared = [wait for wait, *_ in waits_ms(seen, phase="shared").get(QUIET, [])]
        waited = f"quiet waits {seconds(p99(shared))}" if shared else "not measured"
        return (f"{len(seen.sent()):,} sent", f"{len(seen.of('delete', 'ok')):,} done", waited)

    def found(self, seen: Evidence) -> str:
        """Compare its wait with that alone."""
        waits = [[wait for wait, *_ in waits_ms(seen, phase=phase).get(QUIET, [])] for phase in ("alone", "shared")]
        if not all(waits):
            return "not measured"
        alone, shared = (seconds(p99(many)) for many in waits)
        return f"p99 {shared}, alone {alone}"
