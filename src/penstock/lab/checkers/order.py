"""Order: by sequence within a group, one holder of a group at a time, work that was shared, and versions that rise."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import Check, Evidence, Lease, Rule, earliest, leases, number

if TYPE_CHECKING:
    from penstock.lab.history import Event

FIFO = Rule(name="fifo-order", text="Messages of a group take effect in their order")
OVERLAP = Rule(name="no-overlap", text="A group is held by one consumer at a time")
SHARED = Rule(name="work-shared", text="At least two consumers did the work")
RISE = Rule(name="versions-rise", text="Applied versions rise")
FINAL = Rule(name="highest-wins", text="The final state is the highest version")


def fifo_order(evidence: Evidence) -> Check:
    """Within each group the sequence of effects rises, without a gap where everything sent took effect."""
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in evidence.of("effect", "ok"):
        if event.sequence is not None:
            groups[event.group or ""].append(event)
    total = sum(len(many) for many in groups.values())
    if total < 2:
        return FIFO.unknown("Fewer than two messages with a sequence took effect")
    falls = [
        (2, [before, after])
        for many in groups.values()
        for before, after in itertools.pairwise(many)
        if (after.sequence or 0) <= (before.sequence or 0)
    ]
    if falls:
        return FIFO.failed(
            len(falls),
            f"{len(falls)} of {total}",
            f"{len(falls)} of {number(total, 'effect')} came after one with a higher sequence",
            earliest(falls),
        )
    pair = next(many for many in groups.values() if len(many) > 1) if any(len(m) > 1 for m in groups.values()) else []
    if not pair:
        return FIFO.unknown("No group had two messages")
    return FIFO.held(
        total,
        f"{total} of {total}",
        f"{number(total, 'effect')} in {number(len(groups), 'group')}, all in order",
        pair[:2],
    )


def no_overlap(evidence: Evidence, *, visibility_ms: int) -> Check:
    """While one consumer holds messages of a group, no other is given any of it."""
    held = leases(evidence, visibility_ms=visibility_ms)
    if len(held) < 2:
        return OVERLAP.unknown("Fewer than two messages were received")
    groups: dict[str, list[Lease]] = defaultdict(list)
    for lease in sorted(held, key=lambda lease: (lease.got.t_ms, lease.got.i)):
        groups[lease.got.group or ""].append(lease)
    overlaps = []
    for many in groups.values():
        for place, first in enumerate(many):
            for second in itertools.islice(many, place + 1, None):
                if second.got.t_ms >= first.end_ms:
                    break
                if second.process != first.process:
                    overlaps.append((2, [first.got, second.got]))
                    break
    if overlaps:
        return OVERLAP.failed(
            len(overlaps),
            f"{len(overlaps)} of {len(held)}",
            f"{len(overlaps)} of {number(len(held), 'lease')} overlap one of another consumer",
            earliest(overlaps),
        )
    return OVERLAP.held(
        len(held), f"none of {len(held)}", f"None of {number(len(held), 'lease')} overlaps one of another consumer"
    )


def work_shared(evidence: Evidence, *, least: int = 2) -> Check:
    """At least `least` consumers had effects; one alone shows nothing about concurrency, so that is a failure."""
    effects = evidence.of("effect", "ok")
    if not effects:
        return SHARED.unknown("Nothing took effect")
    workers = {event.process: event for event in reversed(effects)}
    firsts = sorted(workers.values(), key=lambda event: event.i)
    figure = number(len(workers), "consumer")
    if len(workers) < least:
        return SHARED.failed(
            1, figure, f"{firsts[0].process} did all of {number(len(effects), 'effect')} alone", firsts[:1]
        )
    return SHARED.held(len(workers), figure, f"{figure} shared {number(len(effects), 'effect')}", firsts[:least])


def versions_rise(evidence: Evidence) -> Check:
    """The versions applied to each entity rise. If all arrived in order, nothing was put to the test.

    A version arrives where it is to be applied: consumers of different speeds reorder what a queue gave out in order.
    """
    applied: dict[str, list[Event]] = defaultdict(list)
    seen: dict[str, list[int]] = defaultdict(list)
    for event in evidence.of("apply", "ok", "fail"):
        if event.version is not None:
            seen[event.entity or ""].append(event.version)
            if event.type == "ok":
                applied[event.entity or ""].append(event)
    total = sum(len(many) for many in applied.values())
    falls = [
        (2, [before, after])
        for many in applied.values()
        for before, after in itertools.pairwise(many)
        if (after.version or 0) <= (before.version or 0)
    ]
    if falls:
        return RISE.failed(
            len(falls),
            f"{len(falls)} of {total}",
            f"{len(falls)} of {number(total, 'write')} replaced a higher version",
            earliest(falls),
        )
    if not total:
        return RISE.unknown("Nothing was applied")
    if all(versions == sorted(versions) for versions in seen.values()):
        return RISE.unknown("All versions arrived in order, so the rule was not put to the test", "all in order")
    stale = evidence.of("apply", "fail")
    return RISE.held(
        total,
        f"{total} applied",
        f"{number(total, 'version')} applied, all rising, and {len(stale)} left out as stale",
        stale[:1],
    )


def highest_wins(evidence: Evidence) -> Check:
    """Each entity ends with the highest version that was sent."""
    if evidence.state is None:
        return FINAL.unknown("Nobody looked at the final state", "not looked")
    highest: dict[str, Event] = {}
    for event in evidence.of("send", "ok"):
        name = event.entity or ""
        if event.version is not None and event.version > (highest[name].version or 0 if name in highest else -1):
            highest[name] = event
    if not highest:
        return FINAL.unknown("No version was sent")
    wrong = [name for name, event in highest.items() if evidence.state.get(name) != event.version]
    if wrong:
        name = wrong[0]
        last = [event for event in evidence.of("apply", "ok") if (event.entity or "") == name][-1:]
        return FINAL.failed(
            len(wrong),
            f"{len(highest) - len(wrong)} of {len(highest)}",
            f"{name or 'The state'} ends with version {evidence.state.get(name)}, and {highest[name].version} was sent",
            [highest[name], *last],
        )
    first = next(iter(highest))
    return FINAL.held(
        len(highest),
        f"{len(highest)} of {len(highest)}",
        f"{number(len(highest), 'entity', 'entities')} at the highest version",
        [highest[first]],
    )
