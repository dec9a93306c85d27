"""Bounds: depth, consumers, Little's law, peaks of attempts, and how long a quiet tenant waits."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from penstock.lab.checkers.evidence import Check, Evidence, Rule, number, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.lab.history import Event

DEPTH = Rule(name="depth-bounded", text="The depth of the queue stays bounded")
SETTLES = Rule(name="equilibrium", text="The depth settles below its threshold")
DOWN = Rule(name="consumers-down", text="Consumers go up under load, and down again")
LITTLE = Rule(name="littles-law", text="Little’s law holds: L = λ × W")
PEAK = Rule(name="peak-bounded", text="The peak of attempts per second is bounded")
WAIT = Rule(name="quiet-wait", text="A quiet tenant’s p99 wait stays near its wait alone")


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as queueing theory sees it."""

    arrivals_per_s: float
    """λ"""
    stay_ms: float
    """W, the mean time from the send to the delete."""
    inside: float
    """L, the mean number of messages inside, counted by samples and not from the other two."""


def depth_bounded(evidence: Evidence, *, bound: int) -> Check:
    """No sample shows a depth above `bound`."""
    samples = _samples(evidence)
    if len(samples) < 2:
        return DEPTH.unknown("The depth was not sampled", "no samples")
    deepest = max(samples, key=lambda event: (event.depth or 0, -event.i))
    over = [event for event in samples if (event.depth or 0) > bound]
    figure = f"up to {deepest.depth:,}"
    if over:
        return DEPTH.failed(len(over), figure, f"The depth came to {deepest.depth:,}; the bound is {bound:,}", over[:1])
    return DEPTH.held(
        len(samples), figure, f"The depth came to {deepest.depth:,} at most; the bound is {bound:,}", [deepest]
    )


def equilibrium(evidence: Evidence, *, threshold: int, ticks: int = 3) -> Check:
    """After the depth had reached `threshold`, `ticks` samples in a row are below it, and it stays there to the end."""
    samples = _samples(evidence)
    peak = next((place for place, event in enumerate(samples) if (event.depth or 0) >= threshold), None)
    if peak is None:
        return SETTLES.unknown(f"The depth never reached {threshold}, so nothing had to settle", "no load")
    run: list[Event] = []
    settled: list[Event] = []
    for event in samples[peak:]:
        run = [*run, event] if (event.depth or 0) < threshold else []
        if len(run) == ticks:
            settled = list(run)
        if not run:
            settled = []
    if not settled:
        return SETTLES.failed(
            1,
            f"ends at {samples[-1].depth:,}",
            f"The depth was never below {threshold} for {ticks} samples in a row to the end; it ended at "
            f"{samples[-1].depth:,}",
            [samples[peak], samples[-1]],
        )
    return SETTLES.held(
        len(run),
        f"at {seconds(settled[0].t_ms)}",
        f"The depth is below {threshold} from {seconds(settled[0].t_ms)} on and ends at {samples[-1].depth:,}",
        settled,
    )


def consumers_go_down(evidence: Evidence) -> Check:
    """The number of consumers rose above its start and came down from its peak."""
    samples = [event for event in evidence.of("sample") if event.consumers is not None]
    if len(samples) < 2:
        return DOWN.unknown("Consumers were not counted", "no samples")
    peak = max(samples, key=lambda event: (event.consumers or 0, -event.i))
    figure = f"{samples[0].consumers} → {peak.consumers} → {samples[-1].consumers}"
    found = (
        f"{number(samples[0].consumers or 0, 'consumer')} at first, {peak.consumers} at the peak, "
        f"{samples[-1].consumers} at the end"
    )
    if (peak.consumers or 0) <= (samples[0].consumers or 0) or (samples[-1].consumers or 0) >= (peak.consumers or 0):
        return DOWN.failed(1, figure, found, [samples[0], samples[-1]])
    return DOWN.held(peak.consumers or 0, figure, found, [samples[0], peak, samples[-1]])


def flow_of(evidence: Evidence) -> Flow | None:
    """Measure λ, W and L, or return None where something needed was not seen.

    W comes from messages, L from samples of depth and in flight. They are independent, so that the law can fail.
    """
    sent = evidence.sent()
    deleted = {event.message: event for event in evidence.of("delete", "ok")}
    stays = [deleted[message].t_ms - event.t_ms for message, event in sent.items() if message in deleted]
    samples = [event for event in _samples(evidence) if event.in_flight is not None]
    if not stays or len(samples) < 2:
        return None
    length_ms = samples[-1].t_ms - samples[0].t_ms
    if length_ms <= 0:
        return None
    area = sum(
        ((a.depth or 0) + (a.in_flight or 0) + (b.depth or 0) + (b.in_flight or 0)) / 2 * (b.t_ms - a.t_ms)
        for a, b in pairwise(samples)
    )
    arrivals = sum(1 for event in sent.values() if samples[0].t_ms <= event.t_ms <= samples[-1].t_ms)
    return Flow(arrivals_per_s=arrivals * 1_000 / length_ms, stay_ms=sum(stays) / len(stays), inside=area / length_ms)


