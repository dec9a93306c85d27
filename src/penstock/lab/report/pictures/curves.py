"""Curves: depth, consumers, rates and ages over time, one strip for each unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers.effects import stale_messages
from penstock.lab.report.scene import Drawing, Key, Scene, Strip, clock, oldest_ms, said, time_axis, time_rules
from penstock.lab.report.svg import THUMB_HEIGHT, Canvas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.lab.history import Event

STRIP = 72
_BUCKETS = 30


def _points(
    scene: Scene, canvas: Canvas, values: Sequence[tuple[float, float]], top: float, *, steps: bool = False
) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for t_ms, value in values:
        y = _y(canvas, value, top)
        if steps and points:
            points.append((scene.at(t_ms), points[-1][1]))
        points.append((scene.at(t_ms), y))
    return points


def _y(canvas: Canvas, value: float, top: float) -> float:
    return canvas.height - 2 - min(value / max(top, 1e-9), 1) * (canvas.height - (6 if canvas.thumb else 20))


def _strip(scene: Scene) -> Canvas:
    canvas = Canvas(STRIP)
    time_rules(scene, canvas)
    canvas.line("axis", 0, STRIP - 1, 1, STRIP - 1)
    return canvas


def load_curves(scene: Scene, *, thumb: bool) -> Drawing:
    """Depth with its threshold and bound, consumers, and what came and went per second."""
    samples = [event for event in scene.evidence.of("sample") if event.depth is not None]
    depth = [(float(event.t_ms), float(event.depth or 0)) for event in samples]
    consumers = [(float(event.t_ms), float(event.consumers or 0)) for event in samples]
    bound, threshold = scene.limits.get("depth_bound", 0), scene.limits.get("depth_threshold", 0)
    over = bound and any(value > bound for _, value in depth)
    if thumb:
        canvas = Canvas(THUMB_HEIGHT, thumb=True)
        canvas.line("axis", 0, 43, 1, 43)
        canvas.curve(f"ln {'dead' if over else 'ready'}", _points(scene, canvas, depth, max(scene.tops["depth"], 1)))
        canvas.curve("ln leased", _points(scene, canvas, consumers, max(scene.tops["consumers"], 1) * 2, steps=True))
        return Drawing(strips=(Strip(canvas=canvas, alt=_load_words(samples)),))
    top = max(scene.tops["depth"], bound, 1)
    first = _strip(scene)
    for value, words in ((bound, "bound"), (threshold, "threshold")):
        if value and (words == "bound" or _y(first, value, top) - _y(first, bound, top) > 14):
            y = _y(first, value, top)
            first.line("limit" if words == "bound" else "mark", 0, y, 1, y)
            first.text("tick", 1, y - 3, f"{words} {value:g}", anchor="end")
    first.curve(f"ln {'dead' if over else 'ready'}", _points(scene, first, depth, top))
    _extreme(scene, first, depth, top, "say" if over else "lbl")
    second = _strip(scene)
    many = max(scene.tops["consumers"], 1)
    second.curve("ln leased", _points(scene, second, consumers, many, steps=True))
    _extreme(scene, second, consumers, many, "lbl")
    third, rates = _rates(scene)
    ended = samples[-1] if samples else None
    return Drawing(
        strips=(
            Strip(
                canvas=first,
                label="depth",
                end=f"{ended.depth:,}" if ended else "–",
                bad=bool(over),
                alt=_load_words(samples),
            ),
            Strip(
                canvas=second,
                label="consumers",
                end=f"{ended.consumers}" if ended else "–",
                alt=f"Consumers: {_series(consumers)}.",
            ),
            Strip(canvas=third, label="per second", end="λ, μ", alt=rates),
        ),
        axis=time_axis(scene),
        title="Depth, consumers, and what comes and goes",
        keys=(
            Key(look="ready", text="depth, messages"),
            Key(look="leased", text="consumers"),
            Key(look="delayed", text="λ, sent per second"),
            Key(look="done dash", text="μ, deleted per second"),
        ),
        head=("time", "depth", "in flight", "consumers"),
        rows=tuple(
            (clock(e.t_ms), f"{e.depth}", f"{e.in_flight}", f"{e.consumers}")
            for e in samples[:: max(len(samples) // 20, 1)]
        ),
    )


def _rates(scene: Scene) -> tuple[Canvas, str]:
    canvas = _strip(scene)
    width_ms = max(scene.span_ms / _BUCKETS, 1)
    series = {}
    for f in ("send", "delete"):
        counts = [0.0] * _BUCKETS
        for event in scene.evidence.of(f, "ok"):
            counts[min(int(event.t_ms / width_ms), _BUCKETS - 1)] += 1_000 / width_ms
        last = max((event.t_ms for event in scene.evidence.events), default=0)
        series[f] = [
            ((place + 0.5) * width_ms, rate) for place, rate in enumerate(counts) if (place + 0.5) * width_ms <= last
        ]
    top = max([rate for many in series.values() for _, rate in many] or [1])
    canvas.curve("ln delayed", _points(scene, canvas, series["send"], top))
    canvas.curve("ln done dash", _points(scene, canvas, series["delete"], top))
    _extreme(scene, canvas, series["send"], top, "lbl", unit="/s")
    return canvas, f"Sent per second: {_series(series['send'])}. Deleted per second: {_series(series['delete'])}."


def _extreme(
    scene: Scene, canvas: Canvas, values: Sequence[tuple[float, float]], top: float, look: str, unit: str = ""
) -> None:
    if values:
        t_ms, value = max(values, key=lambda pair: pair[1])
        x = scene.at(t_ms)
        canvas.text(
            look,
            x,
            _y(canvas, value, top) - 5,
            f"{value:,.0f}{unit}",
            anchor="start" if x < 0.05 else "end" if x > 0.95 else "middle",
        )


def _series(values: Sequence[tuple[float, float]]) -> str:
    if not values:
        return "none"
    return (
        f"{values[0][1]:,.0f} at first, {max(value for _, value in values):,.0f} at most, {values[-1][1]:,.0f} "
        "at the end"
    )


def _load_words(samples: Sequence[Event]) -> str:
    if not samples:
        return "No samples."
    return (
        f"Depth: {_series([(float(e.t_ms), float(e.depth or 0)) for e in samples])}; "
        f"{samples[-1].consumers or 0} consumers at the end."
    )


def backlog_curves(scene: Scene, *, thumb: bool) -> Drawing:
    """Depth and the age of the oldest message through an outage, and what was done with stale ones."""
    samples = [event for event in scene.evidence.of("sample") if event.depth is not None]
    depth = [(float(event.t_ms), float(event.depth or 0)) for event in samples]
    age = [(float(event.t_ms), float(oldest_ms(scene.evidence, event))) for event in samples]
    stale = _stale(scene)
    shown = _apart(scene, stale, 0.045 if thumb else 0.03)
    tops = max(scene.tops["depth"], 1), max(scene.tops["oldest_ms"], scene.limits.get("stale_ms", 0), 1)
    if thumb:
        canvas = Canvas(THUMB_HEIGHT, thumb=True)
        canvas.line("axis", 0, 43, 1, 43)
        canvas.curve("ln ready", _points(scene, canvas, depth, tops[0]))
        canvas.curve("ln late dash", _points(scene, canvas, age, tops[1] * 1.5))
        for event in shown:
            canvas.mark(*_stale_mark(event), scene.at(event.t_ms), 37, 6)
        return Drawing(strips=(Strip(canvas=canvas, alt=_backlog_words(depth, stale)),))
    first, second, third = _strip(scene), _strip(scene), Canvas(30)
    for canvas in (first, second):
        _outage(scene, canvas)
    first.curve("ln ready", _points(scene, first, depth, tops[0]))
    _extreme(scene, first, depth, tops[0], "lbl")
    limit = scene.limits.get("stale_ms", 0)
    if limit:
        y = _y(second, limit, tops[1])
        second.line("limit", 0, y, 1, y)
        second.text("tick", 0, y - 3, f"stale after {limit / 1_000:g} s", dx=4)
    second.curve("ln late", _points(scene, second, age, tops[1]))
    oldest = max(age, key=lambda pair: pair[1], default=None)
    if oldest is not None:
        second.text("lbl", scene.at(oldest[0]), _y(second, oldest[1], tops[1]) - 5, clock(oldest[1]), anchor="middle")
    time_rules(scene, third)
    for event in shown:
        words = "stale, and takes effect" if event.type == "ok" else "stale, counted and left out"
        third.mark(*_stale_mark(event), scene.at(event.t_ms), 15, 10, title=said(scene, event, words), event=event.i)
    taken = sum(event.type == "ok" for event in stale)
    return Drawing(
        strips=(
            Strip(
                canvas=first,
                label="depth",
                end=f"{depth[-1][1]:,.0f}" if depth else "–",
                alt=_backlog_words(depth, stale),
            ),
            Strip(
                canvas=second,
                label="oldest",
                end=clock(age[-1][1]) if age else "–",
                alt=f"Age of the oldest message: up to {clock(oldest[1]) if oldest else 'nothing'}.",
            ),
            Strip(
                canvas=third,
                label="stale",
                end=f"{taken} taken" if taken else f"{len(stale)} left out",
                bad=taken > 0,
                alt=f"{len(stale)} stale messages, {taken} took effect.",
            ),
        ),
        axis=time_axis(scene),
        title="Depth and age of the oldest message",
        keys=(
            Key(look="ready", text="depth, messages"),
            Key(look="late", text="age of the oldest"),
            Key(look="late", mark="refused", text="stale, left out"),
            Key(look="dead", mark="effect", text="stale, but takes effect"),
        ),
        head=("time", "depth", "oldest"),
        rows=tuple(
            (clock(e.t_ms), f"{e.depth}", clock(oldest_ms(scene.evidence, e)))
            for e in samples[:: max(len(samples) // 20, 1)]
        ),
    )


def _stale(scene: Scene) -> list[Event]:
    """Return the effects, made or refused, of messages that were stale when work on them began."""
    old = stale_messages(scene.evidence, age_ms_max=int(scene.limits.get("stale_ms", 0)))
    return [event for event in scene.evidence.of("effect", "ok", "fail") if event.message in old]


def _apart(scene: Scene, events: Sequence[Event], least: float) -> list[Event]:
    """Leave out events that would cover the one before."""
    kept: list[Event] = []
    for event in events:
        if not kept or scene.at(event.t_ms) - scene.at(kept[-1].t_ms) >= least:
            kept.append(event)
    return kept


def _stale_mark(event: Event) -> tuple[str, str]:
    return ("effect", "dead") if event.type == "ok" else ("refused", "retrying")


def _outage(scene: Scene, canvas: Canvas) -> None:
    begin = next(iter(scene.evidence.of("outage", "invoke")), None)
    if begin is None:
        return
    end = next(iter(scene.evidence.of("outage", "ok")), None)
    start, stop = scene.at(begin.t_ms), scene.at(end.t_ms if end else scene.span_ms)
    canvas.rect("gap", start, 0, stop - start, canvas.height - 1)
    canvas.text("tick", start, 10, "outage", dx=4)


def _backlog_words(depth: Sequence[tuple[float, float]], stale: Sequence[Event]) -> str:
    return (
        f"Depth: {_series(depth)}; {len(stale)} stale messages, {sum(e.type == 'ok' for e in stale)} of them "
        "took effect."
    )
