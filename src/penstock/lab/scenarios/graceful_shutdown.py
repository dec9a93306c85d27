"""graceful-shutdown: a consumer that is asked to stop finishes what it holds, and takes nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import seconds
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage


class GracefulShutdown(Scenario):
    """SIGTERM in the middle of five seconds of work, with more messages waiting."""

    name = "graceful-shutdown"
    rule = "Work in flight is finished, the rest is left alone, and the exit code is 0."
    short = "work in flight is finished"
    story = (
        "SIGTERM came in the middle of the work. The consumer finished it, deleted the message, received nothing "
        "more, and exited with 0. One that exits at once leaves its message hidden until the lease ends."
    )
    guide = (
        "Every deployment stops every consumer. On SIGTERM stop receiving first, then finish what you hold, then "
        "exit; and give the process longer than your longest message takes before it is killed. What was received "
        "after the signal goes back at once with a visibility timeout of 0."
    )
    try_this = (
        "Stop it earlier: `penstock lab run graceful-shutdown --sigterm-delay 0.5`. The work is finished all the same."
    )
    try_command = "penstock lab run graceful-shutdown --sigterm-delay 0.5 --open"
    difference = Difference(
        name="ON_SIGTERM",
        protected="finish",
        broken="exit at once",
        does="what the consumer does on SIGTERM",
        words=("finishes on SIGTERM", "exits on SIGTERM"),
    )
    knobs = (
        Knob("count", 3, "messages sent", least=2, most=1_000),
        Knob("processing-delay", 5.0, "seconds that the work takes", least=0.1, most=3_600),
        Knob("sigterm-delay", 2.0, "seconds after the first receive at which SIGTERM comes", least=0.0, most=3_600),
        Knob("visibility-timeout", 10, "seconds that a lease lasts", least=1, most=43_200),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made."""
        return QueueSettings(visibility_s=knobs.whole("visibility-timeout"))

    def play(self, stage: Stage) -> None:
        """Send, let the consumer begin, and ask it to stop."""
        knobs = stage.knobs
        stage.produce(n=knobs.whole("count"))
        consumer = stage.consumer(
            "A",
            flaws=["exit-at-once"] if stage.broken else [],
            SIDE_EFFECT_DELAY_SECONDS=knobs.real("processing-delay"),
        )
        stage.wait_for(lambda: stage.counted("receive") > 0)
        stage.sleep(knobs.real("sigterm-delay"))
        stage.terminate(consumer)
        stage.wait(consumer)
        # By then the leases of what was cut off are over, so the queue can be counted.
        stage.sleep(knobs.whole("visibility-timeout") + 1)

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Say how the consumer ended."""
        left = 0 if seen.left is None else seen.left.count
        exits = [event.code for event in seen.of("exit") if event.process == "A"]
        return (f"{len(seen.of('delete', 'ok'))} done", f"{left} left", f"exit {exits[0] if exits else '?'}")

    def found(self, seen: Evidence) -> str:
        """Say when the signal came and when the consumer ended."""
        received = next(iter(seen.of("receive", "ok")), None)
        signal = next(iter(seen.of("signal")), None)
        exits = [event for event in seen.of("exit") if event.process == "A"]
        if received is None or signal is None or not exits:
            return ", ".join(self.figures(seen))
        return f"SIGTERM at {seconds(signal.t_ms - received.t_ms)}, exit at {seconds(exits[0].t_ms - received.t_ms)}"