def littles_law(evidence: Evidence, *, tolerance: float = 0.25) -> Check:
    """L, counted by samples, is λ × W, measured from messages, but for `tolerance` and a message."""
    flow = flow_of(evidence)
    if flow is None:
        return LITTLE.unknown("Too few messages or samples", "too few")
    expected = flow.arrivals_per_s * flow.stay_ms / 1_000
    figure = f"{flow.inside:.1f} to {expected:.1f}"
    found = f"L is {flow.inside:.1f}; λ × W is {flow.arrivals_per_s:.1f}/s × {seconds(flow.stay_ms)} = {expected:.1f}"
    if abs(flow.inside - expected) > max(1.0, tolerance * max(flow.inside, expected)):
        return LITTLE.failed(1, figure, found)
    return LITTLE.held(1, figure, found)


def peak_bounded(evidence: Evidence, *, per_second: int, f: str = "receive", window_ms: int = 1_000) -> Check:
    """No second has more than `per_second` retries. First tries do not count: they come as they were sent."""
    tries = sorted(
        (
            event
            for event in evidence.of(f)
            if event.type in {"ok", "fail"} and max(event.attempt or 0, event.count or 0) > 1
        ),
        key=lambda event: (event.t_ms, event.i),
    )
    if not tries:
        return PEAK.unknown("Nothing was tried again", "no retries")
    first = last = start = 0
    for place, event in enumerate(tries):
        while event.t_ms - tries[start].t_ms >= window_ms:
            start += 1
        if place - start > last - first:
            first, last = start, place
    peak = math.ceil((last - first + 1) * 1_000 / window_ms)
    if peak > per_second:
        # One more than the bound allows is enough to prove it.
        witness = tries[first : first + math.floor(per_second * window_ms / 1_000) + 1]
        return PEAK.failed(peak, f"{peak}/s", f"The peak was {peak}/s; the bound is {per_second}/s", witness)
    return PEAK.held(peak, f"{peak}/s", f"The peak was {peak}/s; the bound is {per_second}/s", [tries[first]])


def waits_ms(evidence: Evidence, *, phase: str | None = None) -> dict[str, list[tuple[int, Event, Event]]]:
    """Return how long each tenant's messages waited from the send to the first receive, with both events."""
    sent = evidence.sent()
    found: dict[str, list[tuple[int, Event, Event]]] = {}
    for message, many in evidence.receives().items():
        send = sent.get(message)
        if send is not None and send.tenant is not None and (phase is None or send.phase == phase):
            found.setdefault(send.tenant, []).append((many[0].t_ms - send.t_ms, send, many[0]))
    return found


def p99(values: Sequence[int]) -> int:
    """Return the value that 99 of 100 do not exceed, by the nearest rank."""
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


def quiet_wait(evidence: Evidence, *, tenant: str, factor: float, floor_ms: int = 0) -> Check:
    """The tenant's p99 wait beside others is at most `factor` times its p99 wait alone.

    `floor_ms` is the least that counts as a wait alone, so that a wait of nothing does not forbid any.
    """
    alone = waits_ms(evidence, phase="alone").get(tenant, [])
    shared = waits_ms(evidence, phase="shared").get(tenant, [])
    if not alone or not shared:
        return WAIT.unknown(f"The tenant {tenant} was not measured both alone and beside others", "not measured")
    bound = max(p99([wait for wait, *_ in alone]), floor_ms) * factor
    found = p99([wait for wait, *_ in shared])
    sentence = f"p99 wait {found:,} ms; the bound is {factor:g} × {bound / factor:,.0f} ms = {bound:,.0f} ms"
    if found > bound:
        _, send, receive = next(one for one in shared if one[0] > bound)
        return WAIT.failed(sum(1 for wait, *_ in shared if wait > bound), f"{found:,} ms", sentence, [send, receive])
    return WAIT.held(len(shared), f"{found:,} ms", sentence, max(shared, key=lambda one: one[0])[1:])


def _samples(evidence: Evidence) -> list[Event]:
    return [event for event in evidence.of("sample") if event.depth is not None]
