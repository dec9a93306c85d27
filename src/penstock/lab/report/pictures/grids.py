"""Grids and ladders: what each round did with each message of a batch, and how far each attempt climbed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.report.scene import Drawing, Key, Scene, Strip
from penstock.lab.report.svg import THUMB_HEIGHT, Canvas, Shape

if TYPE_CHECKING:
    from penstock.lab.history import Event

BATCH = 10
ROUNDS_MAX = 3
MESSAGES_MAX = 60
ATTEMPTS_MAX = 9
STEPS = {"start": 1, "check": 2, "effect": 3, "complete": 5, "delete": 6}
STEP_NAMES = ("start", "check", "call", "after the call", "complete", "delete")


def round_grid(scene: Scene, *, thumb: bool) -> Drawing:
    """A field for each message in each round: deleted, to come back, or a good one that is back without need."""
    sent = list(scene.evidence.sent())[: BATCH if thumb else MESSAGES_MAX]
    receives = scene.evidence.receives()
    poison = {event.message for event in scene.evidence.of("send") if event.poison}
    dead = {event.message for event in scene.evidence.of("dead")}
    rounds = min(int(max(scene.tops.get("receives", 1), 1)), 3 if thumb else ROUNDS_MAX)
    drawing = _small_grid if thumb else _large_grid
    canvas = drawing(scene, sent, poison, rounds, dead)
    again = sum(1 for message, many in receives.items() if len(many) > 1 and message not in poison)
    rows = tuple(
        (
            f"{number + 1}",
            f"{sum(len(receives.get(m, [])) > number for m in sent)}",
            f"{sum(len(receives.get(m, [])) > number and m in poison for m in sent)}",
        )
        for number in range(rounds)
    )
    return Drawing(
        strips=(
            Strip(
                canvas=canvas,
                alt=(
                    f"Rounds of {len(sent)} messages in rows of ten: {again} good ones come back; {len(dead)} "
                    "are dead letters."
                ),
            ),
        ),
        title="What each round received",
        unit="a column of ten for each batch",
        keys=(
            Key(look="done", field=True, text="good, deleted"),
            Key(look="done", mark="cell-open", text="good, done and not deleted"),
            Key(look="retrying", mark="cell-open", text="bad, comes back"),
            Key(look="dead", field=True, text="good, but back again"),
            Key(look="dead", mark="dead", text="dead letters"),
        ),
        head=("round", "received", "of them bad"),
        rows=rows,
    )


def _look(scene: Scene, message: str, number: int, poison: set[str | None]) -> str | None:
    receives = scene.evidence.receives().get(message, [])
    if len(receives) <= number:
        return None
    if message in poison:
        return "o retrying"
    if number:
        return "f dead"
    return "f done" if scene.evidence.of("delete", "ok", message=message) else "o done"


def _large_grid(scene: Scene, sent: list[str], poison: set[str | None], rounds: int, dead: set[str | None]) -> Canvas:
    field, gap, top = 11, 3, 24
    canvas = Canvas(top + BATCH * (field + gap) + 4)
    receives = scene.evidence.receives()
    for number in range(rounds):
        left = number / (rounds + 0.35)
        canvas.text("lbl", left, 14, f"round {number + 1}")
        for place, message in enumerate(sent):
            look = _look(scene, message, number, poison)
            dx = (place // BATCH) * (field + gap) + field / 2
            y = top + place % BATCH * (field + gap)
            if look is None:
                canvas.mark("send", "ghost", left, y + field / 2, 4, dx=dx)
            else:
                event = receives[message][number]
                title = f"#{event.i} {scene.name(message)} received the {number + 1}. time"
                # A field keeps its size at any width, so it is a mark and no rectangle.
                mark = "cell-open" if look.startswith("o") else "cell"
                canvas.mark(mark, look.split()[1], left, y + field / 2, field, dx=dx, title=title, event=event.i)
    if dead:
        x = rounds / (rounds + 0.35)
        canvas.mark("dead", "dead", x, top + 8, 14, dx=8)
        canvas.text("say", x, top + 13, f"{len(dead)}", dx=20)
    return canvas


def _small_grid(scene: Scene, sent: list[str], poison: set[str | None], rounds: int, dead: set[str | None]) -> Canvas:
    canvas = Canvas(THUMB_HEIGHT, thumb=True)
    for number in range(rounds):
        for place, message in enumerate(sent):
            look = _look(scene, message, number, poison)
            if look is not None:
                canvas.rect(look, place * 0.07, 1.5 + number * 15, 0.05, 10)
    if dead:
        canvas.mark("dead", "dead", 0.76, 6.5 + (rounds - 1) * 15, 10)
    return canvas


def step_ladder(scene: Scene, *, thumb: bool) -> Drawing:
    """Each attempt climbs the steps until it crashes; the last one reaches the top."""
    message = _typical(scene)
    attempts = _attempts(scene, message)[:ATTEMPTS_MAX]
    canvas = Canvas(THUMB_HEIGHT if thumb else 204, thumb=thumb)
    low, high = (40.0, 6.0) if thumb else (176.0, 30.0)

    def level(step: int) -> float:
        return low - (step - 1) * (low - high) / 5

    left = 0.0 if thumb else 0.2
    if not thumb:
        for number, name in enumerate(STEP_NAMES, 1):
            canvas.line("rule", 0, level(number), 1, level(number))
            canvas.text("tick", 0, level(number) - 4, f"{number} {name}")
    calls = sum(event.f == "effect" and event.type == "ok" for attempt in attempts for event in attempt)
    slot = (1 - left) / max(len(attempts), 1)
    for place, attempt in enumerate(attempts):
        start = left + place * slot
        points: list[tuple[float, float]] = []
        for event in attempt:
            step = event.step or STEPS.get(event.f)
            if step is None:
                continue
            x = start + slot * (step - 0.5) / 7
            points += [(x, points[-1][1])] if points else []
            points.append((x, level(step)))
            _ladder_mark(canvas, event, x, level(step), bad=calls > 1)
            later = attempts[place + 1] if place + 1 < len(attempts) else []
            if event.f == "effect" and later and event.i > later[0].i and not thumb:
                canvas.text("lbl", x, level(step) + 18, f"after {place + 2} began", anchor="middle")
        if points:
            canvas.shapes.insert(0, _curve(canvas, [(start, level(1)), *points]))
        if not thumb:
            canvas.text("tick", start + slot / 2, canvas.height - 8, f"{place + 1}", anchor="middle")
    crashes = sum(event.f == "crash" for attempt in attempts for event in attempt)
    others = len(scene.evidence.sent()) - 1
    return Drawing(
        strips=(
            Strip(
                canvas=canvas,
                alt=f"{scene.name(message)}: {len(attempts)} attempts, {crashes} crashes, {calls} calls.",
            ),
        ),
        title=f"Attempts of {scene.name(message)}",
        unit="steps climbed, by attempt",
        note=f"The other {others} are in the history." if others > 0 else "",
        keys=(
            Key(look="dead", mark="crash", text="crash"),
            Key(look="", mark="effect", text="call"),
            Key(look="late", mark="refused", text="call refused or left out"),
            Key(look="done", mark="delete", text="delete"),
        ),
        head=("attempt", "ends", "calls"),
        rows=tuple(
            (f"{place + 1}", _ending(attempt), f"{sum(e.f == 'effect' and e.type == 'ok' for e in attempt)}")
            for place, attempt in enumerate(attempts)
        ),
    )


def _curve(canvas: Canvas, points: list[tuple[float, float]]) -> Shape:
    canvas.curve("ln", points)
    return canvas.shapes.pop()


def _ladder_mark(canvas: Canvas, event: Event, x: float, y: float, *, bad: bool) -> None:
    size = 8 if canvas.thumb else 12
    title = f"#{event.i} {event.process}: {event.f}, step {event.step or STEPS.get(event.f)}"
    if event.f == "crash":
        canvas.mark("crash", "dead", x, y, size, dx=0 if canvas.thumb else 3, title=title, event=event.i)
    elif event.f == "effect":
        name, look = ("effect", "dead" if bad else "") if event.type == "ok" else ("refused", "retrying")
        canvas.mark(name, look, x, y, size, title=title, event=event.i)
    elif event.f == "delete":
        canvas.mark("delete", "done", x, y - (0 if canvas.thumb else 12), size, title=title, event=event.i)


def _typical(scene: Scene) -> str:
    """The message of the witness, or else the first one."""
    failed = next((check for check in scene.variant.checks if check.verdict == "failed" and check.message), None)
    return (failed.message if failed else None) or next(iter(scene.evidence.sent()), "")


def _attempts(scene: Scene, message: str) -> list[list[Event]]:
    """Return what each receive led to. A holder that lost its lease may go on while others have the message."""
    attempts: list[list[Event]] = []
    latest: dict[str, list[Event]] = {}
    for event in scene.evidence.events:
        if event.message != message or event.type == "invoke":
            continue
        if event.f == "receive":
            attempts.append([])
            latest[event.process] = attempts[-1]
        elif event.process in latest:
            latest[event.process].append(event)
    return attempts


def _ending(attempt: list[Event]) -> str:
    last = attempt[-1] if attempt else None
    if last is None:
        return "nothing"
    return f"crash at step {last.step}" if last.f == "crash" else last.f
