"""out-of-order: versions arrive in any order; the highest one must be in force at the end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.lab.checkers.evidence import number
from penstock.lab.knobs import Knob
from penstock.lab.producer import Draft
from penstock.lab.scenario import Difference, Scenario
from penstock.lab.uneven import uneven_delays

if TYPE_CHECKING:
    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.stage import Stage

ENTITY = "account-7"
IDLE_S = 4
WAIT_S = 2
STATE, APPLIED, SEEN = "versions.json", "applied.jsonl", "seen.jsonl"


class OutOfOrder(Scenario):
    """Ten versions of one thing, on a standard queue, and three consumers of different speeds."""

    name = "out-of-order"
    rule = "The final state is the highest version, and applied versions rise."
    short = "the highest version wins"
    story = (
        "Three consumers of different speeds wrote ten versions of one account, and a slow one came last with an old "
        "version. It found a higher one in force and left its own out. Where the last write wins, it puts the old "
        "version back, and nobody notices."
    )
    guide = (
        "A standard queue promises no order, and even a perfect order ends where two consumers work at different "
        "speeds. Put a version into each message, store it with the state, and write only if yours is higher, in one "
        "conditional write. Clocks are no versions: two machines disagree about them. If every step counts and not "
        "only the last state, you need a FIFO queue with a group for each entity."
    )
    try_this = (
        "More of both: `penstock lab run out-of-order --count 40 --consumer-count 6`. "
        "More versions come too late, and the highest still wins."
    )
    try_command = "penstock lab run out-of-order --count 40 --consumer-count 6 --open"
    difference = Difference(
        name="WRITE",
        protected="if the version is higher",
        broken="always",
        does="when a consumer writes the version that it has",
        words=("the higher version wins", "the last write wins"),
    )
    knobs = (
        Knob("count", 10, "versions sent", least=2, most=1_000),
        Knob("consumer-count", 3, "consumers", least=1, most=20),
        Knob("processing-delay", 4.0, "seconds that the slowest consumer works on a message", least=0, most=9),
        Knob("batch-size", 10, "messages in one call of the producer", least=1, most=10),
    )

    def play(self, stage: Stage) -> None:
        """Send the versions in order, and let consumers of different speeds apply them."""
        knobs = stage.knobs
        stage.produce(
            [
                Draft(body={"id": str(UUID(int=stage.seed << 64 | n)), "entity_id": ENTITY, "version": n})
                for n in range(1, knobs.whole("count") + 1)
            ],
            batch_size=knobs.whole("batch-size"),
        )
        slowest_s = knobs.real("processing-delay")
        consumers = [
            stage.consumer(
                name,
                flaws=["last-write-wins"] if stage.broken else [],
                VERSIONING_ENABLED=True,
                VERSION_STATE_PATH=stage.folder / STATE,
                VERSION_LOG_PATH=stage.folder / APPLIED,
                VERSION_SEEN_LOG_PATH=stage.folder / SEEN,
                SIDE_EFFECT_DELAY_SECONDS=delay_s,
                WAIT_TIME_SECONDS=WAIT_S,
                IDLE_TIMEOUT_SECONDS=IDLE_S,
            )
            for name, delay_s in uneven_delays(knobs.whole("consumer-count"), slowest_s, stage.seed).items()
        ]
        stage.wait(*consumers)
        written = stage.folder / STATE
        stage.state = json.loads(written.read_bytes()) if written.exists() else {}

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count what was applied and what was left out, and say how it ended."""
        last = (seen.state or {}).get(ENTITY, 0)
        applied, stale = len(seen.of("apply", "ok")), len(seen.of("apply", "fail"))
        return (f"{len(seen.sent()):,} sent", f"{applied} applied", f"{stale} stale", f"{last} in force")

    def found(self, seen: Evidence) -> str:
        """Return how many came too late."""
        stale = len(seen.of("apply", "fail"))
        return f"{stale} of {number(len(seen.sent()), 'version')} {'was' if stale == 1 else 'were'} stale"
