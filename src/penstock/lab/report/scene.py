"""What a picture is drawn from: one variant of a run, with the names, the time scale and the limits that both share."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from penstock.lab.checkers.evidence import Evidence, first_of
from penstock.lab.report.svg import Canvas
from penstock.lab.run import VISIBILITY_MS, Variant

if TYPE_CHECKING:
    from penstock.lab.history import Event
    from penstock.lab.run import Run

_STEPS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000)
_HOUR_MS = 3_600_000
TICKS_MAX = 6
IDLE_PART, IDLE_MS = 0.2, 1_000
"""How long nothing must happen for a picture with gaps to leave that out: a part of the whole time, and at least."""
BUSY_PART, GAPS_MAX = 0.4, 2
"""A picture has gaps only if they leave at most this part of the time, and at most this many."""
GAP = 0.1
"""How wide such a gap is, as a part of the width."""
_GAP_LABEL = 0.19
"""How far from its middle no other instant is written."""
_MARGIN = 0.08
"""How much of the time beside a gap is kept, as a part of all that is shown."""


class Strip(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a picture: a name, a canvas, and what came of it."""

    canvas: Canvas
    alt: str
    label: str = ""
    end: str = ""
    bad: bool = False
    """Whether what came of it breaks the rule."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a legend: a mark of the sprite, or else a line or a filled field."""

    look: str
    text: str
    mark: str | None = None
    field: bool = False


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of one variant: strips under each other over one axis."""

    strips: tuple[Strip, ...]
    axis: Canvas | None = None
    axis_below: bool = False
    title: str = ""
    unit: str = ""
    keys: tuple[Key, ...] = ()
    note: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """The same as a table, for those who do not see the picture."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One variant, ready to be drawn."""

    variant: Variant
    evidence: Evidence
    names: dict[str, str]
    """What messages are called in the picture: m1, m2, … in the order they were sent."""
    span_ms: int
    """The time that the whole width stands for, the same in both variants."""
    instants: tuple[int, ...] = ()
    """When anything happens in either variant, in order."""
    round_ms: int = 1
    """The longest time from the send of a message to its last event, in either variant."""
    origin_ms: int = 0
    """The instant at the left."""
    gaps: tuple[tuple[int, int], ...] = ()
    """What is left out: from and until when."""
    limits: dict[str, float]
    tops: dict[str, float]
    """The highest values in either variant, so that both are drawn to one scale."""
    culprits: frozenset[int]
    """Events that are part of a witness against a rule."""
    observed: bool = True
    """Whether this endpoint can show the failure at all."""

    @property
    def broken(self) -> bool:
        return self.variant.name == "broken"

    @property
    def visibility_ms(self) -> int:
        return int(self.limits.get("visibility_ms", VISIBILITY_MS))

    def at(self, t_ms: float) -> float:
        """Return the place of an instant, as a part of the width."""
        t_ms = max(0.0, min(t_ms - self.origin_ms, self.span_ms))
        per_ms = (1 - GAP * len(self.gaps)) / (self.span_ms - sum(end - start for start, end in self.gaps))
        left = 0.0
        for start, end in self.gaps:
            if t_ms >= end:
                left += GAP - (end - start) * per_ms
            elif t_ms > start:
                left += (t_ms - start) * (GAP / (end - start) - per_ms)
        return left + t_ms * per_ms

    def since(self, origin_ms: int) -> Scene:
        """Return the same with another instant at the left, and as wide as the longest message takes."""
        return msgspec.structs.replace(self, origin_ms=origin_ms, span_ms=max(int(self.round_ms * 1.05), 1))

    def without_idle_time(self) -> Scene:
        """Return the same with gaps where nothing happens for long in either variant."""
        last_ms = self.instants[-1]
        idle = [
            (before, after)
            for before, after in itertools.pairwise(self.instants)
            if after - before > max(IDLE_PART * last_ms, IDLE_MS)
        ]
        left_ms = last_ms - sum(after - before for before, after in idle)
        if left_ms > BUSY_PART * last_ms or len(idle) > GAPS_MAX:
            return self
        margin = max(round(_MARGIN * left_ms), last_ms // 1_000, 1)
        gaps = tuple((before + margin, after - margin) for before, after in idle)
        return msgspec.structs.replace(self, gaps=gaps, span_ms=last_ms + 2 * margin)

    def name(self, message: str | None) -> str:
        return self.names.get(message or "", message or "")

    def ticks(self) -> list[tuple[int, str]]:
        """Return instants for the axis, with their words."""
        if not self.gaps:
            return [(self.origin_ms + t_ms, words) for t_ms, words in ticks(self.span_ms)]
        step = _step(self.span_ms - sum(end - start for start, end in self.gaps))
        middles = [self.at((start + end) / 2) for start, end in self.gaps]
        places = [
            place
            for place in range(0, self.span_ms + 1, step)
            if all(abs(self.at(place) - middle) > _GAP_LABEL for middle in middles)
        ]
        return [(place, f"{place / 1_000:g}{' s' if place in {places[0], places[-1]} else ''}") for place in places]


def ticks(span_ms: float) -> list[tuple[int, str]]:
    """Return at most `TICKS_MAX` even instants from 0 on; the first and the last one have the unit."""
    step = _step(span_ms)
    places = list(range(0, int(span_ms) + 1, step))
    unit, size = ("ms", 1) if step < 100 else ("s", 1_000) if step < 60_000 else ("min", 60_000)
    return [
        (place, f"{place / size:g} {unit}" if place in {places[0], places[-1]} else f"{place / size:g}")
        for place in places
    ]


def _step(span_ms: float) -> int:
    step = next((step for step in _STEPS_MS if span_ms / step <= TICKS_MAX), None)
    return step or math.ceil(span_ms / TICKS_MAX / _HOUR_MS) * _HOUR_MS


def scenes(run: Run) -> list[Scene]:
    """Prepare both variants to be drawn to the same scale."""
    seen = [(variant, Evidence(events=variant.history.events)) for variant in run.variants]
    shown = [event for _, evidence in seen for event in _shown(evidence)]
    last = max((event.t_ms for event in shown), default=0)
    tops: dict[str, float] = {}
    for _, evidence in seen:
        for name, value in _tops(evidence).items():
            tops[name] = max(tops.get(name, 0), value)
    return [
        Scene(
            variant=variant,
            evidence=evidence,
            names=message_names(variant),
            span_ms=max(int(last * 1.05), 1),
            instants=tuple(sorted({0, *(event.t_ms for event in shown)})),
            round_ms=max((_round_ms(evidence) for _, evidence in seen), default=1),
            limits=run.limits,
            tops=tops,
            culprits=frozenset(i for check in variant.checks if check.verdict == "failed" for i in check.witness),
            observed=run.not_observed is None,
        )
        for variant, evidence in seen
    ]


def _shown(evidence: Evidence) -> list[Event]:
    """Return what a picture shows. The end of idle consumers, and the look at what is left, come long after that."""
    signalled = {event.process for event in evidence.of("signal")}
    return [
        event for event in evidence.events if event.f != "dead" and (event.f != "exit" or event.process in signalled)
    ] or list(evidence.events)


def _round_ms(evidence: Evidence) -> int:
    """Return the longest time from the send of a message to its last event."""
    sent = evidence.sent()
    return max(
        (event.t_ms - sent[event.message].t_ms for event in _shown(evidence) if event.message in sent), default=1
    )


def message_names(variant: Variant) -> dict[str, str]:
    """Name messages m1, m2, … and jobs j1, j2, … in the order in which they first appear."""
    names: dict[str, str] = {}
    counts = Counter[str]()
    for event in variant.history.events:
        if event.message is not None and event.message not in names:
            kind = "j" if event.queue is not None and event.queue.endswith("-jobs") else "m"
            counts[kind] += 1
            names[event.message] = f"{kind}{counts[kind]}"
    return names


def _tops(evidence: Evidence) -> dict[str, float]:
    samples = evidence.of("sample")
    counts = [len(many) for many in evidence.receives().values()]
    return {
        "depth": max((event.depth or 0 for event in samples), default=0),
        "consumers": max((event.consumers or 0 for event in samples), default=0),
        "oldest_ms": max((oldest_ms(evidence, event) for event in samples), default=0),
        "receives": max(counts, default=0),
        "version": max((event.version or 0 for event in evidence.events), default=0),
        "sequence": max((event.sequence or 0 for event in evidence.events), default=0),
        "retries": _peak(evidence),
    }


def oldest_ms(evidence: Evidence, sample: Event) -> int:
    """Return how old the oldest message was at a sample: as it says itself, or else by what was sent and deleted."""
    if sample.oldest_ms is not None:
        return sample.oldest_ms
    deleted = first_of(evidence.of("delete", "ok"))
    waiting = (
        event.t_ms
        for message, event in evidence.sent().items()
        if event.i < sample.i and (message not in deleted or deleted[message].i > sample.i)
    )
    return sample.t_ms - min(waiting, default=sample.t_ms)


def _peak(evidence: Evidence) -> int:
    """Return the most retries within a second."""
    times = sorted(event.t_ms for event in evidence.of("receive") if (event.count or 0) > 1 or (event.attempt or 0) > 1)
    start = peak = 0
    for place, t_ms in enumerate(times):
        while t_ms - times[start] >= 1_000:
            start += 1
        peak = max(peak, place - start + 1)
    return peak


def time_axis(scene: Scene) -> Canvas:
    """Draw the instants that stand over a picture."""
    canvas = Canvas(20)
    for place, (t_ms, words) in enumerate(scene.ticks()):
        canvas.text("tick", scene.at(t_ms), 14, words, anchor="start" if place == 0 else "middle")
    for start, end in scene.gaps:
        canvas.text("lbl", scene.at((start + end) / 2), 14, f"{clock(end - start)} later", anchor="middle")
    return canvas


def time_gaps(scene: Scene, canvas: Canvas) -> None:
    """Cover the time that is left out."""
    for start, end in scene.gaps:
        canvas.rect("gap", scene.at(start), 0, scene.at(end) - scene.at(start), canvas.height)


def time_rules(scene: Scene, canvas: Canvas) -> None:
    """Draw the hairlines of the instants."""
    if not canvas.thumb:
        for t_ms, _ in scene.ticks():
            canvas.line("rule", scene.at(t_ms), 0, scene.at(t_ms), canvas.height)


def clock(t_ms: float) -> str:
    """Write an instant of a run for a title or a sentence."""
    return f"{t_ms / 1_000:,.2f}".rstrip("0").rstrip(".") + " s"


def said(scene: Scene, event: Event, verb: str) -> str:
    """Write what an event's mark says when it is pointed at."""
    return f"#{event.i} {scene.name(event.message)} {verb} at {clock(event.t_ms)}"
