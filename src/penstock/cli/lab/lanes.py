"""The picture of a message or two in a terminal: a lane for each process that had it, and time to the right."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from penstock.cli.lab.lane_notes import calls_of, note_of
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.signs import Signs
from penstock.cli.terminal.text import Span, Style, cells, harmless
from penstock.lab.history import Event, History

CELLS = 44
LANES_MAX = 8
_MARKS: dict[tuple[str, str], tuple[str, str, Style]] = {
    ("send", "ok"): ("●", "o", "blue"),
    ("receive", "ok"): ("▣", "#", "cyan"),
    ("receive", "info"): ("▣", "#", "dim"),
    ("effect", "ok"): ("◆", "*", ""),
    ("effect", "fail"): ("◇", "-", ""),
    ("apply", "ok"): ("◆", "*", ""),
    ("apply", "fail"): ("◇", "-", ""),
    ("delete", "ok"): ("✓", "+", "green"),
    ("crash", "info"): ("✕", "x", "red"),
    ("dead", "ok"): ("†", "X", "red"),
    ("signal", "info"): ("!", "!", "yellow"),
    ("exit", "info"): ("■", "%", ""),
}
_AGAIN: tuple[str, str, Style] = ("↻", "~", "yellow")
_STEPS_MS = tuple(size * 10**power for power in range(8) for size in (1, 2, 5))
_TICK_CELLS = 7


def marks(signs: Signs, event: Event, bad: Collection[int] = ()) -> Span:
    """Return the sign of an event: a receive that is not the first has another, and so has an exit that is none.

    An effect is red where it is among the `bad` events.
    """
    sign, plain, style = _MARKS.get((event.f, event.type), ("·", ".", "dim"))
    if event.f == "receive" and (event.count or 1) > 1:
        sign, plain, style = _AGAIN
    if event.f == "exit" and event.code != 0:
        sign, plain, style = _MARKS["crash", "info"]
    if event.f in {"effect", "apply"} and event.i in bad:
        style = "red"
    return Span(plain if signs.ascii_only else sign, style)


class _Row(NamedTuple):
    """One lane: what a process did with a message."""

    name: str
    events: tuple[Event, ...]


class _Scale:
    """Time to cells. Each event has a cell of its own, and the rest of the width is shared out by time."""

    def __init__(self, instants: Sequence[int]) -> None:
        self._instants = sorted(instants)
        gaps = [after - before for before, after in zip(self._instants, self._instants[1:], strict=False)]
        spare = CELLS - 1 - len(gaps)
        total = sum(gaps)
        places = [0.0]
        for gap in gaps:
            places.append(places[-1] + 1 + (gap / total * spare if total else 0))
        self._places = [round(place) for place in places]

    @property
    def fits(self) -> bool:
        return len(self._instants) <= CELLS

    def at(self, t_ms: int) -> int:
        """Return the cell of an instant."""
        after = bisect_right(self._instants, t_ms)
        if after == 0:
            return 0
        if after == len(self._instants) or self._instants[after - 1] == t_ms:
            return self._places[after - 1]
        before, following = self._instants[after - 1], self._instants[after]
        left, right = self._places[after - 1], self._places[after]
        return left + round((t_ms - before) / (following - before) * (right - left))

    def ruler(self) -> str:
        """Write instants above the lanes, as many as fit."""
        first, last = self._instants[0], self._instants[-1]
        step = next(step for step in _STEPS_MS if (last - first) / step * _TICK_CELLS <= CELLS)
        unit, size = ("ms", 1) if step < 1_000 else ("s", 1_000)
        ruler, free = [" "] * (CELLS + 8), 0
        # What is close to the beginning of the run counts as its beginning.
        start = 0 if first < step / 4 else -(-first // step) * step
        for t_ms in range(start, last + 1, step):
            text = f"{t_ms // size:,}{'' if free else f' {unit}'}"
            place = self.at(t_ms)
            if place >= free and (free == 0 or place < CELLS):
                ruler[place : place + len(text)] = text
                free = place + len(text) + 2
        return "".join(ruler).rstrip()


def lane_picture(
    history: History,
    messages: Sequence[str],
    screen: Screen,
    limits: Mapping[str, float],
    names: Mapping[str, str],
    *,
    bad: Collection[int] = (),
) -> list[list[Span]]:
    """Draw the life of a message, or of those that a rule is about together; nothing if none was ever received.

    `bad` are the events that break the rule.
    """
    rows = _rows(history, messages, names)
    shown, left_out = rows[:LANES_MAX], len(rows) - LANES_MAX
    if not shown:
        return []
    visibility_ms = round(limits.get("visibility_ms", 0))
    instants = {event.t_ms for row in shown for event in row.events}
    instants |= {_until(got, visibility_ms) for row in shown for got in _abandoned(row)}
    scale = _Scale(_apart(shown, instants))
    if not scale.fits:
        return []
    wide = max(cells(row.name) for row in shown)
    lines = [[Span(" " * (5 + wide)), Span(scale.ruler(), "dim")]]
    signal = next((event for row in shown for event in row.events if event.f == "signal"), None)
    if signal is not None:
        column = next(_cell(row, signal, scale) for row in shown if signal in row.events)
        lines.append([Span(" " * (5 + wide + column)), Span(harmless(signal.what or "SIGTERM"), "yellow")])
    first_call = min((event.i for row in shown for event in calls_of(row.events)), default=0)
    for row in shown:
        note = note_of(row.events, first_call)
        drawn = _lane(row, screen.signs, scale, visibility_ms, bad)
        lines.append([Span(f"    {harmless(row.name):<{wide}} "), *drawn, Span(f"  {note}" if note else "", "dim")])
    if left_out > 0:
        lines.append([Span(f"{' ' * (5 + wide)}and {left_out} more, in the report", "dim")])
    return lines


def _rows(history: History, messages: Sequence[str], names: Mapping[str, str]) -> list[_Row]:
    """Return a lane for each process that received one of the messages. The first has the send, the last a death."""
    rows = []
    for message in messages:
        events = [event for event in history.events if event.message == message and (event.f, event.type) in _MARKS]
        owners = list(dict.fromkeys(event.process for event in events if event.f == "receive"))
        for place, owner in enumerate(owners):
            own = [
                event
                for event in events
                if event.process == owner
                or (event.f == "send" and place == 0)
                or (event.f == "dead" and place == len(owners) - 1)
            ]
            own += _ending(history, owner, own)
            name = owner if len(messages) == 1 else f"{names.get(message, '')} {owner}"
            rows.append(_Row(name, tuple(sorted(own, key=lambda event: event.i))))
    return rows


def _ending(history: History, process: str, own: Sequence[Event]) -> list[Event]:
    """Return the signal that a process got with the message in hand, and its exit after that."""
    received = next(event for event in own if event.f == "receive")
    signal = next((e for e in history.events if e.f == "signal" and e.process == process and e.i > received.i), None)
    if signal is None:
        return []
    ended = [e for e in history.events if e.f == "exit" and e.process == process and e.i > signal.i]
    return [signal, *ended[:1]]


def _apart(rows: Sequence[_Row], instants: set[int]) -> list[int]:
    """Return the instants, as often as a lane has events in one of them."""
    often = dict.fromkeys(instants, 1)
    for row in rows:
        for t_ms in instants:
            often[t_ms] = max(often[t_ms], sum(event.t_ms == t_ms for event in row.events))
    return [t_ms for t_ms, times in sorted(often.items()) for _ in range(times)]


def _until(got: Event, visibility_ms: int) -> int:
    return got.until_ms if got.until_ms is not None else got.t_ms + visibility_ms


def _abandoned(row: _Row) -> list[Event]:
    """Return the receives whose lease runs on although its holder is gone."""
    return [got for got, later in _leases(row) if _stop(later) is not None and not _deletes(later)]


def _leases(row: _Row) -> list[tuple[Event, list[Event]]]:
    """Return each receive of a lane with what followed until the next one."""
    found: list[tuple[Event, list[Event]]] = []
    for event in row.events:
        if event.f == "receive":
            found.append((event, []))
        elif found:
            found[-1][1].append(event)
    return found


def _stop(later: Sequence[Event]) -> Event | None:
    return next((event for event in later if event.f == "crash" or (event.f == "exit" and event.code != 0)), None)


def _deletes(later: Sequence[Event]) -> list[Event]:
    return [event for event in later if event.f == "delete"]


def _lane(row: _Row, signs: Signs, scale: _Scale, visibility_ms: int, bad: Collection[int]) -> list[Span]:
    """Draw leases as lines and events as marks: a line is broken where its holder has no lease, or is gone."""
    drawn: list[Span] = [Span(" ")] * CELLS
    held, free, gone = ("=", "-", ".") if signs.ascii_only else ("━", "╌", "·")
    leases = _leases(row)
    for place, (got, later) in enumerate(leases):
        until_ms, stop, deletes = _until(got, visibility_ms), _stop(later), _deletes(later)
        following = leases[place + 1][0].t_ms if place + 1 < len(leases) else None
        last_ms = max((event.t_ms for event in later if event.f != "dead"), default=until_ms)
        if not deletes and (stop is not None or following is not None or (later[-1:] and later[-1].f == "dead")):
            last_ms = max(last_ms, until_ms if following is None else following)
        over_ms = min([until_ms, *(event.t_ms for event in deletes)])
        for cell in range(scale.at(got.t_ms), min(scale.at(last_ms), CELLS - 1) + 1):
            if got.type == "info" or (stop is not None and cell > scale.at(stop.t_ms)):
                drawn[cell] = Span(gone, "dim")
            elif cell <= scale.at(over_ms):
                drawn[cell] = Span(held, "cyan")
            else:
                drawn[cell] = Span(free, "dim")
    taken: set[int] = set()
    for event in row.events:
        cell = _cell(row, event, scale)
        while cell in taken and cell < CELLS - 1:
            cell += 1
        taken.add(cell)
        drawn[cell] = marks(signs, event, bad)
    return drawn


def _cell(row: _Row, event: Event, scale: _Scale) -> int:
    """Return where a mark stands. Events of one instant stand in the cells before that of the last one."""
    same = [other.i for other in row.events if other.t_ms == event.t_ms]
    return max(scale.at(event.t_ms) - (len(same) - 1 - same.index(event.i)), 0)
