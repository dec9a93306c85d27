"""crash: a message whose consumer dies comes back after its visibility timeout, and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import number, seconds
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage


class Crash(Scenario):
    """One message; its first consumer crashes after the receive, a second one takes over."""

    name = "crash"
    rule = "A message is back after its lease, never before, and has one effect."
    short = "back after its lease, never before"
    story = (
        "Consumer A received the message and died. Its lease ran on for the rest of the visibility timeout; then B "
        "received the message, and did the work once. With a delete on receipt, nothing is left to come back."
    )
    guide = (
        "The visibility timeout is how long a queue waits for a consumer that may be dead. Nobody tells it about the "
        "crash, so a short timeout means a quick recovery, and one that is too short means work done twice. "
        "A consumer that deletes first loses every message that it had in hand."
    )
    try_this = "Halve the wait: `VISIBILITY_TIMEOUT=5 penstock lab run crash`. B gets the message after 5 s."
    try_command = "VISIBILITY_TIMEOUT=5 penstock lab run crash --open"
    difference = Difference(
        name="DELETE",
        protected="after the work",
        broken="on receive",
        does="when the consumer deletes a message",
        words=("deletes after the work", "deletes on receive"),
    )
    knobs = (
        Knob("count", 1, "messages sent", least=1, most=1_000),
        Knob("batch-size", 10, "messages in one call of the producer", least=1, most=10),
        Knob("visibility-timeout", 10, "seconds that a lease lasts", least=1, most=43_200),
        Knob("crash-window", 30, "seconds in which A must have crashed", least=1, most=600),
        Knob("visibility-wait", 5, "seconds after a lease's end in which the message must be back", least=1, most=600),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made."""
        return QueueSettings(visibility_s=knobs.whole("visibility-timeout"))

    def play(self, stage: Stage) -> None:
        """Let A crash with a message in hand, and B go on."""
        knobs = stage.knobs
        flaws = ["delete-on-receive"] if stage.broken else []
        stage.produce(n=knobs.whole("count"), batch_size=knobs.whole("batch-size"))
        stage.wait(stage.consumer("A", flaws=flaws, CRASH_AFTER_RECEIVE=1), timeout_s=knobs.whole("crash-window"))
        patience_s = knobs.whole("visibility-timeout") + knobs.whole("visibility-wait")
        stage.wait(stage.consumer("B", flaws=flaws, IDLE_TIMEOUT_SECONDS=patience_s))

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count crashes, too."""
        return (number(len(seen.of("crash")), "crash", "crashes"), *super().figures(seen)[1:])

    def found(self, seen: Evidence) -> str:
        """Say after how long the message was back."""
        crash = next(iter(seen.of("crash")), None)
        back = [event for event in seen.of("receive", "ok") if crash and event.i > crash.i and event.count != 1]
        if crash is None or not back:
            return self.figures(seen)[0]
        return f"{self.figures(seen)[0]}, back after {seconds(back[0].t_ms - _received(seen, crash.i))}"


def _received(seen: Evidence, before: int) -> int:
    """Return when the lease began that the crash ended."""
    return [event for event in seen.of("receive", "ok") if event.i < before][-1].t_ms
