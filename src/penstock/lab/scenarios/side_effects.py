"""side-effects: a crash at every step of check-before-doing, for every message, and still one call each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import number
from penstock.lab.consumer_settings import STEPS
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.processes import Process
    from penstock.lab.stage import Stage


PLAN = (1, 2, 3, 5, 4, 6)
"""Before which step the first, second, … receive of a message crashes. The fourth stalls before its call, for longer
than its lease lasts; the fifth makes the call meanwhile."""
STALLED = 4
STALL = 1.5
"""How long it stalls, in visibility timeouts: until the fifth receive is over, and before the sixth."""


class SideEffects(Scenario):
    """Consumers that die before each of the six steps, round by round, until every message is through."""

    name = "side-effects"
    rule = "Each message causes one call, with a crash at every step."
    short = "one call each, crash at every step"
    story = (
        "Each message was received seven times. Six consumers died with it, one before each step, and the seventh "
        "finished. The fourth had looked, stalled past its lease, and tried to call after the fifth had called: the "
        "conditional write refused it. Those that came later found the call on record and left it out. Without the "
        "check and the condition, each of the last four attempts made the call."
    )
    guide = (
        "You cannot put a call to another service and your own record into one transaction, so a crash between the "
        "two leaves you in doubt. Check before doing: ask the other side whether the call was made. And let the other "
        "side refuse a second one, by a conditional write or an idempotency key, because a consumer may stall between "
        "its check and its call."
    )
    try_this = "Use one message and follow its ladder: `penstock lab run side-effects --count 1 --open`."
    try_command = "penstock lab run side-effects --count 1 --open"
    difference = Difference(
        name="CHECK_BEFORE_DOING",
        protected="on",
        broken="off",
        does="the consumer looks whether the call is on record, and its write is conditional",
        words=("check before doing", "no check"),
    )
    knobs = (
        Knob("count", 5, "messages sent", least=1, most=50),
        Knob("visibility-timeout", 10, "seconds that a lease lasts", least=2, most=28_800),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made: a message survives a crash at every step."""
        return QueueSettings(visibility_s=knobs.whole("visibility-timeout"), receives_max=STEPS + 4)

    def play(self, stage: Stage) -> None:
        """Start as many consumers as there are messages, in six rounds, and then one that finishes."""
        count = stage.knobs.whole("count")
        stage.produce(n=count)
        stalled: list[Process] = []
        for receive in range(1, len(PLAN) + 1):
            consumers = [self._consumer(stage, receive, place) for place in range(1, count + 1)]
            if receive == STALLED:
                # They still hold on to their messages when the next round gets them.
                stage.wait_for(lambda: stage.counted("receive") >= STALLED * count or not stage.running)
                stalled = consumers
            else:
                stage.wait(*consumers)
        stage.wait(*stalled)
        # Each that is still to crash, where a round missed a message, is followed by one more.
        for place in range(1, count * len(PLAN) + 2):
            last = self._consumer(stage, len(PLAN) + 1, place)
            stage.wait(last)
            if last.code == 0:
                return

    def _consumer(self, stage: Stage, receive: int, place: int) -> Process:
        visibility_s = stage.knobs.whole("visibility-timeout")
        return stage.consumer(
            f"{receive}{_letters(place)}",
            flaws=["skip-check", "unconditional-write"] if stage.broken else [],
            CRASH_AT_STEPS=",".join(str(step) for step in PLAN),
            SIDE_EFFECT_DELAY_SECONDS=STALL * visibility_s if receive == STALLED else 0,
            IDLE_TIMEOUT_SECONDS=visibility_s + 5,
        )

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count crashes and calls."""
        calls = 0 if seen.ledger is None else len(seen.ledger)
        crashes = number(len(seen.of("crash")), "crash", "crashes")
        return (f"{len(seen.sent())} sent", crashes, number(calls, "call"))


def _letters(place: int) -> str:
    """Return a letter for each consumer of a round, and two where those are not enough."""
    first, second = divmod(place - 1, 26)
    return f"{chr(ord('a') + first - 1) if first else ''}{chr(ord('a') + second)}"
