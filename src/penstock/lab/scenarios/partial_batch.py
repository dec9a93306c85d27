"""partial-batch: of a batch, the good messages are deleted one by one, and only the bad ones come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.payloads import POISON_MARKER
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage

RECEIVES_MAX = 2
BATCH = 10


class PartialBatch(Scenario):
    """Every third message is bad, and ten are received at a time."""

    name = "partial-batch"
    rule = "Good messages are deleted once; only bad ones come back."
    short = "only bad ones return"
    story = (
        "Messages came ten at a time, and some of each batch were bad. The consumer deleted the good ones one by one, "
        "so only the bad ones came back, and after the second receive they were dead letters. A consumer that retries "
        "whole batches gets all of them again, and sends good messages to the dead-letter queue."
    )
    guide = (
        "A batch saves calls, not decisions: each message has its own receipt handle, so delete what is done and "
        "leave the rest. A consumer that treats a batch as one unit repeats good work for as long as one message in "
        "it fails. With AWS Lambda, return batchItemFailures; with SqsConsumer, return what failed."
    )
    try_this = "Make every second bad: `penstock lab run partial-batch --poison-every 2`. The good half passes at once."
    try_command = "penstock lab run partial-batch --poison-every 2 --open"
    difference = Difference(
        name="DELETE",
        protected="each good one",
        broken="only whole batches",
        does="what the consumer deletes of a batch with a bad message",
        words=("deletes each good one", "retries the whole batch"),
    )
    knobs = (
        Knob("count", 50, "messages sent", least=1, most=5_000),
        Knob("poison-every", 3, "every how many messages one is bad", least=1, most=5_000),
        Knob("batch-size", BATCH, "messages in one call of the producer", least=1, most=10),
        Knob("visibility-timeout", 10, "seconds that a lease lasts", least=1, most=43_200),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made."""
        return QueueSettings(visibility_s=knobs.whole("visibility-timeout"), receives_max=RECEIVES_MAX)

    def play(self, stage: Stage) -> None:
        """Send, and consume in batches until nothing comes back."""
        knobs = stage.knobs
        stage.produce(
            n=knobs.whole("count"),
            poison_every=knobs.whole("poison-every"),
            batch_size=knobs.whole("batch-size"),
        )
        consumer = stage.consumer(
            "A",
            flaws=["whole-batch"] if stage.broken else [],
            MAX_MESSAGES=BATCH,
            REJECT_PAYLOAD_MARKER=POISON_MARKER,
            IDLE_TIMEOUT_SECONDS=2 * knobs.whole("visibility-timeout") + 1,
        )
        stage.wait(consumer)

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count deletes and dead letters, too."""
        dead = 0 if seen.dead is None else seen.dead.count
        return (
            f"{len(seen.sent()):,} sent",
            f"{len(seen.of('receive', 'ok')):,} receives",
            f"{len(seen.of('delete', 'ok')):,} deletes",
            f"{dead:,} dead",
        )

    def found(self, seen: Evidence) -> str:
        """Say how much of it was bad."""
        bad = sum(event.poison is True for event in seen.sent().values())
        return f"{len(seen.sent()):,} messages, {bad:,} of them bad"
