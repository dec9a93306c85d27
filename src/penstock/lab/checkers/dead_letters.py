"""Dead letters: exactly those that must be, after exactly so many receives, and none after a redrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import Check, Evidence, Rule, number

if TYPE_CHECKING:
    from collections.abc import Collection

COMPLETE = Rule(name="dead-letters", text="The dead-letter queue holds the poison messages and nothing else")
AFTER = Rule(name="dead-after", text="A poison message is received exactly as often as the queue allows")
EMPTY = Rule(name="no-dead-letters", text="The dead-letter queue is empty")
MOVED = Rule(name="moved-back", text="Every dead letter is moved back after the fix")


def dead_letters_are(evidence: Evidence, *, expected: Collection[str]) -> Check:
    """The dead-letter queue at the end holds `expected`, each once."""
    if evidence.dead is None or (evidence.dead.messages is None and evidence.dead.count):
        return COMPLETE.unknown("Nobody looked which messages are in the dead-letter queue", "not looked")
    there = evidence.dead.messages or ()
    missing = [message for message in expected if message not in there]
    wrong = [message for message in there if message not in expected]
    twice = len(there) - len(set(there))
    figure = f"{len(there)} of {len(expected)}"
    if missing or wrong or twice:
        culprit = (missing or wrong or list(there))[0]
        witness = [*evidence.of("send", "ok", message=culprit)[:1], *evidence.of("receive", "ok", message=culprit)[-1:]]
        found = (
            f"{number(len(missing), 'poison message')} missing, {len(wrong)} that do not belong there, {twice} twice"
        )
        return COMPLETE.failed(len(missing) + len(wrong) + twice, figure, found, witness)
    if not expected:
        return COMPLETE.unknown("There was no poison message", "no poison")
    first = next(iter(expected))
    return COMPLETE.held(
        len(there),
        figure,
        f"{number(len(there), 'dead letter')}, the {number(len(expected), 'poison message')}",
        [*evidence.of("send", "ok", message=first)[:1], *evidence.of("dead", message=first)[:1]],
    )


def dead_after(evidence: Evidence, *, expected: Collection[str], receives: int) -> Check:
    """Each of `expected` was received exactly `receives` times by consumers."""
    seen = evidence.receives()
    if not expected or not any(message in seen for message in expected):
        return AFTER.unknown("No poison message was received")
    counts = {message: len(seen.get(message, [])) for message in expected}
    wrong = [message for message, count in counts.items() if count != receives]
    if wrong:
        fewest, most = min(counts[m] for m in wrong), max(counts[m] for m in wrong)
        often = f"{most} times" if fewest == most else f"{fewest} to {most} times"
        worst = max(wrong, key=lambda message: (counts[message] > receives, -counts[message]))
        return AFTER.failed(
            len(wrong),
            f"up to {max(counts.values())}",
            f"{number(len(wrong), 'poison message')} received {often}, not {receives}",
            seen.get(worst, [])[: receives + 1],
        )
    return AFTER.held(
        len(counts),
        f"{receives} each",
        f"{number(len(counts), 'poison message')} received {receives} times each",
        seen[next(iter(counts))],
    )


def no_dead_letters(evidence: Evidence) -> Check:
    """The dead-letter queue itself says that it is empty."""
    if evidence.dead is None:
        return EMPTY.unknown("Nobody looked into the dead-letter queue", "not looked")
    if evidence.dead.count:
        culprits = evidence.dead.messages or ()
        witness = [
            event
            for message in culprits[:1]
            for f in ("move", "receive", "dead")
            for event in evidence.of(f, "ok", message=message)[-1:]
        ]
        return EMPTY.failed(
            evidence.dead.count,
            number(evidence.dead.count, "message"),
            f"{number(evidence.dead.count, 'dead letter')} at the end",
            witness,
        )
    return EMPTY.held(0, "0 messages", "No dead letters")


def moved_back(evidence: Evidence) -> Check:
    """Each message seen as a dead letter was moved back later, after the fix."""
    dead = {event.message: event for event in evidence.of("dead") if event.message is not None}
    if not dead:
        return MOVED.unknown("Nothing died, so there was nothing to move", "none died")
    fix = next(iter(evidence.of("fix", "ok")), None)
    moves = {event.message: event for event in evidence.of("move", "ok")}
    early = [moves[m] for m in dead if m in moves and (fix is None or moves[m].i < fix.i)]
    if early:
        return MOVED.failed(
            len(early),
            f"{len(early)} too soon",
            f"{number(len(early), 'message')} moved back before the fix",
            [early[0], *([fix] if fix else [])],
        )
    missing = [event for message, event in dead.items() if message not in moves]
    if missing:
        return MOVED.failed(
            len(missing),
            f"{len(dead) - len(missing)} of {len(dead)}",
            f"{number(len(missing), 'dead letter')} not moved back",
            missing[:1],
        )
    first = next(iter(dead))
    return MOVED.held(
        len(dead),
        f"{len(dead)} of {len(dead)}",
        f"{number(len(dead), 'dead letter')} moved back after the fix",
        [dead[first], moves[first]],
    )
