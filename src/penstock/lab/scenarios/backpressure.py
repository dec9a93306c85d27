"""backpressure: more comes than one consumer can do; more consumers start until the queue is short again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers import suites
from penstock.lab.checkers.evidence import number
from penstock.lab.knobs import Knob
from penstock.lab.scenario import Difference, Scenario

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.processes import Process
    from penstock.lab.stage import Stage

PRODUCER = "producer"
WAIT_S = 1
"""How long a poll lasts: so long, too, does a consumer take to end."""


class Backpressure(Scenario):
    """A producer without an end, and as many consumers as the depth of the queue asks for."""

    name = "backpressure"
    rule = "The depth stays bounded and settles; consumers come with the load, and go with it."
    short = "depth is bounded and settles"
    story = (
        "More messages came than one consumer could do, so the queue grew. A consumer was added at each look that "
        "found too many waiting, until they kept up; when the load ended, they went again. One consumer alone falls "
        "further behind every second."
    )
    guide = (
        "A queue hides overload: nobody is refused, the wait only grows. Below the arrival rate λ no size of queue "
        "helps; what helps is more work per second, μ, or fewer messages. Scale on the depth or on the age of the "
        "oldest message, add quickly, remove slowly, and set a limit: the services behind the consumers have one, too. "
        "Little's law says what to expect: messages inside = λ × time inside."
    )
    try_this = (
        "Twice the load: `penstock lab run backpressure --knob rate=10 --knob depth-bound=60`. "
        "It settles with about twice the consumers."
    )
    try_command = "penstock lab run backpressure --knob rate=10 --knob depth-bound=60 --open"
    difference = Difference(
        name="CONSUMERS",
        protected="by depth",
        broken="1",
        does="how many consumers run: one more at each look above the threshold, or always one",
        words=("consumers follow the depth", "one fixed consumer"),
    )
    knobs = (
        Knob("rate", 5.0, "messages sent per second", least=0.1, most=100),
        Knob("processing-delay", 0.5, "seconds that the work on a message takes", least=0, most=9),
        Knob("depth-threshold", 10, "depth from which on a consumer is added", least=1, most=10_000),
        Knob("depth-bound", 40, "depth that must never be exceeded", least=1, most=100_000),
        Knob("equilibrium-ticks", 3, "looks in a row below the threshold that make an equilibrium", least=1, most=100),
        Knob("consumer-count", 10, "consumers at most", least=2, most=50),
        Knob("poll-interval", 1.0, "seconds between two looks at the queue", least=0.1, most=60),
        Knob("iterations", 20, "looks during which messages are sent", least=5, most=1_000),
        Knob("timeout", 600, "seconds after which the run is over", least=10, most=36_000),
    )
    slow = True

    def play(self, stage: Stage) -> None:
        """Flood the queue, look at it again and again, and then let it drain."""
        knobs = stage.knobs
        group = Autoscaler(stage)
        producer = stage.producer(n=0, rate=knobs.real("rate"), batch_size=1)
        group.add()
        stage.sample()
        for _ in range(knobs.whole("iterations")):
            group.look()
        stage.terminate(producer)
        if not stage.broken:
            while not group.idle and stage.now_ms() < knobs.whole("timeout") * 1_000:
                group.look(flooded=False)
        stage.wait(producer)
        group.stop()

    def bounds(self, knobs: Knobs) -> suites.Knobs:
        """Return what its checks need to know of the knobs."""
        return suites.Knobs(
            visibility_ms=self.queue(knobs, broken=False).visibility_s * 1_000,
            depth_bound=knobs.whole("depth-bound"),
            depth_threshold=knobs.whole("depth-threshold"),
            equilibrium_ticks=knobs.whole("equilibrium-ticks"),
        )

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Return how deep the queue was, and how many consumers there were."""
        samples = seen.of("sample")
        deepest = max((event.depth or 0 for event in samples), default=0)
        most = max((event.consumers or 0 for event in samples), default=0)
        return (
            f"{len(seen.sent()):,} sent",
            f"{deepest:,} waiting at most",
            f"{most} {'consumer' if most == 1 else 'consumers'} at most",
        )

    def found(self, seen: Evidence) -> str:
        """Return where the depth settled, and with how many consumers."""
        samples = seen.of("sample")
        last = max((event.t_ms for event in seen.of("send", "ok")), default=0)
        flooded = [event for event in samples if event.t_ms <= last]
        if not flooded:
            return self.figures(seen)[0]
        return f"settles at {flooded[-1].depth:,}, {number(flooded[-1].consumers or 0, 'consumer')}"


class Autoscaler:
    """The consumers of a run: one more at each look that finds the queue too deep, one fewer when it is empty."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._consumers: list[Process] = []
        self._started = 0
        self._idle = False

    @property
    def idle(self) -> bool:
        """Whether the queue was empty at the last look, and only one consumer ran."""
        return self._idle

    def add(self) -> None:
        """Start a consumer."""
        self._started += 1
        self._consumers.append(
            self._stage.consumer(
                f"c{self._started}",
                SIDE_EFFECT_DELAY_SECONDS=self._stage.knobs.real("processing-delay"),
                WAIT_TIME_SECONDS=WAIT_S,
            )
        )

    def look(self, *, flooded: bool = True) -> None:
        """Wait for a while, look at the queue, and follow it."""
        knobs = self._stage.knobs
        self._stage.sleep(knobs.real("poll-interval"))
        counts = self._stage.sample()
        running = [process for process in self._stage.running if process.name != PRODUCER]
        self._idle = not counts.total and len(running) == 1
        if self._stage.broken:
            return
        if counts.visible >= knobs.whole("depth-threshold"):
            if len(self._consumers) < knobs.whole("consumer-count"):
                self.add()
        elif not flooded and not counts.visible and len(self._consumers) > 1:
            self._stage.terminate(self._consumers.pop())

    def stop(self) -> None:
        """End all of them."""
        for consumer in self._consumers:
            self._stage.terminate(consumer)
        self._stage.wait(*self._stage.running)
