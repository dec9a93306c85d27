"""Words and numbers as reports write them, escaped where they come from a run."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import seconds

if TYPE_CHECKING:
    from penstock.lab.history import Event
    from penstock.lab.run import Outcome, Variant

LOOKS: dict[Outcome, str] = {
    "holds": "done",
    "fails": "lost",
    "unknown": "unknown",
    "not observed": "unknown",
    "breaks": "lost",
}
OUTCOMES: dict[Outcome, str] = {"not observed": "not observed here", "breaks": "breaks, as it must"}
"""How a page says what it is not enough to name."""
VERDICT_LOOKS = {"held": "done", "failed": "lost", "unknown": "unknown"}
TYPE_LOOKS = {"ok": "done", "fail": "lost", "info": "unknown", "invoke": "offered"}
DONE = {"send": "stored", "delete": "deleted", "dead": "in the dead-letter queue"}


def instant(ms: int, *, short: bool = False) -> str:
    """Write an instant as a person reads it, with the exact one in the title."""
    moment = datetime.fromtimestamp(ms / 1_000, UTC)
    words = f"{moment.day} {moment:%b, %H:%M}" if short else f"{moment.day} {moment:%b %Y, %H:%M} UTC"
    return f'<time title="{moment:%Y-%m-%d %H:%M:%S} UTC">{words}</time>'


def took(ms: int) -> str:
    """Write how long something took, with its unit."""
    return f"{ms / 1_000:,.1f}"


def verdict_words(variant: Variant, *, must_break: bool) -> str:
    """Say what became of a variant: `holds`, or for the broken one `breaks, as it must`."""
    if variant.name == "protected":
        return {"held": "holds", "failed": "fails", "unknown": "unknown"}[variant.verdict]
    if must_break:
        return "breaks, as it must"
    return {"held": "does not break, but must", "failed": "breaks in another rule", "unknown": "unknown"}[
        variant.verdict
    ]


def what(event: Event, late_ms: int | None = None) -> str:
    """Say in a few words what an event adds to its columns; `late_ms` is how long after the lease it came."""
    said = [event.what] if event.what else _facts(event)
    if late_ms is not None:
        said.append(f"{seconds(late_ms)} after its lease ended")
    return ", ".join(said) or "–"


def _facts(event: Event) -> list[str]:
    said = [DONE[event.f]] if event.f in DONE and event.type == "ok" else []
    if event.fault:
        said.append(event.fault)
    if event.f == "receive":
        if (event.count or 1) > 1:
            said.append("received again")
        if event.until_ms is not None:
            said.append(f"lease until {event.until_ms:,} ms")
    if event.f == "extend" and event.type == "ok" and event.until_ms is not None:
        ended = event.until_ms <= event.t_ms
        said.append("back in the queue at once" if ended else f"hidden until {event.until_ms:,} ms")
    return said + [
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in (
            ("order", event.key),
            ("group", event.group),
            ("sequence", event.sequence),
            ("tenant", event.tenant),
            ("version", event.version),
            ("step", event.step),
            ("exit", event.code),
            ("try", event.attempt),
            ("depth", event.depth),
            ("in flight", event.in_flight),
            ("consumers", event.consumers),
        )
        if value is not None
    ]


def paragraphs(text: str) -> str:
    """Write plain text as paragraphs; a blank line divides them."""
    return "".join(f"<p>{escape(' '.join(part.split()))}</p>" for part in text.split("\n\n") if part.strip())


def code_in(text: str) -> str:
    """Escape a sentence and set what stands between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
