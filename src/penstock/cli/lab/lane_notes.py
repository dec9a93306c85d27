"""What a lane in a terminal shows, in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.lab.history import Event


def calls_of(events: Iterable[Event]) -> list[Event]:
    """Return the calls among events."""
    return [event for event in events if event.f in {"effect", "apply"} and event.type == "ok"]


def note_of(events: Sequence[Event], first_call: int) -> str:
    """Say what is remarkable about a lane; `first_call` is the first call of all lanes."""
    calls = calls_of(events)
    again = bool(calls) and calls[0].i > first_call
    crash = next((event for event in events if event.f == "crash"), None)
    ended = next((event for event in events if event.f == "exit"), None)
    if crash is not None:
        note = _of_crash(events, crash, calls, again=again)
    elif any(event.f == "receive" and event.type == "info" for event in events):
        note = "the answer is lost, it lies hidden"
    elif ended is not None:
        note = f"exit {ended.code}" + ("" if ended.code == 0 else ", its work is cut off")
    else:
        note = _of_work(events, calls, again=again)
    return note


def _of_work(events: Sequence[Event], calls: Sequence[Event], *, again: bool) -> str:
    first, *more = (event for event in events if event.f == "receive")
    if more:
        often = "twice" if len(more) == 1 else f"{len(more) + 1} times"
        return f"{'done, but ' if calls else ''}received {often}"
    if (first.count or 1) > 1:
        return "gets it again, calls again" if calls and again else "gets it again"
    if not calls:
        refused = any(event.f in {"effect", "apply"} and event.type == "fail" for event in events)
        return "the call is refused" if refused else ""
    if again:
        return "the second call"
    if first.until_ms is not None and calls[0].t_ms > first.until_ms:
        return "works on without a lease"
    return "" if any(event.f == "delete" for event in events) else "done, but not deleted"


def _of_crash(events: Sequence[Event], crash: Event, calls: Sequence[Event], *, again: bool) -> str:
    if any(event.f == "delete" and event.i < crash.i for event in events):
        return "deletes it, then crashes"
    if calls:
        return f"calls{' again' if again else ''}, then crashes"
    return "crashes" if crash.step is None else f"crashes before step {crash.step}"
