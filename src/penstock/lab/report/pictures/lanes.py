"""Lanes: one for each message, with its leases, effects, crashes and deletes in time."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from penstock.lab.report.pictures.lane_layout import Held, Lane, lanes_of, short
from penstock.lab.report.scene import Drawing, Key, Scene, Strip, clock, said, time_axis, time_gaps, time_rules
from penstock.lab.report.svg import THUMB_HEIGHT, Canvas

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.lab.history import Event

LANES_MAX = 10
_WORD_APART = {"above": 0.12, "below": 0.3}
"""How far words must be from each other, as a part of the width."""
_ROW = 22
_WHO_WIDTH = 0.07
"""How much room the name of a holder needs in its lease, as a part of the width."""
_VERBS = {
    "send": "is sent",
    "receive": "goes to",
    "effect": "has its effect by",
    "delete": "is deleted by",
    "crash": "is held at the crash of",
    "dead": "is a dead letter, seen by",
    "report": "is reported by",
}

KEYS = (
    Key(look="ready", mark="send", text="send"),
    Key(look="leased", mark="lease", text="lease, with its holder"),
    Key(look="leased", mark="lease-off", text="lease whose holder is gone"),
    Key(look="late", text="work without a lease"),
    Key(look="", mark="effect", text="effect"),
    Key(look="late", mark="refused", text="effect refused"),
    Key(look="dead", mark="crash", text="crash"),
    Key(look="retrying", mark="again", text="redelivery"),
    Key(look="done", mark="delete", text="delete"),
    Key(look="paused", mark="delete", text="delete that changes nothing"),
    Key(look="dead", mark="dead", text="dead letter"),
)


def draw(
    scene: Scene, *, thumb: bool, join: bool = False, signal: bool = False, gaps: bool = False, aligned: bool = False
) -> Drawing:
    """Draw lanes: joined by the order they are about, or with the signal as a line through all.

    With `gaps` the time in which nothing happens is left out; with `aligned` each lane begins at the send of its
    message.
    """
    if gaps:
        scene = scene.without_idle_time()
    lanes = lanes_of(scene)
    groups = _joined(scene, lanes) if join else [[lane] for lane in lanes]
    if thumb:
        return Drawing(strips=(_thumb(scene, groups, join=join, signal=signal, aligned=aligned),))
    shown: list[list[Lane]] = []
    for group in groups:
        if sum(len(one) for one in shown) < LANES_MAX:
            shown.append(group)
    bad_calls = _excess(scene, join=join)
    told: set[str] = set()
    strips = [
        _strip(_aligned(scene, group) if aligned else scene, group, bad_calls, told, join=join, signal=signal)
        for group in shown
    ]
    left_out = len(lanes) - sum(len(group) for group in shown)
    return Drawing(
        strips=tuple(strips),
        axis=time_axis(scene.since(0) if aligned else scene),
        title="Each message" if aligned else "",
        unit="by the time since it was sent" if aligned else "",
        keys=tuple(key for key in KEYS if _is_drawn(key, strips)),
        note=f"{left_out:,} more messages are not drawn; the history has them." if left_out > 0 else "",
    )


def _aligned(scene: Scene, group: list[Lane]) -> Scene:
    return scene.since(group[0].events[0].t_ms)


def _is_drawn(key: Key, strips: list[Strip]) -> bool:
    """Return whether the picture has what a line of the legend explains."""
    shapes = [shape.attributes for strip in strips for shape in strip.canvas.shapes]
    if key.mark in {"lease", "lease-off"}:
        look = "lease leased" if key.mark == "lease" else "lease leased off"
        return any(shape["class"] == look for shape in shapes)
    if key.mark is None:
        return any(shape["class"] == "late-work" for shape in shapes)
    looks = {shape["class"] for shape in shapes if shape.get("href") == f"#m-{key.mark}"}
    return bool(looks) if key.mark != "delete" else any((look == "m ghost") == (key.look == "paused") for look in looks)


def _joined(scene: Scene, lanes: list[Lane]) -> list[list[Lane]]:
    """Put the lanes of one order together."""
    keys = {event.message: event.key for event in scene.evidence.of("send")}
    groups: dict[str, list[Lane]] = {}
    for lane in lanes:
        groups.setdefault(keys.get(lane.message) or lane.message, []).append(lane)
    return list(groups.values())


def _excess(scene: Scene, *, join: bool) -> frozenset[int]:
    """Return the effects of whatever had more than one."""
    groups: dict[str, list[Event]] = {}
    for event in scene.evidence.of("effect", "ok"):
        groups.setdefault((event.key if join else event.message) or "", []).append(event)
    taken = {e.i for e in scene.evidence.of("report", "ok") if e.i in scene.culprits}
    return frozenset(event.i for many in groups.values() if len(many) > 1 for event in many) | frozenset(taken)


def _strip(scene: Scene, group: list[Lane], bad: frozenset[int], told: set[str], *, join: bool, signal: bool) -> Strip:
    words = _words(scene, group, bad, told, signal=signal)
    above, below = 19 if words["above"] else 0, 18 if words["below"] else 0
    rows = sum(lane.rows for lane in group)
    canvas = Canvas(above + 8 + _ROW * rows + below)
    time_rules(scene, canvas)
    if signal:
        for event in scene.evidence.of("signal"):
            canvas.line("limit", scene.at(event.t_ms), 0, scene.at(event.t_ms), canvas.height)
    _draw_group(scene, canvas, group, bad, top=above + 15, row=_ROW)
    time_gaps(scene, canvas)
    for look, x, words_said, anchor, dx in words["above"]:
        canvas.text(look, x, 14, words_said, anchor=anchor, dx=dx)
    for look, x, words_said, anchor, dx in words["below"]:
        canvas.text(look, x, canvas.height - 5, words_said, anchor=anchor, dx=dx)
    key = next((event.key for lane in group for event in lane.events if event.key), None)
    end, is_bad = _end(group, bad)
    label = key if join and key else scene.name(group[0].message)
    return Strip(canvas=canvas, label=label, end=end, bad=is_bad, alt=" ".join(_alt(scene, lane) for lane in group))


def _draw_group(
    scene: Scene, canvas: Canvas, group: list[Lane], bad: frozenset[int], *, top: float, row: float
) -> None:
    """Draw the lanes of one message, or of one order, which a bracket joins at their sends."""
    places: dict[int, float] = {}
    y = top
    sends = []
    for lane in group:
        send = next((event for event in lane.events if event.f == "send"), None)
        sends += [] if send is None else [(scene.at(send.t_ms), y)]
        _draw_lane(scene, canvas, lane, bad, places, top=y, row=row)
        y += row * lane.rows
    for (x1, y1), (x2, y2) in itertools.pairwise(sends):
        canvas.line("mark", x1, y1 + 6, x1, y2)
        canvas.line("mark", x1, y2, x2, y2)
    calls = sorted((event for lane in group for event in lane.calls if event.i in bad), key=lambda event: event.i)
    for before, after in itertools.pairwise(event for event in calls if event.i in places):
        if places[before.i] != places[after.i]:
            ring = canvas.line_of(
                "ring", scene.at(before.t_ms), places[before.i], scene.at(after.t_ms), places[after.i]
            )
            canvas.shapes.insert(_first_mark(canvas), ring)


def _first_mark(canvas: Canvas) -> int:
    """Return where marks begin, so that a line can go below them."""
    return next((place for place, shape in enumerate(canvas.shapes) if shape.tag == "use"), len(canvas.shapes))


def _end(group: list[Lane], bad: frozenset[int]) -> tuple[str, bool]:
    calls = sum(len(lane.calls) for lane in group)
    lane = group[0]
    if calls == 0 and lane.deleted and not any(event.f == "effect" for event in lane.events):
        return "lost", True
    if calls == 0 and not lane.held:
        return "waits", False
    if calls == 0 and any(one.stopped for one in lane.held) and not lane.deleted:
        return "cut off", True
    worst = any(event.i in bad for one in group for event in one.events)
    return f"{calls} call{'' if calls == 1 else 's'}", worst


_Words = dict[str, list[tuple[str, float, str, str, float]]]


def _words(scene: Scene, group: list[Lane], bad: frozenset[int], told: set[str], *, signal: bool) -> _Words:
    """Say in words, once in a picture, what a reader may not know from the marks."""
    words: _Words = {"above": [], "below": []}

    def say(kind: str, place: str, look: str, x: float, text: str, anchor: str, dx: float = 0) -> None:
        if kind in told:
            return
        near = [word for word in words[place] if abs(word[1] - x) < _WORD_APART[place]]
        if near and look != "say":
            return
        # What breaks the rule is said even where it takes the place of something else.
        words[place] = [word for word in words[place] if word not in near]
        told.add(kind)
        words[place].append((look, x, text, anchor, dx))

    if signal:
        for event in scene.evidence.of("signal")[:1]:
            say("signal", "above", "lbl", scene.at(event.t_ms), event.what or "SIGTERM", "middle")
        told.add("stop")
    calls = sorted((event for lane in group for event in lane.calls), key=lambda event: event.i)
    for one in (one for lane in group for one in lane.held):
        _say_lease(scene, one, say)
        for event in one.work:
            x = scene.at(event.t_ms)
            if event.type == "fail":
                left_out = (event.what or "").startswith("left out")
                say("refused", "below", "lbl", x, "left out" if left_out else "refused", "middle")
            elif event.i in bad and calls and event.i != calls[0].i and event.f == "effect":
                say("second", "below", "say", x, "second call", "middle")
    return words


def _say_lease(scene: Scene, one: Held, say: Callable[..., None]) -> None:
    who = short(one.lease.process)
    if one.stopped is not None:
        x = scene.at(one.stopped.t_ms)
        ends = "crashes" if one.stopped.f == "crash" else "ends"
        say("stop", "above", "lbl", x, f"{who} {ends}", "middle" if 0.08 < x < 0.9 else "start")
    elif one.work and one.late_ms > one.lease.until_ms:
        say("late", "above", "lbl", scene.at(one.lease.until_ms), f"lease runs out, {who} works on", "start")
    if (one.lease.got.count or 1) > 1:
        x = scene.at(one.lease.got.t_ms)
        say("again", "below", "lbl", x, f"{who} gets it again", "end" if x > 0.3 else "start", -4 if x > 0.3 else 0)


def _draw_lane(
    scene: Scene,
    canvas: Canvas,
    lane: Lane,
    bad: frozenset[int],
    places: dict[int, float],
    *,
    top: float,
    row: float,
) -> None:
    small = canvas.thumb
    size = 8 if small else 12
    send = next((event for event in lane.events if event.f == "send" and event.type in {"ok", "info"}), None)
    first = lane.held[0].lease.got.t_ms if lane.held else scene.span_ms
    if send is not None:
        canvas.line("wait ready", scene.at(send.t_ms), top, scene.at(first), top)
    for one in lane.held:
        _draw_lease(scene, canvas, one, top + one.row * row, places)
    if lane.deleted and not any(event.f == "effect" for event in lane.events):
        last = lane.events[-1].t_ms
        canvas.line("wait dead dash", scene.at(last) + 0.02, top, 1, top)
    if send is not None:
        canvas.mark("send", "ready", scene.at(send.t_ms), top, size - 1, title=said(scene, send, "sent"), event=send.i)
    for one in lane.held:
        _draw_marks(scene, canvas, one, top + one.row * row, bad, size)
    _draw_deletes(scene, canvas, lane, top, row, size)
    for event in lane.events:
        if event.f == "dead":
            y = top + (lane.rows - 1) * row
            canvas.mark(
                "dead",
                "dead",
                scene.at(event.t_ms),
                y,
                size,
                title=said(scene, event, "is a dead letter"),
                event=event.i,
            )


def _draw_lease(scene: Scene, canvas: Canvas, one: Held, y: float, places: dict[int, float]) -> None:
    tall = 9.0 if canvas.thumb else 16.0
    lease = one.lease
    start, end = scene.at(lease.got.t_ms), scene.at(lease.end_ms)
    if one.stopped is not None:
        cut = scene.at(one.stopped.t_ms)
        canvas.rect("lease leased", start, y - tall / 2, cut - start, tall)
        if lease.over is None:
            canvas.rect("lease leased off", cut, y - tall / 2, scene.at(lease.until_ms) - cut, tall)
    else:
        canvas.rect("lease leased", start, y - tall / 2, end - start, tall)
    if one.work and one.late_ms > lease.until_ms and one.stopped is None:
        canvas.line("late-work", end, y, scene.at(one.late_ms), y)
    covered = any(0 < scene.at(event.t_ms) - start < _WHO_WIDTH for event in one.work)
    if not canvas.thumb and end - start > _WHO_WIDTH and not covered:
        canvas.text("who leased", start, y + 4, short(lease.process), dx=6)
    places.update({event.i: y for event in one.work})


def _draw_marks(scene: Scene, canvas: Canvas, one: Held, y: float, bad: frozenset[int], size: float) -> None:
    got = one.lease.got
    if (got.count or 1) > 1:
        title = said(scene, got, f"delivered again to {got.process}")
        canvas.mark("halo", "", scene.at(got.t_ms), y, size + 3, dx=-size + 1)
        canvas.mark("again", "retrying", scene.at(got.t_ms), y, size, dx=-size + 1, title=title, event=got.i)
    for event in one.work:
        x = scene.at(event.t_ms)
        if event.type == "fail":
            title = said(scene, event, f"{'report' if event.f == 'report' else 'call'} of {event.process} refused")
            canvas.mark("refused", "retrying", x, y, size + 1, title=title, event=event.i)
        elif event.type == "ok" and event.f == "effect":
            look = "dead" if event.i in bad else ""
            canvas.mark(
                "effect",
                look,
                x,
                y,
                size + 1,
                title=said(scene, event, f"called for by {event.process}"),
                event=event.i,
            )
        elif event.type == "ok":
            look = "dead" if event.i in bad else "done"
            canvas.mark(
                "delete",
                look,
                x,
                y,
                size,
                dx=size,
                title=said(scene, event, f"reported by {event.process}"),
                event=event.i,
            )
    if one.stopped is not None:
        x = scene.at(one.stopped.t_ms)
        title = f"#{one.stopped.i} {one.stopped.process} stops at {clock(one.stopped.t_ms)}"
        canvas.mark("crash", "dead", x, y, size, title=title, event=one.stopped.i)


def _draw_deletes(scene: Scene, canvas: Canvas, lane: Lane, top: float, row: float, size: float) -> None:
    """A delete under a lease that is over is grey, unless it is the one that took effect."""
    good = [event for one in lane.held for event in one.deletes if event.type == "ok"]
    timely = [e for one in lane.held for e in one.deletes if e.type == "ok" and e.t_ms <= one.lease.until_ms]
    effective = next(iter(timely or good), None)
    for one in lane.held:
        for event in one.deletes:
            look = "done" if event is effective else "ghost"
            y = top + one.row * row
            early = one.lease.end_ms > event.t_ms
            title = said(scene, event, "deleted" if event is effective else "deleted with an old handle")
            canvas.mark(
                "delete",
                look,
                scene.at(event.t_ms),
                y,
                size - 1,
                dx=0 if early else size - 1,
                title=title,
                event=event.i,
            )


def _alt(scene: Scene, lane: Lane) -> str:
    told = []
    for event in lane.events:
        verb = _VERBS.get(event.f)
        if verb is None or event.type == "invoke":
            continue
        who = "" if event.f == "send" else f" {event.process}"
        refused = ", refused" if event.type == "fail" else ""
        told.append(f"{verb}{who}{refused} at {clock(event.t_ms)}")
    more = f"; and {len(told) - 12} more" if len(told) > 12 else ""
    return f"{scene.name(lane.message)} {'; '.join(told[:12])}{more}."


def _thumb(scene: Scene, groups: list[list[Lane]], *, join: bool, signal: bool, aligned: bool) -> Strip:
    canvas = Canvas(THUMB_HEIGHT, thumb=True)
    chosen: list[list[Lane]] = []
    rows = 0
    for group in sorted(
        groups, key=lambda group: not any(e.i in scene.culprits for lane in group for e in lane.events)
    ):
        more = sum(lane.rows for lane in group)
        if not chosen or rows + more <= 3:
            chosen.append(group)
            rows += more
    chosen = [group for group in groups if group in chosen]
    if signal:
        for event in scene.evidence.of("signal"):
            canvas.line("mark", scene.at(event.t_ms), 0, scene.at(event.t_ms), THUMB_HEIGHT)
    step = min(20.0, THUMB_HEIGHT / max(rows, 1))
    y = (THUMB_HEIGHT - step * rows) / 2 + step / 2
    bad = _excess(scene, join=join)
    for group in chosen:
        drawn = _aligned(scene, group) if aligned else scene
        _draw_group(drawn, canvas, group, bad, top=y, row=step)
        y += step * sum(lane.rows for lane in group)
    time_gaps(scene, canvas)
    return Strip(canvas=canvas, alt=" ".join(_alt(scene, lane) for group in chosen for lane in group)[:400])
