"""Processes that are stopped, and queues that are purged: what must be finished, left alone, gone or still there."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import Check, Evidence, Rule, first_of, leases, number, seconds

if TYPE_CHECKING:
    from penstock.lab.history import Event

RELIED_ON = "relied-on"
"""The phase of a send after a purge that must survive."""

EXIT = Rule(name="exit-0", text="The consumer exits with 0")
FINISHED = Rule(name="in-flight-finished", text="Work in flight at SIGTERM is finished and deleted")
REST = Rule(name="rest-not-received", text="Nothing is received after SIGTERM")
REMAINS = Rule(name="rest-remains", text="The rest is still in the queue")
PURGED = Rule(name="purged", text="What was there before the purge is gone")
SURVIVES = Rule(name="survives", text="What is sent after the wait survives")
REFUSED = Rule(name="second-purge-refused", text="A second purge within the window is refused")


def exit_is_zero(evidence: Evidence) -> Check:
    """Every consumer that got a signal exited with 0."""
    exits = [event for event in evidence.of("exit") if event.code is not None]
    if not evidence.of("signal") or not exits:
        return EXIT.unknown("No consumer was signalled and seen to exit", "no exit")
    wrong = [event for event in exits if event.code != 0]
    if wrong:
        return EXIT.failed(
            len(wrong), f"exit {wrong[0].code}", f"{wrong[0].process} exited with {wrong[0].code}", wrong[:1]
        )
    signal = evidence.of("signal")[0]
    return EXIT.held(
        len(exits), "exit 0", f"Exit 0, {seconds(exits[0].t_ms - signal.t_ms)} after SIGTERM", [signal, exits[0]]
    )


def in_flight_finished(evidence: Evidence, *, visibility_ms: int) -> Check:
    """Each message that was leased when the signal came has its effect and its delete."""
    signal = next(iter(evidence.of("signal")), None)
    if signal is None:
        return FINISHED.unknown("No signal was sent", "no signal")
    flying = [
        lease
        for lease in leases(evidence, visibility_ms=visibility_ms)
        if lease.got.i < signal.i and (lease.over is None or lease.over.i > signal.i) and lease.end_ms >= signal.t_ms
    ]
    if not flying:
        return FINISHED.unknown("Nothing was in flight at SIGTERM", "none in flight")
    effects, deletes = first_of(evidence.of("effect", "ok")), first_of(evidence.of("delete", "ok"))
    called = None if evidence.ledger is None else {call.message for call in evidence.ledger}
    cut = [
        lease
        for lease in flying
        if lease.message not in effects
        or lease.message not in deletes
        or (called is not None and lease.message not in called)
    ]
    if cut:
        return FINISHED.failed(
            len(cut),
            f"{len(flying) - len(cut)} of {len(flying)}",
            f"{len(cut)} of {number(len(flying), 'message')} in flight {'was' if len(cut) == 1 else 'were'} cut off",
            [cut[0].got, signal],
        )
    first = flying[0]
    return FINISHED.held(
        len(flying),
        f"{len(flying)} of {len(flying)}",
        f"{number(len(flying), 'message')} in flight finished and deleted",
        [first.got, signal, deletes[first.message]],
    )


def rest_not_received(evidence: Evidence) -> Check:
    """No receive that began after the signal got a message."""
    signal = next(iter(evidence.of("signal")), None)
    if signal is None:
        return REST.unknown("No signal was sent", "no signal")
    late = [event for event in evidence.of("receive", "ok") if event.i > signal.i and event.process == signal.process]
    if late:
        return REST.failed(
            len(late),
            f"{len(late)} received",
            f"{number(len(late), 'message')} received after SIGTERM",
            [signal, late[0]],
        )
    return REST.held(0, "0 received", "Nothing was received after SIGTERM", [signal])


def rest_remains(evidence: Evidence) -> Check:
    """What had not been received when the signal came is still in the queue, by the queue's own count."""
    receives = evidence.receives()
    rest = [message for message in evidence.sent() if message not in receives]
    if not rest:
        return REMAINS.unknown(
            "Everything had been received at SIGTERM, so nothing was left to leave alone", "none left"
        )
    if evidence.left is None:
        return REMAINS.unknown("Nobody looked into the queue at the end", "not looked")
    if evidence.left.count < len(rest):
        return REMAINS.failed(
            len(rest) - evidence.left.count,
            f"{evidence.left.count} of {len(rest)}",
            f"{evidence.left.count} of {number(len(rest), 'message')} left",
            [evidence.sent()[rest[0]]],
        )
    return REMAINS.held(
        len(rest), f"{evidence.left.count} left", f"{number(evidence.left.count, 'message')} still in the queue"
    )


