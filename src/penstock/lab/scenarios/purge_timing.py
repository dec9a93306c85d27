"""purge-timing: a purge may take up to a minute, and with it what was sent meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers import suites
from penstock.lab.checkers.evidence import number
from penstock.lab.checkers.processes import RELIED_ON
from penstock.lab.knobs import Knob
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage

WINDOW_S = 60
"""How long Amazon SQS may take for a purge, and how long it refuses a second one."""
DANGER_S = (5, 15, 30, 45)
"""How long after the purge messages are sent that may go with it."""
AGAIN_S = 2
"""How long after a purge a second one is tried."""
IDLE_S = 3
PROBE = "probe"
NOT_OBSERVED = (
    "All {count} messages that were sent within {window} s after a purge are still there. A purge of Penstock takes "
    "what is in the queue at that moment, in one transaction. Amazon SQS deletes in the background for up to "
    "{window} s and may take what is sent meanwhile, so wait there all the same."
)
ELSEWHERE = (
    "All {count} messages that were sent within {window} s after a purge are still there. Amazon SQS deletes in the "
    "background for up to {window} s and may take what is sent meanwhile; whether it does differs from purge to purge."
)
TAKEN = "This endpoint accepts a second purge within {window} s; Amazon SQS refuses it with PurgeQueueInProgress."


class PurgeTiming(Scenario):
    """A full queue is purged; messages follow at once, after a while, or after the window."""

    name = "purge-timing"
    rule = "What is sent after the purge's window survives, and a second purge within it is refused."
    short = "sent after the purge survives"
    story = (
        "The queue was purged, and messages were sent 5, 15, 30, 45 and 65 s later. On Amazon SQS a purge runs on in "
        "the background and may take what is sent within 60 s, although each send succeeded; what is sent later is "
        "safe. A second purge within 60 s is refused."
    )
    guide = (
        "A purge of Amazon SQS is a request, not a moment: deleting takes up to 60 seconds, and a message sent in that "
        "time may be deleted, although its send succeeded. Stop the producers, purge, wait for 60 seconds, start them "
        "again. In tests, make a new queue for each run instead of purging one: it is faster and has no window."
    )
    try_this = (
        "Send sooner: `penstock lab run purge-timing --safe-delay 1`. On this server that is safe; on AWS it is not."
    )
    try_command = "penstock lab run purge-timing --safe-delay 1 --open"
    difference = Difference(
        name="WAIT",
        protected="SAFE_DELAY",
        broken="none",
        does="how long after a purge a message is sent that must survive",
        words=("waits for the window", "sends at once"),
    )
    knobs = (
        Knob("iterations", 2, "rounds", least=1, most=20),
        Knob("count", 10, "messages before each purge, and after the wait", least=1, most=500),
        Knob("danger-count", 10, "messages at each moment within the window", least=1, most=500),
        Knob("safe-delay", 65.0, "seconds between a purge and a send that must survive", least=0, most=3_600),
    )
    slow = True

    def bounds(self, knobs: Knobs) -> suites.Knobs:
        """Return what its checks need to know of the knobs."""
        return suites.Knobs(
            visibility_ms=self.queue(knobs, broken=False).visibility_s * 1_000, purge_window_ms=WINDOW_S * 1_000
        )

    def play(self, stage: Stage) -> None:
        """Play the rounds, each with a purge, and look whether the window showed."""
        sent = endangered = 0
        for round_ in range(stage.knobs.whole("iterations")):
            if round_:
                # At the end of the window to the millisecond, the next purge might be refused.
                stage.sleep(1)
            moments = self.moments(stage)
            self.round(stage, moments)
            sent += sum(many for _, many, _ in moments)
            endangered += sum(many for delay_s, many, _ in moments if delay_s < WINDOW_S)
        if endangered and stage.counted("receive") >= sent:
            words = NOT_OBSERVED if stage.own_server else ELSEWHERE
            stage.not_observed = words.format(count=endangered, window=WINDOW_S)

    def moments(self, stage: Stage) -> list[tuple[float, int, str]]:
        """Return how long after a purge how many messages are sent, and whether they must survive."""
        knobs = stage.knobs
        if stage.broken:
            return [(0.0, knobs.whole("count"), RELIED_ON)]
        probes = [(float(delay_s), knobs.whole("danger-count"), PROBE) for delay_s in DANGER_S]
        return sorted([*probes, (knobs.real("safe-delay"), knobs.whole("count"), RELIED_ON)])

    def round(self, stage: Stage, moments: Sequence[tuple[float, int, str]]) -> None:
        """Fill the queue, purge it, send again, and receive what is left."""
        stage.produce(n=stage.knobs.whole("count"))
        self.purge(stage)
        purged_s = stage.now_ms() / 1_000
        # Tried before anything is sent: an endpoint that accepts it would take that, too.
        stage.sleep(0 if stage.broken else min(AGAIN_S, moments[0][0]))
        if self.purge(stage):
            stage.differences.append(TAKEN.format(window=WINDOW_S))
        for delay_s, many, phase in moments:
            stage.sleep(max(purged_s + delay_s - stage.now_ms() / 1_000, 0))
            stage.phase(phase)
            stage.produce(n=many)
            stage.phase(None)
        # A purge that is not over by now is over at the end of its window.
        stage.sleep(max(purged_s + WINDOW_S - stage.now_ms() / 1_000, 0))
        stage.wait(stage.consumer("A", MAX_MESSAGES=10, IDLE_TIMEOUT_SECONDS=IDLE_S))

    def purge(self, stage: Stage) -> bool:
        """Purge the queue; return whether it was accepted."""
        try:
            stage.sqs.purge_queue(QueueUrl=stage.environment.queue_url)
        except stage.sqs.exceptions.PurgeQueueInProgress:
            stage.record("fail", "purge", what=f"refused: one purge in {WINDOW_S} s")
            return False
        stage.record("ok", "purge", what="accepted")
        return True

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count purges, what was sent after them, and what of that is there."""
        first = next((event.i for event in seen.of("purge", "ok")), 0)
        after = {message for message, event in seen.sent().items() if event.phase is not None and event.i > first}
        there = len(after & set(seen.receives()))
        purges = number(len(seen.of("purge", "ok")), "purge")
        return (purges, f"{len(after):,} sent after", f"{there:,} received")

    def found(self, seen: Evidence) -> str:
        """Say whether anything that was sent after a purge is gone."""
        after = {message for message, event in seen.sent().items() if event.phase is not None}
        gone = len(after - set(seen.receives()))
        return f"{gone} of {len(after)} lost in the window" if gone else "a purge took nothing with it"
