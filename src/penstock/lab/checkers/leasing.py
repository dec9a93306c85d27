"""Leases: exclusive, redelivered after their end and never before, worthless once they are over, and never idle."""

from __future__ import annotations

from penstock.lab.checkers.evidence import Check, Evidence, Lease, Rule, by_message, earliest, leases, number, seconds

EXCLUSIVE = Rule(name="leases-exclusive", text="No two leases on one message overlap")
REDELIVERED = Rule(name="redelivered", text="What a crash left behind is delivered again")
NOT_BEFORE = Rule(name="never-before", text="Nothing is delivered again before its visibility timeout")
STALE_REPORT = Rule(name="stale-report", text="A report under a lease that is over changes nothing")
SAME = Rule(name="same-messages", text="A repeated receive gets the same messages")
IDLE = Rule(name="none-idle", text="No message stays hidden while nobody works on it")


def leases_exclusive(evidence: Evidence, *, visibility_ms: int, tolerance_ms: int = 0) -> Check:
    """No message is delivered while an earlier lease on it still runs."""
    found = leases(evidence, visibility_ms=visibility_ms)
    if not found:
        return EXCLUSIVE.unknown("Nothing was received")
    overlaps = [
        (2, [held.got, lease.got]) for held, lease in _successions(found) if lease.got.t_ms < held.end_ms - tolerance_ms
    ]
    if overlaps:
        return EXCLUSIVE.failed(
            len(overlaps),
            f"{len(overlaps)} of {len(found)}",
            f"{len(overlaps)} of {number(len(found), 'lease')} began while another ran",
            earliest(overlaps),
        )
    pair = next(iter(_successions(found)), None)
    return EXCLUSIVE.held(
        len(found),
        f"none of {len(found)}",
        f"None of {number(len(found), 'lease')} began while another ran",
        [pair[0].got, pair[1].got] if pair else [],
    )


def _successions(found: list[Lease]) -> list[tuple[Lease, Lease]]:
    """Return each lease with the next one on the same message."""
    last: dict[str, Lease] = {}
    pairs = []
    for lease in found:
        if lease.message in last:
            pairs.append((last[lease.message], lease))
        last[lease.message] = lease
    return pairs


def redelivered(evidence: Evidence) -> Check:
    """Each message that a process held when it crashed was received again."""
    crashed = [event for event in evidence.of("crash") if event.message is not None]
    if not crashed:
        return REDELIVERED.unknown("Nothing crashed while it held a message", "no crash")
    receives = evidence.receives()
    deletes = by_message(evidence.of("delete", "ok"))
    gone = []
    for crash in crashed:
        got = receives.get(crash.message or "", [])
        if not any(later.i > crash.i for later in got):
            held = [earlier for earlier in got if earlier.i < crash.i][-1:]
            # A message that was deleted before its work was done is why there is nothing to come back.
            early = [delete for delete in deletes.get(crash.message or "", []) if delete.i < crash.i][:1]
            gone.append((2 + len(early), [*held, *early, crash]))
    if gone:
        return REDELIVERED.failed(
            len(gone),
            f"{len(crashed) - len(gone)} of {len(crashed)}",
            f"{number(len(gone), 'message')} never came back after {number(len(crashed), 'crash', 'crashes')}",
            earliest(gone),
        )
    first = crashed[0]
    again = next(later for later in receives[first.message or ""] if later.i > first.i)
    held = [earlier for earlier in receives[first.message or ""] if earlier.i < first.i][-1:]
    gap_ms = again.t_ms - (held or [first])[0].t_ms
    return REDELIVERED.held(
        len(crashed),
        f"{len(crashed)} of {len(crashed)}",
        f"{number(len(crashed), 'crash', 'crashes')}, back after {seconds(gap_ms)}",
        [first, again],
    )


def never_before(evidence: Evidence, *, visibility_ms: int, tolerance_ms: int = 0) -> Check:
    """Between two receives of a message that nobody deleted lies at least the time that the first was leased for."""
    pairs = [
        (held, lease)
        for held, lease in _successions(leases(evidence, visibility_ms=visibility_ms))
        if held.over is None
    ]
    if not pairs:
        return NOT_BEFORE.unknown("Nothing was delivered again", "none again")
    early = [(2, [held.got, lease.got]) for held, lease in pairs if lease.got.t_ms < held.until_ms - tolerance_ms]
    soonest = min(lease.got.t_ms - held.got.t_ms for held, lease in pairs)
    if early:
        return NOT_BEFORE.failed(
            len(early),
            f"{len(early)} early",
            f"{len(early)} of {number(len(pairs), 'redelivery', 'redeliveries')} came early, one after "
            f"{seconds(soonest)}",
            earliest(early),
        )
    return NOT_BEFORE.held(
        len(pairs),
        f"after {seconds(soonest)}",
        f"The soonest of {number(len(pairs), 'redelivery', 'redeliveries')} came after {seconds(soonest)}",
        [pairs[0][0].got, pairs[0][1].got],
    )


