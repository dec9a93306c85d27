"""duplicates: work that outlasts its lease is received twice; only the conditional write keeps it to one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage


class Duplicates(Scenario):
    """Two consumers, and work that takes longer than a lease lasts."""

    name = "duplicates"
    rule = "At least two receives, exactly one call."
    short = "two receives or more, one call"
    story = (
        "The work took longer than its lease, so each message was received twice. Both consumers saw nothing on "
        "record; only the conditional write stopped the second call."
    )
    guide = (
        "Checking before doing is not enough: two consumers can both look before either writes. The check saves work, "
        "the conditional write keeps the promise. Let the store refuse the second write, or pass the service outside "
        "an idempotency key, and give the lease a heartbeat so that this stays rare."
    )
    try_this = (
        "Set `VISIBILITY_TIMEOUT=4`. The lease then outlasts the work, nothing is received twice, and the verdict is "
        "unknown: the rule was never put to the test."
    )
    try_command = "VISIBILITY_TIMEOUT=4 penstock lab run duplicates --open"
    difference = Difference(
        name="CONDITIONAL_WRITE",
        protected="on",
        broken="off",
        does="the write to message_side_effects is conditional",
        words=("conditional write on", "conditional write off"),
    )
    knobs = (
        Knob("count", 5, "messages sent", least=1, most=1_000),
        Knob("visibility-timeout", 2, "seconds that a lease lasts", least=1, most=43_200),
        Knob("slow-seconds", 3.0, "seconds that the work takes", least=0, most=43_200),
        Knob("second-start-delay", 0.5, "seconds after which the second consumer starts", least=0, most=3_600),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made."""
        return QueueSettings(visibility_s=knobs.whole("visibility-timeout"))

    def play(self, stage: Stage) -> None:
        """Send a message whenever both consumers are free: one of them takes it, and the other when its lease ends."""
        knobs = stage.knobs
        work_s = knobs.real("slow-seconds")
        round_s = work_s * 2 + 2
        producer = stage.producer(n=knobs.whole("count"), rate=1 / round_s, batch_size=1)
        variables = {
            "SIDE_EFFECT_DELAY_SECONDS": work_s,
            "IDLE_TIMEOUT_SECONDS": round_s * 2 + knobs.whole("visibility-timeout"),
            # Each consumer is to rely on the tables, as it would after a restart.
            "IDEMPOTENCY_CACHE_SIZE": 0,
        }
        flaws = ["unconditional-write"] if stage.broken else []
        first = stage.consumer("A", flaws=flaws, **variables)
        stage.sleep(knobs.real("second-start-delay"))
        second = stage.consumer("B", flaws=flaws, **variables)
        stage.wait(producer, first, second)
