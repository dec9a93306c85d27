"""double-send: a send whose answer is lost is tried again, and stored once if its tries can be recognised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.lab.checkers.evidence import number
from penstock.lab.cut_calls import SenderSettings
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage

IDLE_S = 3
ENTRY = "penstock.lab.cut_calls:send"


class DoubleSend(Scenario):
    """The connection is cut after the commit of each send, and the send is tried again."""

    name = "double-send"
    rule = "Each call stores one message, although its answer is lost."
    short = "one stored per call"
    story = (
        "Each connection was cut after the server had stored the message, so the sender tried again. The SDK's tries "
        "of one call have one id, by which the server knew them; a call repeated by hand is a new one, stored again."
    )
    guide = (
        "A send without an answer was stored or was not: you cannot know, so you must send again. Leave that to the "
        "SDK: its tries carry one amz-sdk-invocation-id, and this server stores a call once by it. Amazon SQS does "
        "that on FIFO queues only, by MessageDeduplicationId: take it from the work, and never make a new one for a "
        "retry. Where neither is there, the consumer has to tell duplicates by a key of the payload."
    )
    try_this = (
        "Cut more: `penstock lab run double-send --knob cuts=3`. The broken variant then stores each message 4 times."
    )
    try_command = "penstock lab run double-send --knob cuts=3 --open"
    difference = Difference(
        name="ID_OF_A_RETRY",
        protected="that of its call",
        broken="a fresh one",
        does="by which the server knows tries of one call",
        words=("one id for all tries", "fresh id per try"),
    )
    knobs = (
        Knob("count", 3, "calls, each of which sends one message", least=1, most=1_000),
        Knob("cuts", 1, "answers to each call that are cut off", least=1, most=4),
        Knob("fifo", 0, "1 for a FIFO queue, with deduplication ids", least=0, most=1),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made."""
        return QueueSettings(fifo=bool(knobs.whole("fifo")))

    def play(self, stage: Stage) -> None:
        """Send behind a proxy that cuts, and look what is in the queue by consuming it."""
        knobs = stage.knobs
        told = SenderSettings(
            queue_url=stage.environment.queue_url,
            region=stage.environment.region,
            count=knobs.whole("count"),
            cuts=knobs.whole("cuts"),
            fresh_ids=stage.broken,
        )
        stage.wait(stage.start("producer", ENTRY, [msgspec.json.encode(told).decode()]))
        stored = stage.counts().total
        if not stage.broken and not stage.own_server:
            stage.differences.append(
                f"This endpoint stored {number(stored, 'message')} for {number(told.count, 'call')}. Amazon SQS knows "
                "tries of one call by their deduplication id, on FIFO queues (--knob fifo=1), and not by the SDK’s "
                "invocation id. An answer that names another message than the one stored counts as a second one."
            )
        stage.wait(stage.consumer("A", IDLE_TIMEOUT_SECONDS=IDLE_S))

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count calls, tries and what was stored."""
        sends = [event for event in seen.of("send") if event.call is not None]
        stored = {event.message_id for event in seen.of("receive", "ok")}
        calls = {event.call for event in sends}
        return (number(len(calls), "call"), number(len(sends), "try", "tries"), f"{len(stored):,} stored")

    def found(self, seen: Evidence) -> str:
        """Return all three."""
        return ", ".join(self.figures(seen))
