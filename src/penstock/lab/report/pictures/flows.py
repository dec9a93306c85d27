"""Flows: messages between two queues, and calls between a client and a server whose answers get lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.report.scene import Drawing, Key, Scene, Strip, clock
from penstock.lab.report.svg import THUMB_HEIGHT, Canvas

if TYPE_CHECKING:
    from penstock.lab.history import Event

WIRES_MAX = 6
_BOXES = 10


def queue_flow(scene: Scene, *, thumb: bool) -> Drawing:
    """How many messages went to the dead-letter queue, came back, and died again."""
    evidence = scene.evidence
    moves = evidence.of("move", "ok")
    first_move = moves[0].i if moves else 1 << 62
    died = [event for event in evidence.of("dead") if event.i < first_move]
    again = [event for event in evidence.of("dead") if event.i > first_move]
    calls, sent = evidence.of("effect", "ok"), evidence.sent()
    fix = next(iter(evidence.of("fix", "ok")), None)
    too_soon = [move for move in moves if fix is None or move.i < fix.i]
    canvas = Canvas(THUMB_HEIGHT if thumb else 140, thumb=thumb)
    if thumb:
        _small_flow(canvas, len(sent), died, moves, again, calls)
    else:
        _large_flow(canvas, len(sent), died, moves, again, calls, too_soon=bool(too_soon))
    words = (
        f"{len(died)} of {len(sent)} messages die; {len(moves)} are moved "
        f"back{' before the fix' if too_soon else ''}; {len(again)} die again; {len(calls)} take effect."
    )
    return Drawing(
        strips=(Strip(canvas=canvas, alt=words),),
        title="Between the queue and its dead-letter queue",
        unit="messages",
        keys=(
            Key(look="dead", text="die"),
            Key(look="done", text="moved back"),
            Key(look="dead dash", text="die again"),
            Key(look="", mark="effect", text="effect"),
        ),
        head=("what", "messages"),
        rows=(
            ("sent", f"{len(sent)}"),
            ("died", f"{len(died)}"),
            ("moved back", f"{len(moves)}"),
            ("died again", f"{len(again)}"),
            ("effects", f"{len(calls)}"),
        ),
    )


def _large_flow(
    canvas: Canvas,
    sent: int,
    died: list[Event],
    moves: list[Event],
    again: list[Event],
    calls: list[Event],
    *,
    too_soon: bool,
) -> None:
    canvas.text("lbl", 0, 20, "queue")
    canvas.text("lbl", 0.72, 20, "dead-letter queue")
    _boxes(canvas, "ready", 0, 32, sent)
    _boxes(canvas, "dead", 0.72, 32, max(len(died), len(again)))
    canvas.arrow("dead", 0.32, 34, 0.69, 34)
    canvas.text("lbl", 0.505, 26, f"{len(died)} die", anchor="middle")
    if moves:
        canvas.arrow("done", 0.69, 60, 0.32, 60)
        canvas.text("lbl", 0.505, 52, f"{len(moves)} moved back", anchor="middle")
        words = "before the fix" if too_soon else "after the fix"
        canvas.text("say" if too_soon else "lbl", 0.505, 74, words, anchor="middle")
    if again:
        canvas.arrow("dead dash", 0.32, 98, 0.69, 98)
        canvas.text("say", 0.505, 90, f"{len(again)} die again", anchor="middle")
        canvas.mark("dead", "dead", 0.72, 98, 14, dx=8)
        canvas.text("say", 0.72, 103, f"{len(again)} left", dx=20)
    elif moves:
        canvas.mark("delete", "done", 0.72, 98, 13, dx=8)
        canvas.text("lbl", 0.72, 102, "none left", dx=20)
    canvas.line("wait", 0.03, 54, 0.03, 116)
    canvas.mark("effect", "", 0.03, 124, 13, title=f"{len(calls)} effects")
    canvas.text("lbl", 0.03, 128, f"{len(calls)} of {sent} take effect", dx=14)


def _boxes(canvas: Canvas, look: str, x: float, y: float, count: int) -> None:
    for place in range(min(count, _BOXES)):
        canvas.mark("cell-tall", look, x, y + 8, 14, dx=7 + place * 9)
    if count > _BOXES:
        canvas.text("lbl", x, y + 13, f"+{count - _BOXES}", dx=12 + _BOXES * 9)


def _small_flow(
    canvas: Canvas,
    sent: int,
    died: list[Event],
    moves: list[Event],
    again: list[Event],
    calls: list[Event],
) -> None:
    for place in range(min(sent, 5)):
        canvas.rect("o ready", place * 0.045, 17.5, 0.03, 10)
    for place in range(min(len(died), 5)):
        canvas.rect("o dead", 0.62 + place * 0.045, 17.5, 0.03, 10)
    canvas.arrow("dead", 0.27, 10, 0.58, 10)
    if moves:
        canvas.arrow("done", 0.58, 34, 0.27, 34)
    if again:
        canvas.arrow("dead dash", 0.27, 22, 0.58, 22)
        canvas.mark("dead", "dead", 0.96, 22, 11)
    elif calls:
        canvas.mark("delete", "done", 0.96, 22, 11)


def _calls(scene: Scene, f: str) -> dict[str, list[Event]]:
    """Return the outcomes of each call's tries, in order."""
    calls: dict[str, list[Event]] = {}
    for event in scene.evidence.of(f):
        if event.call is not None and event.type != "invoke":
            calls.setdefault(event.call, []).append(event)
    return calls