def purged(evidence: Evidence) -> Check:
    """A purge happened, and nothing that was in the queue then is received after it or left at the end."""
    purges = evidence.of("purge", "ok")
    if not purges:
        return PURGED.unknown("No purge succeeded", "no purge")
    deleted = first_of(evidence.of("delete", "ok"))
    left = set((evidence.left.messages if evidence.left else None) or ())
    before: dict[str, tuple[Event, Event]] = {}
    for message, sent in evidence.sent().items():
        purge = next((one for one in purges if one.i > sent.i), None)
        gone = deleted.get(message)
        if purge is not None and (gone is None or gone.i > purge.i):
            before[message] = (sent, purge)
    if not before:
        return PURGED.unknown("Nothing was there before the purge", "none before")
    receives = evidence.receives()
    seen = {m: next((r for r in receives.get(m, []) if r.i > purge.i), None) for m, (_, purge) in before.items()}
    there = [message for message in before if seen[message] is not None or message in left]
    if there:
        return PURGED.failed(
            len(there),
            f"{len(there)} of {len(before)}",
            f"{len(there)} of {number(len(before), 'message')} outlived the purge",
            [*before[there[0]], seen[there[0]]],
        )
    return PURGED.held(
        len(before),
        f"{len(before)} of {len(before)}",
        f"{number(len(before), 'message')} gone",
        next(iter(before.values())),
    )


def survives_after(evidence: Evidence) -> Check:
    """What was sent after a purge and is relied on is received, or left at the end.

    The scenario says what it relies on by the phase of the send: what it sends only to see what happens is left out.
    """
    purges = evidence.of("purge", "ok")
    if not purges:
        return SURVIVES.unknown("No purge succeeded", "no purge")
    relied = {
        message: ([purge for purge in purges if purge.i < event.i][-1], event)
        for message, event in evidence.sent().items()
        if event.phase == RELIED_ON and event.i > purges[0].i
    }
    if not relied:
        return SURVIVES.unknown("Nothing that must survive was sent after the purge", "none sent")
    there = set(evidence.receives()) | set((evidence.left.messages if evidence.left else None) or ())
    gone = [pair for message, pair in relied.items() if message not in there]
    wait_ms = min(event.t_ms - purge.t_ms for purge, event in relied.values())
    found = (
        f"{len(relied) - len(gone)} of {number(len(relied), 'message')} sent {seconds(wait_ms)} after the purge or "
        "later survive"
    )
    figure = f"{len(relied) - len(gone)} of {len(relied)}"
    if gone:
        return SURVIVES.failed(len(gone), figure, found, gone[0])
    return SURVIVES.held(len(relied), figure, found, next(iter(relied.values())))


def second_purge_refused(evidence: Evidence, *, window_ms: int) -> Check:
    """Of two purges within the window, the second fails."""
    purges = [event for event in evidence.of("purge") if event.type in {"ok", "fail"}]
    pairs = [(a, b) for a, b in pairwise(purges) if a.type == "ok" and b.t_ms - a.t_ms < window_ms]
    if not pairs:
        return REFUSED.unknown(f"No second purge was tried within {seconds(window_ms)}", "not tried")
    taken = [pair for pair in pairs if pair[1].type == "ok"]
    if taken:
        return REFUSED.failed(
            len(taken), f"{len(taken)} taken", f"{number(len(taken), 'second purge')} accepted", taken[0]
        )
    return REFUSED.held(
        len(pairs),
        f"{len(pairs)} refused",
        f"A second purge was refused {seconds(pairs[0][1].t_ms - pairs[0][0].t_ms)} after the first",
        pairs[0],
    )
