"""backlog-drain: after an outage the queue is drained in a burst; none is done twice, and none that is too old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers import suites
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.scenario import Difference, Scenario
from penstock.lab.uneven import uneven_delays

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.processes import Process
    from penstock.lab.stage import Stage

BEFORE_S = 5
"""How long all is well before the outage."""
TICK_S = 1.0
WAIT_S = 1
BATCH = 10
RECEIVES_MAX = 20
"""In a burst a message may be received several times before it is done; that alone must not make it a dead letter."""


class BacklogDrain(Scenario):
    """The consumer is away while messages go on coming; then several of them come back at once."""

    name = "backlog-drain"
    rule = "After the outage all is drained, nothing is done twice, and what is stale is counted and left out."
    short = "all drained after an outage, once"
    story = (
        "The consumer was away and messages piled up. Then several consumers drained the queue in a burst. They took "
        "ten messages at a time, and the slow ones kept theirs for longer than a lease: those were received twice, and "
        "done once. Messages that had become too old were counted and left out."
    )
    guide = (
        "After an outage a queue is full of old messages, and the first hour's work may help nobody: a password reset "
        "that the user has asked for again, a price that has changed. Decide how old a message may be, compare "
        "SentTimestamp with that, and count what you leave out. Expect redeliveries: in a burst everything is slower, "
        "so leases end early. Take fewer messages at a time, or extend the leases."
    )
    try_this = (
        "A longer outage: `penstock lab run backlog-drain --knob outage=40 --count 200`. "
        "Most messages are stale, and the queue is drained all the sooner."
    )
    try_command = "penstock lab run backlog-drain --knob outage=40 --count 200 --open"
    difference = Difference(
        name="STALE_AFTER_SECONDS",
        protected="STALE_AFTER",
        broken="unset",
        does="how old a message may be",
        words=("stale messages are left out", "no staleness check"),
    )
    knobs = (
        Knob("count", 120, "messages sent", least=10, most=10_000),
        Knob("rate", 4.0, "messages sent per second", least=0.1, most=100),
        Knob("outage", 20, "seconds without a consumer", least=1, most=3_600),
        Knob("stale-after", 15.0, "seconds after which a message is stale", least=1, most=3_600),
        Knob("consumer-count", 3, "consumers after the outage", least=1, most=20),
        Knob("processing-delay", 0.5, "seconds that the slowest consumer works on a message", least=0, most=9),
        Knob("visibility-timeout", 2, "seconds that a lease lasts", least=1, most=600),
        Knob("timeout", 600, "seconds after which the run is over", least=10, most=36_000),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made."""
        return QueueSettings(visibility_s=knobs.whole("visibility-timeout"), receives_max=RECEIVES_MAX)

    def bounds(self, knobs: Knobs) -> suites.Knobs:
        """Return what its checks need to know of the knobs."""
        return suites.Knobs(
            visibility_ms=knobs.whole("visibility-timeout") * 1_000, stale_ms=round(knobs.real("stale-after") * 1_000)
        )

    def play(self, stage: Stage) -> None:
        """Consume for a while, stop, and come back with several consumers."""
        knobs = stage.knobs
        producer = stage.producer(n=knobs.whole("count"), rate=knobs.real("rate"), batch_size=1)
        delays = uneven_delays(knobs.whole("consumer-count"), knobs.real("processing-delay"), stage.seed)
        first = self.start(stage, next(iter(delays)), min(delays.values()))
        _look(stage, BEFORE_S)
        stage.terminate(first)
        stage.wait(first)
        stage.record("invoke", "outage", what="the consumer is away")
        _look(stage, knobs.whole("outage"))
        stage.record("ok", "outage", what=f"{len(delays)} consumers are back")
        consumers = [self.start(stage, name, delay_s) for name, delay_s in delays.items()]
        while stage.now_ms() < knobs.whole("timeout") * 1_000:
            stage.sleep(TICK_S)
            if not stage.sample().total and not producer.running:
                break
        for consumer in consumers:
            stage.terminate(consumer)
        stage.wait(*consumers)

    def start(self, stage: Stage, name: str, delay_s: float) -> Process:
        """Start a consumer that takes as many messages as it can get."""
        return stage.consumer(
            name,
            MAX_MESSAGES=BATCH,
            WAIT_TIME_SECONDS=WAIT_S,
            SIDE_EFFECT_DELAY_SECONDS=delay_s,
            STALE_AFTER_SECONDS=0 if stage.broken else stage.knobs.real("stale-after"),
        )

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count what was left out, too."""
        left_out = {event.message for event in seen.of("effect", "fail") if "stale" in (event.what or "")}
        return (*super().figures(seen), f"{len(left_out)} left out as stale")

    def found(self, seen: Evidence) -> str:
        """Return how many were drained, and how many of them were too old."""
        left_out = {event.message for event in seen.of("effect", "fail") if "stale" in (event.what or "")}
        return f"{len({event.message for event in seen.of('delete', 'ok')}):,} drained, {len(left_out)} stale"


def _look(stage: Stage, seconds: int) -> None:
    """Let time pass, and look at the queue meanwhile."""
    for _ in range(round(seconds / TICK_S)):
        stage.sample()
        stage.sleep(TICK_S)
