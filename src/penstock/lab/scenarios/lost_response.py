"""lost-response: a receive whose answer is lost gets its messages by being repeated, not a lease later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.lab.checkers.evidence import number, seconds
from penstock.lab.cut_calls import RECEIVER_VARIABLE, ReceiverSettings
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.producer import Draft
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage

ENTRY = "penstock.lab.cut_calls:receive"
PATIENCE_S = 5


class LostResponse(Scenario):
    """The answers to the first receives are cut off after their messages were leased."""

    name = "lost-response"
    rule = "A repeated receive gets the same messages, and none stays hidden while nobody works on it."
    short = "a repeat gets the same messages"
    story = (
        "The queue leased a message and answered, but the connection was cut, so the consumer asked again. With both "
        "tries marked as one receive it got the same message at once. Without the mark it got another one, and the "
        "first lay hidden for a whole lease while nobody worked on it."
    )
    guide = (
        "Once a message is leased, the queue waits for a consumer that may never have heard of it. Mark the tries of "
        "one receive: on FIFO queues by ReceiveRequestAttemptId, on Amazon SQS too. This server also knows the "
        "retries of every SDK, on standard queues as well. A short visibility timeout with a heartbeat limits the "
        "harm where tries cannot be marked; and a receive that nobody heard counts towards the dead letters."
    )
    try_this = (
        "Use a standard queue: `penstock lab run lost-response --knob fifo=0`. The SDK's own retries are recognised."
    )
    try_command = "penstock lab run lost-response --knob fifo=0 --open"
    difference = Difference(
        name="ATTEMPT_ID",
        protected="on",
        broken="off",
        does="tries of one receive are marked",
        words=("attempt id on", "attempt id off"),
    )
    knobs = (
        Knob("count", 6, "messages sent", least=1, most=1_000),
        Knob("cuts", 3, "receives whose first answer is cut off", least=1, most=100),
        Knob("visibility-timeout", 10, "seconds that a lease lasts", least=1, most=43_200),
        Knob("fifo", 1, "0 for a standard queue, and the SDK's own retries", least=0, most=1),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made."""
        return QueueSettings(visibility_s=knobs.whole("visibility-timeout"), fifo=bool(knobs.whole("fifo")))

    def play(self, stage: Stage) -> None:
        """Send, and consume behind a proxy that cuts."""
        knobs = stage.knobs
        fifo = stage.environment.settings.fifo
        names = [f"message-{number}" for number in range(1, knobs.whole("count") + 1)]
        # Each has a group of its own, so that one that is hidden holds up no other.
        stage.produce(
            [
                Draft(body={"id": name}, group=name if fifo else None, deduplication=name if fifo else None)
                for name in names
            ]
        )
        told = ReceiverSettings(cuts=knobs.whole("cuts"), attempt_id=not stage.broken)
        variables = {
            RECEIVER_VARIABLE: msgspec.json.encode(told).decode(),
            "MESSAGE_LIMIT": len(names),
            "IDLE_TIMEOUT_SECONDS": knobs.whole("visibility-timeout") + PATIENCE_S,
        }
        stage.wait(stage.consumer_of(ENTRY, "A", variables))
        if not stage.broken and not stage.own_server:
            stage.differences.append(
                "Amazon SQS knows the tries of one receive by ReceiveRequestAttemptId, on FIFO queues only; an "
                "emulator may not know them at all. This server knows those of an SDK on standard queues, too."
            )

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count what was cut off, and how long a message took to arrive after that."""
        waits = [wait for wait in _waits(seen) if wait is not None]
        longest = f"back after {seconds(max(waits))}" if waits else "none back"
        return (f"{len(seen.sent()):,} sent", number(len(seen.of("receive", "info")), "lost answer"), longest)

    def found(self, seen: Evidence) -> str:
        """Say after how long the messages of lost answers arrived."""
        return ", ".join(self.figures(seen)[1:])


def _waits(seen: Evidence) -> list[int | None]:
    """Return how long the message of each lost answer took to arrive."""
    receives = seen.receives()
    return [
        next((one.t_ms - lost.t_ms for one in receives.get(lost.message or "", []) if one.i > lost.i), None)
        for lost in seen.of("receive", "info")
    ]
