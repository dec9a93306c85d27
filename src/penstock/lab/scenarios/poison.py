"""poison: messages that nobody can process are put aside after two receives, and only those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.payloads import POISON_MARKER
from penstock.lab.scenario import Difference, Scenario
from penstock.lab.variables import BadValue

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage

RECEIVES_MAX = 2
ROUNDS_WITHOUT_REDRIVE = 6
"""How many visibility timeouts the broken variant is watched for: without an end, poison comes back in each."""


class Poison(Scenario):
    """Some of the messages carry a marker that the consumer rejects, every time."""

    name = "poison"
    rule = "The dead letters are the poison messages, after 2 receives each."
    short = "dead letters = the poison set"
    story = (
        "The consumer rejected the poison messages each time it received them. After the second receive the queue "
        "moved them to the dead-letter queue; the good ones were done and deleted. Without a redrive policy the poison "
        "comes back whenever its lease ends."
    )
    guide = (
        "A message that cannot be processed comes back until the queue deletes it, after four days by default, and "
        "takes a consumer's time whenever it does. A redrive policy ends that: after maxReceiveCount receives the "
        "message moves to a dead-letter queue. Look at it there, fix the cause, and move it back."
    )
    try_this = "Make most of them poison: `penstock lab run poison --count 20 --poison-count 15`. The good ones pass."
    try_command = "penstock lab run poison --count 20 --poison-count 15 --open"
    difference = Difference(
        name="REDRIVE_POLICY",
        protected=f"maxReceiveCount {RECEIVES_MAX}",
        broken="off",
        does="after how many receives a message is a dead letter",
        words=("dead letters after 2 receives", "no redrive policy"),
    )
    knobs = (
        Knob("count", 5, "messages sent", least=1, most=1_000),
        Knob("poison-count", 2, "how many of them are poison", least=1, most=1_000),
        Knob("batch-size", 10, "messages in one call of the producer", least=1, most=10),
        Knob("visibility-timeout", 10, "seconds that a lease lasts", least=1, most=43_200),
    )

    def validate(self, knobs: Knobs) -> None:
        """Raise `BadValue` for more poison than messages."""
        if knobs.whole("poison-count") > knobs.whole("count"):
            raise BadValue(
                f"--poison-count must be at most --count, {knobs.whole('count')}, not {knobs.whole('poison-count')}."
            )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:
        """Return how its queues are made."""
        return QueueSettings(visibility_s=knobs.whole("visibility-timeout"), receives_max=0 if broken else RECEIVES_MAX)

    def play(self, stage: Stage) -> None:
        """Send good and bad ones, and consume until nothing comes back, or for long enough to see that it goes on."""
        knobs = stage.knobs
        visibility_s = knobs.whole("visibility-timeout")
        stage.produce(
            n=knobs.whole("count"),
            poison_count=knobs.whole("poison-count"),
            batch_size=knobs.whole("batch-size"),
        )
        consumer = stage.consumer("A", REJECT_PAYLOAD_MARKER=POISON_MARKER, IDLE_TIMEOUT_SECONDS=2 * visibility_s + 1)
        stage.wait(consumer, timeout_s=ROUNDS_WITHOUT_REDRIVE * visibility_s)

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count receives and dead letters, too."""
        dead = 0 if seen.dead is None else seen.dead.count
        return (*super().figures(seen), f"{dead} dead")

    def found(self, seen: Evidence) -> str:
        """Say how many of how many were put aside."""
        dead = 0 if seen.dead is None else seen.dead.count
        return f"{dead} of {len(seen.sent())} {'is a dead letter' if dead == 1 else 'are dead letters'}"
