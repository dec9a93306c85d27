"""The tables of a report: assertions, witnesses, histories and knobs."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from penstock.lab.report.scene import message_names
from penstock.lab.report.wording import TYPE_LOOKS, VERDICT_LOOKS, what

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from penstock.lab.checkers.evidence import Check
    from penstock.lab.history import Event
    from penstock.lab.run import Run, Variant

ROWS_MAX = 500
"""How many events of a variant a report shows, beside all witnesses."""
WITNESSES_MAX = 8
AROUND_MAX = 20
"""How many events of the witnessed message stand around the witnesses."""
WITNESS_ROWS_MAX = 60
WHAT_MAX = 240

_HEAD = (
    '<thead><tr><th scope="col" class="n">#</th><th scope="col" class="n">t, ms</th><th scope="col">who</th>'
    '<th scope="col" class="p2">type</th><th scope="col">event</th><th scope="col">message</th>'
    '<th scope="col" class="n p2">count</th><th scope="col">what</th></tr></thead>'
)


def prefix(variant: Variant) -> str:
    """Return what the ids of a variant's events begin with."""
    return variant.name[0]


def shown_events(variant: Variant) -> frozenset[int]:
    """Return which events have a row in the page: the first ones, and every witness."""
    first = {event.i for event in variant.history.events[:ROWS_MAX]}
    return frozenset(first | {i for check in variant.checks for i in check.witness})


def assertions(run: Run) -> str:
    """Write the table of all checks, with the variants side by side."""
    heads = "".join(f'<th scope="col">{variant.name}</th>' for variant in run.variants)
    rows = []
    names = list(dict.fromkeys(check.name for variant in run.variants for check in variant.checks))
    for name in names:
        checks = [(variant, variant.check(name)) for variant in run.variants]
        rule = next(check.rule for _, check in checks if check is not None)
        cells = "".join(_assertion(variant, check) for variant, check in checks)
        rows.append(f'<tr><th scope="row" class="wrap">{escape(rule)}</th>{cells}</tr>')
    body = "\n".join(rows)
    table = f'<table><thead><tr><th scope="col">it must be that</th>{heads}</tr></thead><tbody>{body}</tbody></table>'
    return _scroll("Assertions table", table)


def _assertion(variant: Variant, check: Check | None) -> str:
    if check is None:
        return '<td class="wrap"><span class="u">–</span></td>'
    links = " ".join(f'<a class="wit" href="#{prefix(variant)}{i}">#{i}</a>' for i in check.witness[:WITNESSES_MAX])
    more = (
        f' <span class="u">+{len(check.witness) - WITNESSES_MAX}</span>' if len(check.witness) > WITNESSES_MAX else ""
    )
    witnesses = f' <span class="wits">{links}{more}</span>' if links else ""
    return (
        f'<td class="wrap"><span class="state {VERDICT_LOOKS[check.verdict]}" title="{escape(check.sentence)}">'
        f'{escape(check.figure)}<span class="sr">, {check.verdict}: {escape(check.sentence)}</span></span>'
        f"{witnesses}</td>"
    )


def why(variant: Variant, check: Check, *, late: Mapping[int, int]) -> tuple[str, frozenset[int]]:
    """Write the events of the witnessed message with the witnesses marked, and say which events that are.

    `late` are the events that came after the end of a lease, and how many ms after it.
    """
    events = variant.history.events
    proof = [event for event in events if event.i in check.witness]
    about = [
        event for event in events if event.i in check.witness or (check.message and event.message == check.message)
    ]
    if len(about) > AROUND_MAX:
        about = [event for event in about if proof[0].i <= event.i <= proof[-1].i]
    if len(about) > AROUND_MAX:
        about = proof[:WITNESS_ROWS_MAX]
    names = message_names(variant)
    rows = "\n".join(_row(variant, names, late, event, witness=event.i in check.witness) for event in about)
    table = f'<table class="compact">{_HEAD}<tbody>{rows}</tbody></table>'
    return _scroll(f"Witness, {variant.name} run", table), frozenset(event.i for event in about)


def history(variant: Variant, *, late: Mapping[int, int], leave_out: Collection[int] = ()) -> str:
    """Write the history, folded, without what stands elsewhere in the page, and bounded in length."""
    shown = shown_events(variant)
    events = [event for event in variant.history.events if event.i in shown and event.i not in leave_out]
    total = len(variant.history.events)
    other = "other " if leave_out else ""
    named = f"The {other}{total - len(leave_out):,} events of the {variant.name} run"
    names = message_names(variant)
    rows = "\n".join(_rows(variant, names, late, events))
    note = ""
    if total > len(shown):
        note = f'<p class="more">{len(shown):,} of {total:,} events: the first {ROWS_MAX} and every witness.'
    if variant.history_file is not None:
        link = f'<a href="{escape(variant.history_file)}">{escape(variant.history_file)}</a>'
        note = f"{note or chr(60) + 'p class=' + chr(34) + 'more' + chr(34) + '>'} The whole history is in {link}."
    note = f"{note}</p>" if note else ""
    table = f'<table class="compact">{_HEAD}<tbody>{rows}</tbody></table>'
    return f"<details><summary>{named}</summary>{note}{_scroll(f'History, {variant.name} run', table)}</details>"


def _rows(variant: Variant, names: dict[str, str], late: Mapping[int, int], events: Iterable[Event]) -> Iterable[str]:
    witnesses = {i for check in variant.checks if check.verdict == "failed" for i in check.witness}
    for event in events:
        yield _row(variant, names, late, event, witness=event.i in witnesses)


def _row(variant: Variant, names: dict[str, str], late: Mapping[int, int], event: Event, *, witness: bool) -> str:
    message = event.message
    name = (
        f'<span title="{escape(message)}">{escape(names.get(message, message))}</span>'
        if message
        else '<span class="u">–</span>'
    )
    count = f"{event.count}" if event.count is not None else '<span class="u">–</span>'
    mark = ' class="wit-row"' if witness else ""
    return (
        f'<tr id="{prefix(variant)}{event.i}"{mark}><td class="n u">{event.i:,}</td><td class="n">{event.t_ms:,}</td>'
        f'<td>{escape(event.process)}</td><td class="p2"><span class="state {TYPE_LOOKS[event.type]}">'
        f"{event.type}</span></td>"
        f'<td class="mono">{event.f}</td><td>{name}</td><td class="n p2">{count}</td>'
        f'<td class="q wrap">{escape(_cut(what(event, late.get(event.i))))}</td></tr>'
    )


def _cut(text: str) -> str:
    return text if len(text) <= WHAT_MAX else text[: WHAT_MAX - 1] + "…"


def knobs(run: Run) -> str:
    """Write how both variants were set; what differs is marked."""
    rows = []
    for knob in run.knobs:
        differs = run.broken is not None and knob.protected != knob.broken
        cells = [knob.broken if variant.name == "broken" else knob.protected for variant in run.variants]
        written = "".join(f'<td class="n">{f"<b>{escape(c)}</b>" if differs else escape(c)}</td>' for c in cells)
        mark = ' class="knob"' if differs else ""
        rows.append(
            f'<tr{mark}><th scope="row" class="mono nb">{escape(knob.name)}</th>{written}<td class="q wrap">'
            f"{escape(knob.does)}</td></tr>"
        )
    heads = "".join(f'<th scope="col" class="n">{variant.name}</th>' for variant in run.variants)
    table = (
        f'<table class="compact"><thead><tr><th scope="col">knob</th>{heads}<th scope="col">what it does</th>'
        "</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    return _scroll("Knobs table", table)


def _scroll(label: str, table: str) -> str:
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>'