def send_wire(scene: Scene, *, thumb: bool) -> Drawing:
    """For each call: the try whose answer was cut off, its repeat, and whether that was stored again."""
    calls = _calls(scene, "send")
    stored: dict[str, list[str]] = {}
    for event in scene.evidence.of("receive", "ok"):
        if event.call is not None and event.message_id and event.message_id not in stored.setdefault(event.call, []):
            stored[event.call].append(event.message_id)
    chosen = list(calls.items())[: 1 if thumb else WIRES_MAX]
    strips = []
    for call, tries in chosen:
        canvas = Canvas(THUMB_HEIGHT if thumb else 74, thumb=thumb)
        twice = len(stored.get(call, [])) > 1
        _draw_sends(canvas, tries, twice=twice)
        count = max(len(stored.get(call, [])), 1)
        told = "; ".join(
            f"try {place} {'is cut off after the commit' if one.fault else 'is answered'}"
            for place, one in enumerate(tries, 1)
        )
        strips.append(
            Strip(
                canvas=canvas, label=call[:8], end=f"{count} stored", bad=twice, alt=f"{call}: {told}; {count} stored."
            )
        )
    return Drawing(
        strips=tuple(strips),
        title="On the wire",
        unit="client above, server below",
        note=_more(len(calls) - len(chosen)),
        keys=(
            Key(look="ready", mark="send", text="stored"),
            Key(look="dead", mark="crash", text="connection cut"),
            Key(look="late", mark="refused", text="recognised, not stored again"),
            Key(look="dead", mark="send", text="stored again"),
            Key(look="done", mark="delete", text="answered"),
        ),
    )


def _more(count: int) -> str:
    return f"{count:,} more calls are not drawn; the history has them." if count > 0 else ""


def _wires(canvas: Canvas) -> tuple[float, float]:
    top, bottom = (7.0, 37.0) if canvas.thumb else (18.0, 58.0)
    canvas.line("axis", 0, top, 1, top)
    canvas.line("axis", 0, bottom, 1, bottom)
    return top, bottom


def _draw_sends(canvas: Canvas, tries: list[Event], *, twice: bool) -> None:
    top, bottom = _wires(canvas)
    size = 9 if canvas.thumb else 12
    slot = 1 / max(len(tries), 2)
    for place, event in enumerate(tries):
        x = 0.03 + place * slot
        canvas.arrow("", x, top, x + slot * 0.25, bottom - 3)
        server = x + slot * 0.27
        if place == 0:
            canvas.mark(
                "send", "ready", server, bottom, size, title=f"#{event.i} stored at {clock(event.t_ms)}", event=event.i
            )
        else:
            name, look, words = ("send", "dead", "stored again") if twice else ("refused", "retrying", "recognised")
            canvas.mark(
                name, look, server, bottom, size, title=f"#{event.i} {words} at {clock(event.t_ms)}", event=event.i
            )
        if event.fault or event.type == "info":
            canvas.arrow("dash", server + slot * 0.05, bottom - 3, server + slot * 0.17, (top + bottom) / 2 + 2)
            canvas.mark("crash", "dead", server + slot * 0.2, (top + bottom) / 2 - 3, size - 1)
        else:
            canvas.arrow("", server + slot * 0.05, bottom - 3, server + slot * 0.3, top + 3)
            canvas.mark("delete", "done", server + slot * 0.33, top, size)
        if not canvas.thumb:
            canvas.text("tick", x, 12, f"try {event.attempt or place + 1}", anchor="start")


