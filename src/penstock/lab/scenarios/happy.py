"""happy: everything that is sent has its effect and is deleted, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import number
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage

IDLE_S = 3


class Happy(Scenario):
    """Five messages, one consumer, nothing fails."""

    name = "happy"
    rule = "What is sent is done and deleted, once."
    short = "sent = effects = deletes"
    story = (
        "The consumer received each message, did its work, and deleted it. "
        "Without the delete the queue delivers every message again when its lease ends, and in the end "
        "it moves finished work to the dead-letter queue."
    )
    guide = (
        "A queue keeps a message until you delete it: receiving it only hides it for the visibility timeout. "
        "Delete a message after its work is done and recorded, never before."
    )
    try_this = "Send more: `penstock lab run happy --count 50 --batch-size 10`. The numbers grow and the rule holds."
    try_command = "penstock lab run happy --count 50 --batch-size 10 --open"
    difference = Difference(
        name="DELETE",
        protected="after the work",
        broken="never",
        does="when the consumer deletes a message",
        words=("deletes after the work", "never deletes"),
    )
    knobs = (
        Knob("count", 5, "messages sent", least=1, most=10_000),
        Knob("batch-size", 5, "messages in one call of the producer", least=1, most=10),
        Knob("visibility-timeout", 10, "seconds that a lease lasts", least=1, most=43_200),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made."""
        return QueueSettings(visibility_s=knobs.whole("visibility-timeout"))

    def play(self, stage: Stage) -> None:
        """Send, consume until the queue has been quiet for a while: in the broken variant, for more than a lease."""
        stage.produce(n=stage.knobs.whole("count"), batch_size=stage.knobs.whole("batch-size"))
        consumer = stage.consumer(
            "A",
            flaws=["never-delete"] if stage.broken else [],
            IDLE_TIMEOUT_SECONDS=IDLE_S + (stage.knobs.whole("visibility-timeout") if stage.broken else 0),
        )
        stage.wait(consumer)

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count what the rule is about."""
        effects = 0 if seen.ledger is None else len(seen.ledger)
        deletes = len(seen.of("delete", "ok"))
        return (f"{len(seen.sent()):,} sent", number(effects, "effect"), number(deletes, "delete"))

    def found(self, seen: Evidence) -> str:
        """Return all three."""
        return ", ".join(self.figures(seen))
