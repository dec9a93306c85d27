"""Points: sequence against time, versions seen against versions applied, and what survived a purge by its delay."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.lab.report.scene import Drawing, Key, Scene, Strip, clock, said, ticks
from penstock.lab.report.svg import THUMB_HEIGHT, Canvas

if TYPE_CHECKING:
    from penstock.lab.history import Event

HEIGHT = 220
_LABEL_WIDTH = 0.05
"""How much room the name of a consumer needs, as a part of the width."""
_GROUPS = ("leased", "delayed", "ready", "offered")


def _level(canvas: Canvas, part: float) -> float:
    low, high = (canvas.height - 4, 4) if canvas.thumb else (canvas.height - 30, 14)
    return low - part * (low - high)


def _time_ticks(scene: Scene, canvas: Canvas, words: str = "") -> None:
    base = canvas.height - 1 if canvas.thumb else canvas.height - 24
    canvas.line("axis", 0, base, 1, base)
    if canvas.thumb:
        return
    for place, (t_ms, text) in enumerate(ticks(scene.span_ms)):
        canvas.text("tick", scene.at(t_ms), canvas.height - 8, text, anchor="start" if place == 0 else "middle")
    if words:
        canvas.text("tick", 0, 10, words)


def _value_rules(canvas: Canvas, top: float, *, steps: int = 4) -> None:
    """Draw the ticks of a scale, each on its rule."""
    if canvas.thumb or top <= 0:
        return
    step = max(round(top / steps), 1)
    for value in range(step, int(top) + 1, step):
        y = _level(canvas, value / top)
        canvas.line("rule", 0, y, 1, y)
        canvas.text("tick", 0, y - 3, f"{value}")


def sequence_points(scene: Scene, *, thumb: bool) -> Drawing:
    """A dot for each effect at its sequence, red where a later one of its group came first; its lease is a line."""
    canvas = Canvas(THUMB_HEIGHT if thumb else HEIGHT, thumb=thumb)
    top = max(scene.tops.get("sequence", 1), 1)
    _value_rules(canvas, top)
    _time_ticks(scene, canvas)
    groups = list(dict.fromkeys(event.group or "" for event in scene.evidence.of("effect", "ok")))
    got = {(event.message, event.process): event for event in scene.evidence.of("receive", "ok")}
    highest: dict[str, int] = {}
    named: dict[int, list[float]] = {}
    wrong = 0
    for event in scene.evidence.of("effect", "ok"):
        group, sequence = event.group or "", event.sequence or 0
        late = sequence < highest.get(group, -1)
        wrong += late
        highest[group] = max(sequence, highest.get(group, -1))
        look = "dead" if late else _GROUPS[groups.index(group) % len(_GROUPS)]
        y = _level(canvas, sequence / top)
        start = got.get((event.message, event.process))
        if start is not None and not thumb:
            canvas.line(f"wait {look}", scene.at(start.t_ms), y, scene.at(event.t_ms), y)
        title = said(scene, event, f"sequence {sequence} of group {group} by {event.process}, effect")
        canvas.dot(f"dot {look}", scene.at(event.t_ms), y, 2 if thumb else 4, title=title, event=event.i)
        if not thumb:
            x = scene.at(event.t_ms)
            above = all(abs(x - other) > _LABEL_WIDTH for other in named.get(sequence, []))
            named.setdefault(sequence, []).append(x)
            canvas.text("tick", x, y - 7 if above else y + 14, event.process[-8:], anchor="middle")
    effects = scene.evidence.of("effect", "ok")
    return Drawing(
        strips=(
            Strip(
                canvas=canvas,
                alt=f"{len(effects)} effects by sequence and time; {wrong} came after a later one of their group.",
            ),
        ),
        title="Sequence against time",
        unit="each effect, with its consumer",
        keys=(
            *(
                Key(look=_GROUPS[place % len(_GROUPS)], mark="send", text=f"group {group}" if group else "messages")
                for place, group in enumerate(groups[:4])
            ),
            Key(look="dead", mark="send", text="out of order"),
        ),
        head=("time", "group", "sequence", "consumer"),
        rows=tuple((clock(e.t_ms), e.group or "", f"{e.sequence}", e.process) for e in effects[:60]),
    )


def versions(scene: Scene, *, thumb: bool) -> Drawing:
    """A dot for each version as it was seen, and the version in force as a staircase."""
    canvas = Canvas(THUMB_HEIGHT if thumb else HEIGHT, thumb=thumb)
    top = max(scene.tops.get("version", 1), 1)
    _value_rules(canvas, top)
    _time_ticks(scene, canvas)
    seen = [event for event in scene.evidence.of("apply", "ok", "fail") if event.version is not None]
    applied = [event for event in scene.evidence.of("apply", "ok") if event.version is not None]
    falls = {after.i for before, after in pairwise(applied) if (after.version or 0) < (before.version or 0)}
    points: list[tuple[float, float]] = []
    for event in applied:
        y = _level(canvas, (event.version or 0) / top)
        points += [(scene.at(event.t_ms), points[-1][1])] if points else []
        points.append((scene.at(event.t_ms), y))
    if points:
        points.append((1, points[-1][1]))
    canvas.curve(f"ln {'dead' if falls else 'done'}", points)
    for event in seen:
        title = said(scene, event, f"version {event.version} seen")
        canvas.dot(
            "dot delayed",
            scene.at(event.t_ms),
            _level(canvas, (event.version or 0) / top),
            2 if thumb else 3.5,
            title=title,
            event=event.i,
        )
    for event in applied:
        if not thumb and event.i in falls:
            title = said(scene, event, f"version {event.version} replaces a higher one")
            canvas.mark(
                "crash",
                "dead",
                scene.at(event.t_ms),
                _level(canvas, (event.version or 0) / top),
                10,
                dx=10,
                title=title,
                event=event.i,
            )
    last = applied[-1].version if applied else None
    if not thumb and last is not None:
        bad = last != scene.tops.get("version")
        canvas.text(
            "say" if bad else "lbl",
            1,
            _level(canvas, last / top) + (16 if bad else -8),
            f"ends with {last}",
            anchor="end",
            dx=-24,
        )
    return Drawing(
        strips=(
            Strip(
                canvas=canvas,
                alt=(
                    f"{len(seen)} versions seen, {len(applied)} applied, {len(falls)} of them over a higher one; "
                    f"it ends with {last}."
                ),
            ),
        ),
        title="Seen against applied",
        unit="version",
        keys=(
            Key(look="delayed", mark="send", text="seen"),
            Key(look="dead" if falls else "done", text="in force"),
            *((Key(look="dead", mark="crash", text="replaces a higher one"),) if falls else ()),
        ),
        head=("time", "seen", "applied"),
        rows=tuple(
            (clock(e.t_ms), f"{e.version}", "yes" if any(a.message == e.message for a in applied) else "no")
            for e in seen[:60]
        ),
    )


def survival(scene: Scene, *, thumb: bool) -> Drawing:
    """What was sent after the purge, by its delay: still there, gone, or not to be known here."""
    canvas = Canvas(THUMB_HEIGHT if thumb else 132, thumb=thumb)
    window = scene.limits.get("purge_window_ms", 60_000)
    batches: dict[int, list[Event]] = {}
    for event in scene.evidence.of("send", "ok"):
        if event.phase is not None and (since := _since_purge(scene, event)) is not None:
            # All rounds are in one picture, and sends of one moment are some milliseconds apart.
            batches.setdefault(since // 1_000 * 1_000, []).append(event)
    span = max([window * 1.3, *(delay * 1.08 for delay in batches)])
    there = set(scene.evidence.receives())
    y = 20.0 if thumb else 58.0
    base = 30.0 if thumb else 92.0
    canvas.line("axis", 0, base, 1, base)
    edge = window / span
    if not thumb:
        canvas.rect("gap", 0, 20, edge, base - 20)
    canvas.line("mark", edge, 4 if thumb else 20, edge, base + 8)
    rows = []
    last = -1.0
    for delay, events in sorted(batches.items()):
        alive = sum(event.message in there for event in events)
        if alive < len(events):
            mark, look, words = "crash", "dead", "lost"
        elif delay < window and not scene.observed:
            mark, look, words = "unknown", "paused", "not observed"
        else:
            mark, look, words = "send", "ready", "survive"
        rows.append((clock(delay), f"{alive} of {len(events)}", words))
        x = delay / span
        title = f"{alive} of {len(events)} sent {clock(delay)} after the purge {words}"
        canvas.mark(
            mark, look, x, y, 9 if thumb else 13, title=title, event=events[0].i, dx=0 if thumb or x > 0.02 else 8
        )
        if not thumb:
            near = x - last < 0.08
            anchor = "start" if x < 0.03 else "middle"
            look = "say" if words == "lost" else "lbl"
            canvas.text(look, x, y - (26 if near else 14), f"{alive}/{len(events)}", anchor=anchor)
            canvas.text("tick", x, base + (30 if near else 16), f"{delay / 1_000:g}", anchor=anchor)
            last = -1.0 if near else x
    refused = {_since_purge(scene, event) or 0: event for event in reversed(scene.evidence.of("purge", "fail"))}
    for since, event in refused.items():
        x = since / span
        canvas.mark(
            "refused",
            "retrying",
            x,
            y + (0 if thumb else 22),
            8 if thumb else 12,
            title=f"#{event.i} second purge refused",
            event=event.i,
        )
    if not thumb:
        canvas.text("lbl", 0, 14, "a purge may take these")
        canvas.text("lbl", edge, 14, f"after {window / 1_000:g} s", dx=4)
        canvas.text("tick", 1, base + 30, "seconds from the purge to the send", anchor="end")
    words_said = (
        "; ".join(f"{delay}: {alive} {what}" for delay, alive, what in rows) or "nothing was sent after the purge"
    )
    return Drawing(
        strips=(Strip(canvas=canvas, alt=f"Survival by delay after the purge. {words_said}."),),
        title="Survival by delay",
        unit="messages that are still there",
        keys=(
            Key(look="ready", mark="send", text="survive"),
            Key(look="dead", mark="crash", text="lost"),
            Key(look="paused", mark="unknown", text="not observed here"),
            Key(look="late", mark="refused", text="second purge refused"),
        ),
        head=("delay", "still there", "verdict"),
        rows=tuple(rows),
    )


def _since_purge(scene: Scene, event: Event) -> int | None:
    """Return how long before an event the queue was purged last; None if it never was."""
    purge = next((one for one in reversed(scene.evidence.of("purge", "ok")) if one.i < event.i), None)
    return None if purge is None else event.t_ms - purge.t_ms