def receive_wire(scene: Scene, *, thumb: bool) -> Drawing:
    """For each receive whose answer was cut off: what its repeat got, under the lease of the message."""
    cut = scene.evidence.of("receive", "info")
    chosen = cut[: 1 if thumb else WIRES_MAX]
    strips = []
    for lost in chosen:
        canvas = Canvas(THUMB_HEIGHT if thumb else 88, thumb=thumb)
        strips.append(_receive_strip(scene, canvas, lost))
    return Drawing(
        strips=tuple(strips),
        title="On the wire",
        unit="client above, server and its lease below; how long until the message arrived",
        note=_more(len(cut) - len(chosen)),
        keys=(
            Key(look="leased", mark="lease", text="lease"),
            Key(look="dead", mark="crash", text="answer cut off"),
            Key(look="", mark="effect", text="effect"),
            Key(look="done", mark="delete", text="delete"),
            Key(look="retrying", mark="again", text="delivered again, a lease later"),
        ),
    )


def _late(scene: Scene, lost: Event) -> Event | None:
    """Return the receive with which a message of a cut answer arrived at last."""
    if lost.message is not None:
        return next(iter(e for e in scene.evidence.receives().get(lost.message, []) if e.i > lost.i), None)
    again = [many[0] for many in scene.evidence.receives().values() if (many[0].count or 0) > 1]
    # Which message it had is not known; they come back in the order in which they were leased.
    return next(iter(again[scene.evidence.of("receive", "info").index(lost) :]), None)


def _receive_strip(scene: Scene, canvas: Canvas, lost: Event) -> Strip:
    top, bottom = _wires(canvas)
    size = 9 if canvas.thumb else 12
    tall = 8 if canvas.thumb else 14
    receives = scene.evidence.of("receive", "ok")
    repeat = next((e for e in receives if e.call == lost.call and e.i > lost.i), None)
    same = repeat if repeat is not None and lost.message in {None, repeat.message} else None
    late = _late(scene, lost)
    canvas.rect("lease leased" if same else "lease leased off", 0.12, bottom - tall / 2, 0.5 if same else 0.74, tall)
    canvas.arrow("", 0.03, top, 0.11, bottom - tall / 2)
    canvas.arrow("dash", 0.15, bottom - tall / 2, 0.2, (top + bottom) / 2)
    canvas.mark(
        "crash", "dead", 0.21, (top + bottom) / 2 - 4, size - 1, title=f"#{lost.i} the answer is cut off", event=lost.i
    )
    canvas.arrow("", 0.3, top, 0.38, bottom - tall / 2)
    if same is not None:
        wait = same.t_ms - lost.t_ms
        canvas.arrow("", 0.42, bottom - tall / 2, 0.5, top + 3)
        canvas.mark(
            "effect",
            "",
            0.54,
            top,
            size,
            title=f"#{same.i} {scene.name(same.message)} at {clock(same.t_ms)}",
            event=same.i,
        )
        canvas.mark("delete", "done", 0.65, bottom, size)
        end, bad = clock(wait), False
    else:
        canvas.arrow("dash", 0.42, bottom - tall / 2, 0.5, top + 3)
        canvas.line("wait dead", 0.52, top, 0.86, top)
        if late is not None:
            canvas.mark(
                "again",
                "retrying",
                0.91,
                bottom,
                size,
                title=f"#{late.i} delivered again at {clock(late.t_ms)}",
                event=late.i,
            )
        end, bad = (clock(late.t_ms - lost.t_ms) if late else "never"), True
    if not canvas.thumb:
        canvas.text("tick", 0.03, 12, "receive")
        canvas.text("tick", 0.3, 12, "repeat")
        if same is None:
            canvas.text("say", 0.54, 12, f"gets {scene.name(repeat.message)}" if repeat else "gets nothing")
        canvas.text("tick", 0.12, bottom + 22, f"lease of {scene.visibility_ms / 1_000:g} s")
    name = scene.name(lost.message or (same or late or lost).message)
    return Strip(
        canvas=canvas,
        label=name,
        end=end,
        bad=bad,
        alt=f"{name}: the answer of a receive is cut off at {clock(lost.t_ms)}; the message arrives after: {end}.",
    )
