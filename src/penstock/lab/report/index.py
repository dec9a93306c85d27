"""The index of all runs: what fails first, then what was not observed, then the rest as the documentation has them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import msgspec

from penstock.lab.report.pictures import DRAWN
from penstock.lab.report.pictures.lanes import KEYS
from penstock.lab.report.scene import scenes
from penstock.lab.report.style import BRAND, document
from penstock.lab.report.svg import Shape, thumb_svg
from penstock.lab.report.wording import LOOKS, OUTCOMES, code_in, instant, took
from penstock.lab.run import PICTURES, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.lab.run import Run

_RANKS: dict[Outcome, int] = {"fails": 0, "breaks": 1, "unknown": 2, "not observed": 3, "holds": 4}
_KEYS = ("send", "lease", "effect", "refused", "crash", "again", "delete", "dead")


class Thumb(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A small picture as data, so that an index can be made of runs that were kept in files."""

    shapes: tuple[Shape, ...]
    alt: str


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the index shows of a run."""

    scenario: str
    rule: str
    found: str
    outcome: Outcome
    href: str
    thumbs: tuple[Thumb, ...]
    """The protected variant's, then the broken one's if there was one."""
    endpoint: str
    backend: str
    seed: int
    started_ms: int
    duration_ms: int


def summary_of(run: Run, href: str) -> RunSummary:
    """Keep what the index needs of a run whose report is at `href`."""
    thumbs = []
    for scene in scenes(run):
        strips = DRAWN[run.picture](scene, thumb=True).strips
        shapes = [shape for strip in strips[:1] for shape in strip.canvas.shapes]
        alt = " ".join(strip.alt for strip in strips[:1])
        thumbs.append(Thumb(shapes=tuple(shapes), alt=alt))
    return RunSummary(
        scenario=run.scenario,
        rule=run.rule,
        found=run.not_observed or run.found,
        outcome=run.outcome,
        href=href,
        thumbs=tuple(thumbs),
        endpoint=run.endpoint,
        backend=run.backend,
        seed=run.seed,
        started_ms=run.started_ms,
        duration_ms=run.duration_ms,
    )


def index_report(summaries: Sequence[RunSummary]) -> str:
    """Return the page of all runs."""
    order = {name: place for place, name in enumerate(PICTURES)}
    ranked = sorted(summaries, key=lambda one: (_RANKS[one.outcome], order.get(one.scenario, len(order)), one.scenario))
    rows = "\n".join(_row(summary) for summary in ranked)
    head = (
        f'<header class="top"><span class="brand">{BRAND}Penstock lab</span></header><main class="page">'
        f'<div class="head"><h1>Lab <small>{_scenarios(len(summaries))} of how queues fail</small></h1></div>'
    )
    if not summaries:
        empty = '<p class="empty"><b>No runs yet.</b> Run one: <code>penstock lab run happy</code></p>'
        return document("Lab · Penstock", f"{head}{empty}</main>")
    columns = (
        '<div class="scen cols" aria-hidden="true"><span>scenario</span><span>it must be that</span><span>'
        "protected</span>"
        '<span>broken, which must break</span><span class="when">took</span></div>'
    )
    body = (
        f'{head}<section class="tight" aria-label="Summary">{_figures(summaries)}</section>'
        f'<section class="tight" aria-label="Scenarios">{columns}<ol>{rows}</ol>{_legend()}</section></main>'
    )
    return document("Lab · Penstock", body)


def _scenarios(count: int) -> str:
    return f"{count} scenario{'' if count == 1 else 's'}"


def _figures(summaries: Sequence[RunSummary]) -> str:
    counts = {outcome: sum(one.outcome == outcome for one in summaries) for outcome in _RANKS}
    last = max(summaries, key=lambda one: one.started_ms)
    seeds = {one.seed for one in summaries}
    endpoints = {one.endpoint for one in summaries}
    total_ms = sum(one.duration_ms for one in summaries)
    cells = []
    failing = f'<span class="hot dead">{counts["fails"]}</span>' if counts["fails"] else "0"
    cells.append(_figure('<span class="state lost">Fails</span>', failing, "protected broke, or broken held"))
    if counts["unknown"]:
        cells.append(
            _figure('<span class="state unknown">Unknown</span>', f"{counts['unknown']}", "evidence is missing")
        )
    cells.append(
        _figure(
            '<span class="state unknown">Not observed here</span>',
            f"{counts['not observed']}",
            "this endpoint cannot show it",
        )
    )
    cells.append(_figure('<span class="state done">Holds</span>', f"{counts['holds']}", "and breaks when it must"))
    seed = f"seed {seeds.pop()}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    cells.append(_figure("Last run", instant(last.started_ms, short=True), f"{took(total_ms)} s in all, {seed}"))
    where = escape(endpoints.pop()) if len(endpoints) == 1 else f"{len(endpoints)} endpoints"
    cells.append(_figure("Endpoint", where, escape(last.backend)))
    return f'<dl class="figures small">{"".join(cells)}</dl>'


def _figure(name: str, value: str, sub: str) -> str:
    return f'<div><dt>{name}</dt><dd>{value}</dd><dd class="sub">{sub}</dd></div>'


def _row(summary: RunSummary) -> str:
    words = OUTCOMES.get(summary.outcome, summary.outcome)
    thumbs = [f"<div>{thumb_svg(thumb.shapes, thumb.alt)}</div>" for thumb in summary.thumbs[:2]]
    thumbs += ["<div></div>"] * (2 - len(thumbs))
    return (
        f'<li class="scen"><div><h2><a href="{escape(summary.href)}">{escape(summary.scenario)}</a></h2>'
        f'<span class="state {LOOKS[summary.outcome]}">{words}</span></div>'
        f"<p>{code_in(summary.rule)}<small>{escape(summary.found)}</small></p>{''.join(thumbs)}"
        f'<span class="when">{took(summary.duration_ms)} <span class="u">s</span></span></li>'
    )


def _legend() -> str:
    keys = {key.mark: key for key in reversed(KEYS) if key.mark}
    parts = []
    for mark in _KEYS:
        key = keys[mark]
        look = f' class="{key.look}"' if key.look else ""
        text = {"lease": "lease", "refused": "refused", "delete": "delete"}.get(mark, key.text)
        parts.append(f'<span{look}><svg aria-hidden="true"><use href="#m-{mark}"/></svg>{escape(text)}</span>')
    return f'<p class="marks">{"".join(parts)}</p>'