def stale_reports_refused(evidence: Evidence, *, visibility_ms: int) -> Check:
    """A report that came after its lease had gone to another was refused.

    On a FIFO queue a delete is such a report. On a standard queue it is not: there an old handle still deletes.
    """
    held = leases(evidence, visibility_ms=visibility_ms)
    granted: dict[str, list[Lease]] = {}
    for lease in held:
        granted.setdefault(lease.message, []).append(lease)
    late = []
    fifo = [event for event in evidence.of("delete", "ok", "fail") if (event.queue or "").endswith(".fifo")]
    for event in sorted([*evidence.of("report", "ok", "fail"), *fifo], key=lambda event: event.i):
        before = [lease for lease in granted.get(event.message or "", []) if lease.got.i < event.i]
        mine = [lease for lease in before if lease.process == event.process]
        newer = [lease for lease in before if mine and lease.got.i > mine[-1].got.i]
        if newer:
            late.append((event, [mine[-1].got, newer[0].got, event]))
    if not late:
        return STALE_REPORT.unknown("No report came late, so the rule was not put to the test", "none late")
    taken = [(3, proof) for event, proof in late if event.type == "ok"]
    found = f"{number(len(late), 'late report')}, {len(late) - len(taken)} refused"
    if taken:
        return STALE_REPORT.failed(len(taken), f"{len(taken)} taken", found, earliest(taken))
    return STALE_REPORT.held(len(late), f"{len(late)} refused", found, late[0][1])


def same_messages_again(evidence: Evidence) -> Check:
    """A receive whose answer was cut off gives its messages when it is repeated: the count stays at 1.

    The cut answer leaves an `info`, with its message if the lab has seen it; the repeat has the same `call`.
    """
    cut = [event for event in evidence.of("receive", "info") if event.call is not None]
    if not cut:
        return SAME.unknown("No answer was cut off", "none cut")
    receives = evidence.of("receive", "ok")
    wrong = []
    for lost in cut:
        again = [event for event in receives if event.call == lost.call and event.i > lost.i]
        others = [event for event in again if lost.message not in {None, event.message} or (event.count or 0) > 1]
        if not again or others:
            late = [e for e in receives if e.i > lost.i and lost.message in {None, e.message} and (e.count or 0) > 1]
            # The second lease of a message proves it as well as what came instead, and says more.
            wrong.append((2, [lost, *(late[:1] or others[:1])]))
    if wrong:
        return SAME.failed(
            len(wrong),
            f"{len(cut) - len(wrong)} of {len(cut)}",
            f"{len(wrong)} of {number(len(cut), 'repeated receive')} did not get the same messages",
            earliest(wrong),
        )
    repeat = next(event for event in evidence.of("receive", "ok") if event.call == cut[0].call and event.i > cut[0].i)
    return SAME.held(
        len(cut),
        f"{len(cut)} of {len(cut)}",
        f"{number(len(cut), 'answer')} cut off, {len(cut)} repeated with the same messages",
        [cut[0], repeat],
    )


def none_idle(evidence: Evidence, *, visibility_ms: int) -> Check:
    """No message waited a whole lease between an answer that was cut off and the receive that it arrived with."""
    cut = evidence.of("receive", "info")
    if not cut:
        return IDLE.unknown("No answer was cut off", "none cut")
    idle = []
    waits = []
    for many in by_message(evidence.of("receive", "ok")).values():
        before = [lost for lost in cut if lost.i < many[0].i and lost.message in {None, many[0].message}]
        if not before:
            continue
        # Its first delivery that arrived is its second lease, or came a lease after the cut one.
        wait_ms = many[0].t_ms - before[-1].t_ms
        waits.append(wait_ms)
        if (many[0].count or 1) > 1 or wait_ms >= visibility_ms:
            idle.append((2, [before[-1], many[0]]))
    if not waits:
        return IDLE.unknown("Nothing was received after an answer was cut off", "none after")
    longest = seconds(max(waits))
    if idle:
        return IDLE.failed(
            len(idle),
            f"{len(idle)} idle",
            f"{number(len(idle), 'message')} hidden for a whole lease, up to {longest}",
            earliest(idle),
        )
    return IDLE.held(len(waits), "0 idle", f"The longest wait after a cut answer was {longest}")
