"""business-idempotency: two messages about one order make one call, because the key is the order."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from penstock.lab.checkers.evidence import number
from penstock.lab.knobs import Knob
from penstock.lab.producer import Draft
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.stage import Stage

WORK_S = 1
IDLE_S = 3
FIELDS = "order_id,action"


class BusinessIdempotency(Scenario):
    """Every order is sent twice, in messages that differ, as after a double click, and two consumers work on them."""

    name = "business-idempotency"
    rule = "There is one call per order, however many messages are about it."
    short = "one call per order"
    story = (
        "Each order was sent more than once, in messages with ids of their own. The queue cannot know that they mean "
        "the same. The consumers made their key of the order and the action, so the conditional write refused the "
        "second call, even though both worked on the order at once."
    )
    guide = (
        "A message id protects you from redelivery, which the queue causes. It does not protect you from a sender "
        "that asks twice: a double click, a retry in a producer, a bug. For that, the payload must say what the work "
        "is about, and the consumer must use that as its key. Most systems need both."
    )
    try_this = "Send every order four times: `penstock lab run business-idempotency --copies 4`. Still one call each."
    try_command = "penstock lab run business-idempotency --copies 4 --open"
    difference = Difference(
        name="BUSINESS_IDEMPOTENCY_FIELD",
        protected=FIELDS,
        broken="unset",
        does="which fields of the payload make the key of a call",
        words=("the key is the order", "the key is the message"),
    )
    knobs = (
        Knob("count", 5, "orders", least=1, most=5_000),
        Knob("copies", 2, "messages about each order", least=2, most=20),
        Knob("batch-size", 10, "messages in one call of the producer", least=1, most=10),
    )

    def play(self, stage: Stage) -> None:
        """Send the messages of each order one after the other, so that both consumers have the same order at once."""
        knobs = stage.knobs
        orders, copies = knobs.whole("count"), knobs.whole("copies")
        stage.produce(
            [
                Draft(
                    body={
                        "id": str(UUID(int=stage.seed << 64 | copy << 32 | order)),
                        "order_id": f"order-{order}",
                        "action": "charge",
                    }
                )
                for order in range(1, orders + 1)
                for copy in range(copies)
            ],
            batch_size=knobs.whole("batch-size"),
        )
        protection = {} if stage.broken else {"BUSINESS_IDEMPOTENCY_FIELD": FIELDS}
        consumers = [
            stage.consumer(name, SIDE_EFFECT_DELAY_SECONDS=WORK_S, IDLE_TIMEOUT_SECONDS=IDLE_S, **protection)
            for name in ("A", "B")
        ]
        stage.wait(*consumers)

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count messages, orders and calls."""
        sent = seen.sent().values()
        calls = 0 if seen.ledger is None else len(seen.ledger)
        orders = number(len({event.key for event in sent}), "order")
        return (f"{number(len(sent), 'message')} for {orders}", number(calls, "call"))

    def found(self, seen: Evidence) -> str:
        """Return both."""
        return ", ".join(self.figures(seen))
