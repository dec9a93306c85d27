"""Histories written by hand: who did what, and when."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock.lab.checkers.evidence import Call, Evidence, Left
from penstock.lab.history import Event, Header, History

LEASE_MS = 10_000


class Script:
    """Collects events in any order, and sorts them by time. The ledger is what had an effect, unless it is given."""

    def __init__(
        self, scenario: str, variant: Literal["protected", "broken"] = "protected", *, lease_ms: int = LEASE_MS
    ) -> None:
        self.header = Header(
            seed=7,
            scenario=scenario,
            variant=variant,
            endpoint="this server",
            versions={"penstock": "0.9.0"},
            knobs={"visibility_ms": lease_ms},
        )
        self.broken = variant == "broken"
        self.lease_ms = lease_ms
        self._events: list[dict[str, Any]] = []
        self.left: Left | None = Left(count=0, messages=())
        self.dead: Left | None = Left(count=0, messages=())
        self.state: dict[str, int] | None = None
        self.ledger: tuple[Call, ...] | None = None

    def at(self, t_ms: int, process: str, f: str, type: str = "ok", message: str | None = None, **fields: Any) -> None:  # noqa: A002
        """Write that something happened."""
        if message is not None:
            fields.setdefault("body_id", message)
        self._events.append({"t_ms": t_ms, "process": process, "f": f, "type": type, **fields})

    def send(self, t_ms: int, message: str, **fields: Any) -> None:
        fields.setdefault("message_id", f"q-{message}")
        self.at(t_ms, "producer", "send", message=message, **fields)

    def receive(self, t_ms: int, process: str, message: str, count: int = 1, **fields: Any) -> None:
        fields.setdefault("until_ms", t_ms + self.lease_ms)
        fields.setdefault("receipt", f"{message}.{count}.{process}")
        fields.setdefault("message_id", f"q-{message}")
        self.at(t_ms, process, "receive", message=message, count=count, **fields)

    def work(self, t_ms: int, process: str, message: str, count: int = 1, *, for_ms: int = 400, **fields: Any) -> None:
        """Write a receive, its effect and its delete."""
        self.receive(t_ms, process, message, count, **fields)
        self.at(t_ms + for_ms, process, "effect", message=message, what="call written", **fields)
        self.at(t_ms + for_ms + 60, process, "delete", message=message, receipt=f"{message}.{count}.{process}")

    @property
    def history(self) -> History:
        ordered = sorted(enumerate(self._events), key=lambda pair: (pair[1]["t_ms"], pair[0]))
        events = [
            msgspec.convert({"i": place, "mono_ns": place * 1_000, **fields}, Event)
            for place, (_, fields) in enumerate(ordered, 1)
        ]
        return History(header=self.header, events=tuple(events))

    @property
    def evidence(self) -> Evidence:
        events = self.history.events
        ledger = self.ledger
        if ledger is None:
            ledger = tuple(
                Call(message=event.message or "", t_ms=event.t_ms, process=event.process, key=event.key)
                for event in events
                if event.f == "effect" and event.type == "ok"
            )
        return Evidence(events=events, ledger=ledger, left=self.left, dead=self.dead, state=self.state)
