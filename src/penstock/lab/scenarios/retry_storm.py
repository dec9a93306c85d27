"""retry-storm: when everything fails at once, only pauses that grow and differ keep retries from coming together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers import suites
from penstock.lab.checkers.evidence import number
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage

VISIBILITY_S = 60
RETRY_S_MAX = 900.0
CONSUMERS = ("A", "B", "C")


class RetryStorm(Scenario):
    """A service is down, and every message fails a few times before it succeeds."""

    name = "retry-storm"
    rule = "The peak of retries per second is bounded."
    short = "peak of retries per second bounded"
    story = (
        "The service was down, so each message failed and had to be tried again. Pauses that double and are drawn by "
        "lot spread the retries over time. Without them all messages come back at once, as fast as consumers can "
        "take them, and a service that is about to recover is hit by everything at the same instant."
    )
    guide = (
        "Let a failed message rest before its next try: change its visibility by a pause that doubles with its "
        "receive count, up to a limit, and draw the pause at random between nothing and that (full jitter). Without "
        "the jitter those that failed together come back together. A visibility timeout alone does that too."
    )
    try_this = "Fail longer: `penstock lab run retry-storm --iterations 3`. The peak stays, and it takes longer."
    try_command = "penstock lab run retry-storm --iterations 3 --open"
    difference = Difference(
        name="RETRY",
        protected="backoff with jitter",
        broken="at once",
        does="when a failed message is tried again",
        words=("backoff with jitter", "no backoff, no jitter"),
    )
    knobs = (
        Knob("count", 40, "messages sent", least=1, most=10_000),
        Knob("iterations", 2, "tries of each message that fail", least=1, most=20),
        Knob("backoff", 8.0, "seconds of the longest first pause, doubled with each try", least=1.0, most=3_600.0),
        Knob("attempts-per-second", 25, "retries that a second may have", least=1, most=100_000),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made: nothing dies of an outage."""
        return QueueSettings(visibility_s=VISIBILITY_S, receives_max=0)

    def play(self, stage: Stage) -> None:
        """Send everything at once, and consume it while the service is down."""
        knobs = stage.knobs
        stage.produce(n=knobs.whole("count"))
        longest_s = knobs.real("backoff") * 2 ** (knobs.whole("iterations") - 1)
        variables = {
            "FAIL_RECEIVES": knobs.whole("iterations"),
            "RETRY_BASE_SECONDS": 0 if stage.broken else knobs.real("backoff"),
            "RETRY_JITTER": 1,
            "MAX_MESSAGES": 10,
            "MESSAGE_STATUS_TABLE": "",
            "IDLE_TIMEOUT_SECONDS": min(longest_s, RETRY_S_MAX) + 2,
        }
        flaws = ["retry-at-once"] if stage.broken else []
        for name in CONSUMERS:
            stage.consumer(name, flaws=flaws, **variables)
        stage.wait_for(lambda: not stage.running or stage.counted("delete") >= knobs.whole("count"))

    def bounds(self, knobs: Knobs) -> suites.Knobs:
        """Return what its checks need to know of the knobs."""
        return suites.Knobs(visibility_ms=VISIBILITY_S * 1_000, attempts_per_s=knobs.whole("attempts-per-second"))

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count retries, and how many there were in the worst second."""
        tries = [event.t_ms for event in seen.of("receive", "ok") if (event.count or 0) > 1]
        return (f"{len(seen.sent()):,} sent", number(len(tries), "retry", "retries"), f"peak {_peak(tries)}/s")

    def found(self, seen: Evidence) -> str:
        """Return the retries and their peak."""
        return ", ".join(self.figures(seen)[1:])


def _peak(times: list[int]) -> int:
    """Return the most instants within a second."""
    ordered = sorted(times)
    start = most = 0
    for place, t_ms in enumerate(ordered):
        while t_ms - ordered[start] >= 1_000:
            start += 1
        most = max(most, place - start + 1)
    return most
