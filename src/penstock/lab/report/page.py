"""The report of one run: what happened, the picture, the assertions and their witnesses, the knobs and the history."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import Evidence, lateness
from penstock.lab.report import tables
from penstock.lab.report.pictures import DRAWN
from penstock.lab.report.scene import Drawing, Key, Strip, message_names, scenes
from penstock.lab.report.style import BRAND, document
from penstock.lab.report.wording import LOOKS, OUTCOMES, VERDICT_LOOKS, code_in, instant, paragraphs, verdict_words
from penstock.lab.run import PICTURES

if TYPE_CHECKING:
    from penstock.lab.report.scene import Scene
    from penstock.lab.run import Run, Variant


def run_report(run: Run, *, index: str | None = "index.html", links: dict[str, str] | None = None) -> str:
    """Return the page of a run.

    `index` is the address of the index, and `links` those of other scenarios' reports, for the ways on in the head.
    """
    body = "\n".join(
        [
            _top(run, index, links or {}),
            '<main class="page report">',
            _head(run),
            f'<p class="lede tight">{escape(run.told)}</p>',
            _pictures(run),
            _section(
                "asserts",
                "Assertions",
                tables.assertions(run),
                aside="numbers lead to the first witness in the history; ? could not be checked",
            ),
            _why_and_history(run),
            _knobs(run),
            _again(run),
            "</main>",
        ]
    )
    return document(f"{escape(run.scenario)}: {run.outcome} · Penstock lab", body)


def _top(run: Run, index: str | None, links: dict[str, str]) -> str:
    order = list(PICTURES)
    ways = []
    if run.scenario in order:
        place = order.index(run.scenario)
        before = order[place - 1] if place else None
        after = order[place + 1] if place + 1 < len(order) else None
        if before in links:
            ways.append(f'← <a href="{escape(links[before or ""])}">{escape(before or "")}</a>')
        if after in links:
            ways.append(f'<a href="{escape(links[after or ""])}">{escape(after or "")}</a> →')
    around = f'<span class="q nb p2">{" &nbsp; ".join(ways)}</span>' if ways else ""
    every = f'<span class="q nb"><a href="{escape(index)}">all scenarios</a></span>' if index else ""
    name = f"{BRAND}Penstock lab"
    brand = f'<a class="brand" href="{escape(index)}">{name}</a>' if index else f'<span class="brand">{name}</span>'
    return f'<header class="top lab">{brand}<div class="tools">{every}{around}</div></header>'


def _head(run: Run) -> str:
    counts = {len(variant.history.events) for variant in run.variants}
    if len(counts) == 1:
        events = f"{counts.pop():,} events" + (" in each run" if run.broken else "")
    else:
        events = " and ".join(f"{len(variant.history.events):,}" for variant in run.variants) + " events"
    state = f'<span class="state {LOOKS[run.outcome]}">{OUTCOMES.get(run.outcome, run.outcome)}</span>'
    return (
        f'<div class="head"><h1>{escape(run.scenario)}</h1>{state}'
        f'<p class="note under">{code_in(run.rule)} Seed {run.seed} · {instant(run.started_ms)} · '
        f"{escape(run.backend)} · {events}</p></div>"
    )


def _pictures(run: Run) -> str:
    drawn = [(scene, DRAWN[run.picture](scene, thumb=False)) for scene in scenes(run)]
    figures = "".join(_figure(run, scene, drawing) for scene, drawing in drawn)
    keys: dict[str, Key] = {}
    for _, drawing in drawn:
        for key in drawing.keys:
            keys.setdefault(key.text, key)
    legend = f'<p class="marks">{"".join(_key(key) for key in keys.values())}</p>' if keys else ""
    return (
        '<section class="tight" aria-labelledby="pic"><h2 class="sr" id="pic">The picture</h2><div class="pair">'
        f"{figures}</div>{legend}</section>"
    )


def _figure(run: Run, scene: Scene, drawing: Drawing) -> str:
    variant = scene.variant
    look = VERDICT_LOOKS[variant.verdict]
    if variant.name == "broken" and variant.verdict == "held" and run.not_observed is None:
        look = "lost"
    words = verdict_words(variant, must_break=run.broke_as_it_must)
    if run.not_observed is not None and variant.verdict != "failed":
        look, words = "unknown", "not observed here"
    caption = (
        f'<figcaption class="verdict {look}"><b>{variant.name.capitalize()}: {words}</b>'
        f'<span class="aside">{escape(variant.setting)}</span><p>'
        f"{escape(variant.summary)}{_reason(variant)}</p></figcaption>"
    )
    title = ""
    if drawing.title:
        title = f'<p class="pic-head"><b>{escape(drawing.title)}</b> <span class="u">{escape(drawing.unit)}</span></p>'
    note = f'<p class="note pic-note">{escape(drawing.note)}</p>' if drawing.note else ""
    return f"<figure>{caption}{title}{_drawn(variant, drawing)}{_table(drawing)}{note}</figure>"


def _reason(variant: Variant) -> str:
    """Say which evidence is missing, or what failed where nothing was meant to."""
    verdict = variant.verdict
    if verdict == "held" or (verdict == "failed" and variant.name == "broken"):
        return ""
    check = next(check for check in variant.checks if check.verdict == verdict) if variant.checks else None
    return f". {escape(check.rule)}: {escape(check.sentence)}." if check else ". Nothing was checked."


def _drawn(variant: Variant, drawing: Drawing) -> str:
    shown, ids = tables.shown_events(variant), tables.prefix(variant)
    labelled = drawing.axis is not None or any(strip.label for strip in drawing.strips)
    if not labelled:
        return "".join(
            f'<div class="pic">{strip.canvas.svg(strip.alt, prefix=ids, shown=shown)}</div>' for strip in drawing.strips
        )
    wide = " wide" if any(len(strip.label) > 3 or len(strip.end) > 8 for strip in drawing.strips) else ""
    axis = ""
    if drawing.axis is not None:
        inner = drawing.axis.svg("").replace(' role="img" aria-label=""', "")
        axis = f'<li class="lane axis-row" aria-hidden="true"><span></span>{inner}<span></span></li>'
    lanes = "".join(_lane(strip, ids, shown) for strip in drawing.strips)
    return f'<ol class="lanes msg pic{wide}">{axis}{lanes}</ol>'


def _lane(strip: Strip, ids: str, shown: frozenset[int]) -> str:
    end = f'<b class="hot dead">{escape(strip.end)}</b>' if strip.bad else escape(strip.end)
    svg = strip.canvas.svg(strip.alt, prefix=ids, shown=shown)
    return f'<li class="lane"><span><b>{escape(strip.label)}</b></span>{svg}<span>{end}</span></li>'


def _table(drawing: Drawing) -> str:
    if not drawing.head:
        return ""
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in drawing.head)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in drawing.rows)
    return (
        f'<div class="sr"><table><caption>{escape(drawing.title)}</caption><thead><tr>{heads}</tr></thead><tbody>'
        f"{rows}</tbody></table></div>"
    )


def _key(key: Key) -> str:
    look, dash = key.look.replace(" dash", ""), " dash" if "dash" in key.look else ""
    if key.mark is not None:
        drawn = f'<svg aria-hidden="true"><use href="#m-{key.mark}"/></svg>'
    elif key.field:
        drawn = (
            '<svg viewBox="0 0 14 14" aria-hidden="true"><rect class="box" x="2" y="2" width="10" height="10" '
            'rx="1.5"/></svg>'
        )
    elif look == "late" and not dash:
        drawn = (
            '<svg viewBox="0 0 14 14" aria-hidden="true"><line class="late-work" x1="0" x2="14" y1="7" y2="7"/></svg>'
        )
    else:
        drawn = f'<svg viewBox="0 0 14 14" aria-hidden="true"><path class="ln{dash}" d="M0 7h14"/></svg>'
    return (
        f'<span class="{look}">{drawn}{escape(key.text)}</span>' if look else f"<span>{drawn}{escape(key.text)}</span>"
    )


def _section(name: str, title: str, inner: str, *, aside: str = "", small: str = "", span: str = "") -> str:
    said = f'<span class="aside">{escape(aside)}</span>' if aside else ""
    little = f" <small>{small}</small>" if small else ""
    look = f' class="{span}"' if span else ""
    return (
        f'<section{look} aria-labelledby="{name}"><div class="sect"><h2 id="{name}">{title}{little}</h2>'
        f"{said}</div>{inner}</section>"
    )


def _why_and_history(run: Run) -> str:
    """Show the smallest set of events that breaks a rule: one that must hold, or else the one that must break."""
    variant, check = run.protected, next((c for c in run.protected.checks if c.verdict == "failed"), None)
    title = "Why it failed"
    if check is None and run.broken is not None:
        title, variant = "Why it broke", run.broken
        named = run.broken.check(run.breaks)
        check = (
            named
            if named is not None and named.verdict == "failed"
            else next((c for c in run.broken.checks if c.verdict == "failed"), None)
        )
    late = {one.name: _late(run, one) for one in run.variants}
    if check is None or not check.witness:
        inner = "".join(tables.history(one, late=late[one.name]) for one in reversed(run.variants))
        said = f'<p class="note">{escape(check.sentence)}.</p>' if check else ""
        return _section("why", "History" if check is None else title, said + inner)
    table, shown = tables.why(variant, check, late=late[variant.name])
    name = next((event for event in variant.history.events if event.i == check.witness[-1]), None)
    names = message_names(variant)
    about = f", on {escape(names.get(check.message, check.message))}" if check.message and name is not None else ""
    small = (
        f"the smallest set of events that breaks the rule: {len(check.witness)} of "
        f"{len(variant.history.events):,}{about}"
    )
    said = f'<p class="note">{escape(check.rule)}: {escape(check.sentence)}.</p>'
    others = "".join(
        tables.history(one, late=late[one.name], leave_out=shown if one is variant else ())
        for one in reversed(run.variants)
    )
    return _section("why", title, said + table + others, small=small)


def _late(run: Run, variant: Variant) -> dict[int, int]:
    return lateness(Evidence(events=variant.history.events), visibility_ms=run.visibility_ms)


def _knobs(run: Run) -> str:
    tried = f'<p class="note gap-top"><b>Try this:</b> {code_in(run.try_this)}</p>' if run.try_this else ""
    guide = (
        f'<h3 class="gap-top">Why, and what to do about it</h3><div class="guide note">{paragraphs(run.guide)}</div>'
        if run.guide
        else ""
    )
    aside = "the marked one is the difference" if run.broken is not None else ""
    return _section("knobs", "Knobs", tables.knobs(run) + tried + guide, aside=aside, span="c7")


def _again(run: Run) -> str:
    commands = "".join(
        f'<div class="cmd"><pre tabindex="0" aria-label="Command {place}"><span class="p">$ </span>'
        f"{escape(command)}</pre></div>"
        for place, command in enumerate(run.commands, 1)
    )
    versions = " · ".join(f"{escape(name)} {escape(version)}" for name, version in run.versions.items())
    ran = f'<p class="note gap-top">Ran on {escape(run.endpoint)} in {run.duration_ms / 1_000:,.1f} s. {versions}</p>'
    differs = " ".join(text for text in (run.not_observed, run.difference) if text)
    more = (
        f'<h2 class="gap-top">What this endpoint does differently</h2><p class="note">{escape(differs)}</p>'
        if differs
        else ""
    )
    return _section("again", "Run it again", commands + more + ran, span="c5")
