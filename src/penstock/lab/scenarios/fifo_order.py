"""fifo-order: messages of a group take effect in their order, although several consumers share the work."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from penstock.lab.checkers.evidence import number
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.producer import Draft
from penstock.lab.scenario import Difference, Scenario
from penstock.lab.uneven import uneven_delays

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage

WAIT_S = 2
"""How long a poll lasts: so long, too, does a consumer take to end."""


class FifoOrder(Scenario):
    """Ten messages in two groups, and five consumers of different speeds."""

    name = "fifo-order"
    rule = "Messages of a group take effect in order, one at a time, whoever consumes them."
    short = "in order within a group"
    story = (
        "Five consumers of different speeds shared the work. While one of them had a message, nobody got another one "
        "of its group, so each group kept its order. A standard queue gives the next message to whoever is free, and "
        "the fast ones overtake the slow ones."
    )
    guide = (
        "Order and concurrency exclude each other: a FIFO queue keeps the order of a message group by giving it to "
        "one consumer at a time, and works in parallel only across groups. Choose the smallest group that needs an "
        "order, such as one account or one order, never one group for all. A message that fails holds up its group "
        "until it succeeds or becomes a dead letter."
    )
    try_this = (
        "More groups: `penstock lab run fifo-order --knob groups=5`. "
        "Each group keeps its order, and all is done in half the time."
    )
    try_command = "penstock lab run fifo-order --knob groups=5 --open"
    difference = Difference(
        name="FIFO_QUEUE",
        protected="true",
        broken="false",
        does="whether the queue keeps the order of a group",
        words=("FIFO queue", "standard queue"),
    )
    knobs = (
        Knob("count", 10, "messages sent", least=2, most=1_000),
        Knob("groups", 2, "message groups that they belong to", least=1, most=100),
        Knob("consumer-count", 5, "consumers", least=1, most=20),
        Knob("processing-delay", 2.0, "seconds that the slowest consumer works on a message", least=0, most=9),
        Knob("batch-size", 10, "messages in one call of the producer", least=1, most=10),
        Knob("timeout", 600, "seconds after which the run is over", least=1, most=36_000),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - the knobs do not matter
        """Return how its queues are made."""
        return QueueSettings(fifo=not broken)

    def play(self, stage: Stage) -> None:
        """Send everything, and let consumers of different speeds take it."""
        knobs = stage.knobs
        stage.produce(drafts(stage), batch_size=knobs.whole("batch-size"))
        delays = uneven_delays(knobs.whole("consumer-count"), knobs.real("processing-delay"), stage.seed)
        consumers = [
            stage.consumer(name, SIDE_EFFECT_DELAY_SECONDS=delay_s, WAIT_TIME_SECONDS=WAIT_S)
            for name, delay_s in delays.items()
        ]
        count = knobs.whole("count")
        stage.wait_for(lambda: stage.counted("delete") >= count or not stage.running, timeout_s=knobs.whole("timeout"))
        for consumer in consumers:
            stage.terminate(consumer)
        stage.wait(*consumers)

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count the consumers that did the work, too."""
        workers = {event.process for event in seen.of("effect", "ok")}
        return (f"{len(seen.sent()):,} sent", number(len(workers), "consumer"), *super().figures(seen)[2:])

    def found(self, seen: Evidence) -> str:
        """Return how many messages how many consumers shared."""
        workers = {event.process for event in seen.of("effect", "ok")}
        return f"{number(len(seen.sent()), 'message')}, {number(len(workers), 'consumer')}"


def drafts(stage: Stage) -> list[Draft]:
    """Make the messages. A standard queue knows no groups, so the payload has the group as well."""
    groups = stage.knobs.whole("groups")
    made = []
    for place in range(stage.knobs.whole("count")):
        name = f"account-{place % groups + 1}"
        body = {
            "id": str(UUID(int=stage.seed << 64 | place + 1)),
            "group": name,
            "sequence": place // groups + 1,
        }
        if stage.broken:
            made.append(Draft(body=body))
        else:
            made.append(Draft(body=body, group=name, deduplication=str(body["id"])))
    return made
