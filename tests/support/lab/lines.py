"""Histories in lines, for tables of cases: `350 A receive m1 count=1`, `400 A effect:fail m1`."""

from __future__ import annotations

import msgspec

from penstock.lab.checkers.evidence import Call, Evidence, Left
from penstock.lab.history import Event


def events(text: str) -> tuple[Event, ...]:
    """Read one event from each line: time, process, operation with its type unless it is ok, message, fields."""
    found = []
    for place, line in enumerate((line for line in text.splitlines() if line.strip()), 1):
        t_ms, process, what, *rest = line.split()
        f, _, outcome = what.partition(":")
        message = rest.pop(0) if rest and "=" not in rest[0] else None
        fields = {"body_id": message} if message not in {None, "-"} else {}
        fields |= dict(one.split("=", 1) for one in rest)
        fixed = {"i": place, "t_ms": t_ms, "mono_ns": place, "process": process, "f": f, "type": outcome or "ok"}
        found.append(msgspec.convert({**fixed, **fields}, Event, strict=False))
    return tuple(found)


def evidence(
    text: str,
    *,
    ledger: str | None = "effects",
    left: tuple[str, ...] | None = (),
    dead: tuple[str, ...] | None = (),
    state: dict[str, int] | None = None,
) -> Evidence:
    """Read events, and take the ledger from the effects, from these messages, or from nowhere."""
    seen = events(text)
    calls: tuple[Call, ...] | None = None
    if ledger == "effects":
        calls = tuple(
            Call(message=event.message or "", t_ms=event.t_ms, process=event.process, key=event.key)
            for event in seen
            if event.f == "effect" and event.type == "ok"
        )
    elif ledger is not None:
        calls = tuple(Call(message=name, t_ms=0, process="A") for name in ledger.split())
    return Evidence(
        events=seen,
        ledger=calls,
        left=None if left is None else Left(count=len(left), messages=left),
        dead=None if dead is None else Left(count=len(dead), messages=dead),
        state=state,
    )
