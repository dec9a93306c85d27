"""What became of a scenario, for people: both variants, the smallest set of events that breaks the rule, and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.cli.lab.lanes import lane_picture, marks
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.signs import Signs
from penstock.cli.terminal.text import Line, Span, Style, cells, harmless, wrap
from penstock.cli.terminal.values import count, duration
from penstock.lab.checkers.evidence import Check, Evidence, lateness
from penstock.lab.history import Event
from penstock.lab.report.scene import message_names
from penstock.lab.report.wording import LOOKS, what
from penstock.lab.run import Run, Variant
from penstock.lab.scenario import Scenario

_INDENT = "  "
_WITNESS_MAX = 12
_LABEL = len("  differs ")


def heading(screen: Screen, scenario: Scenario, place: str, backend: str, seed: int) -> list[list[Span]]:
    """Say what is run, and where."""
    margin = len(scenario.name) + 2
    rule = wrap([Span(harmless(scenario.rule))], screen.width - margin)
    lines = [[Span(" " * margin), *line] for line in rule]
    lines[0] = [Span(scenario.name, "bold"), Span("  "), *rule[0]]
    return [*lines, [Span(" " * margin), Span(harmless(f"{place}, {backend}, seed {seed}"), "dim")]]


def verdict(screen: Screen, run: Run) -> list[list[Span]]:
    """Lay out the verdict on each variant, why it broke or failed, and the story."""
    lines: list[list[Span]] = [[]]
    words = [_words(run, variant) for variant in run.variants]
    wide = max(cells(text) for _, text in words) + 4
    figures = _aligned([variant.summary for variant in run.variants])
    for variant, (state, text), counted in zip(run.variants, words, figures, strict=True):
        gap = " " * (wide - cells(text))
        lines.append([Span(_INDENT), screen.signs.of(state), Span(f" {text}{gap}{harmless(counted)}")])
        if (check := _decisive(run, variant)) is not None:
            style: Style = "red" if check.verdict == "failed" else ""
            lines += [
                [Span(_INDENT * 2), *line]
                for line in wrap(
                    [Span(f"{harmless(check.rule)}: "), Span(harmless(check.sentence), style)], screen.width - 4
                )
            ]
    explained = next((one for one in run.variants if _failing(run, one)), None)
    if explained is not None and (check := _decisive(run, explained)) is not None and check.witness:
        lines += [[], *_why(screen, run, explained, check)]
    lines.append([])
    lines += wrap([Span(harmless(run.told))], screen.width)
    return lines


def conclusion(
    screen: Screen, run: Run, scenario: Scenario, report: str, *, took_s: float, index: str = ""
) -> list[list[Span]]:
    """Say in one line whether all is as it must be, where the report is, and what to run next."""
    good, text = _conclusion(run)
    state = "done" if good else LOOKS[run.outcome]
    lines: list[list[Span]] = [
        [],
        [screen.signs.of(state), Span(f" {text} "), Span(duration(took_s), "dim")],
    ]
    if run.difference:
        rows = wrap([Span(harmless(run.difference))], screen.width - _LABEL)
        lines += [[Span("  "), Span("differs", "dim"), Span(" "), *rows[0]]]
        lines += [[Span(" " * _LABEL), *row] for row in rows[1:]]
    lines.append([Span("  "), Span("report", "dim"), Span(f"  {harmless(report)}{index}")])
    # Whoever has turned a knob has tried something already.
    fresh = good and not any(knob.turned for knob in run.knobs)
    label, command = ("try    ", scenario.try_command) if fresh else ("again  ", run.commands[0])
    if command:
        lines.append([Span("  "), Span(label, "dim"), Span(f" {harmless(command)}")])
    return lines


def exit_is_good(run: Run) -> bool:
    """Return whether a run lets the command exit with 0."""
    return _conclusion(run)[0]


def failing_check(run: Run) -> Check | None:
    """Return the check to name where a scenario failed."""
    for variant in run.variants:
        if (check := _decisive(run, variant)) is not None and (variant.name == "protected" or not run.broke_as_it_must):
            return check
    return None


def _conclusion(run: Run) -> tuple[bool, str]:
    match run.outcome:
        case "breaks":
            return False, "The broken variant breaks, as it must."
        case "holds":
            return True, "Both variants behave as they must." if run.broken else "The protected variant holds."
        case "not observed":
            return True, "Not observed here."
        case "unknown":
            return False, "The verdict is unknown: evidence is missing."
    if run.protected.verdict == "failed" and not run.broken_alone:
        return False, "The protected variant must hold, but fails."
    return False, "The broken variant must break, but does not."


def _words(run: Run, variant: Variant) -> tuple[str, str]:
    if variant.name == "protected":
        held = {"held": ("done", "holds"), "failed": ("lost", "fails"), "unknown": ("unknown", "unknown")}
        state, word = held[variant.verdict]
        if run.not_observed is not None and state != "lost":
            state, word = "unknown", "not observed"
        return state, f"protected {word}"
    check = variant.check(run.breaks)
    if check is not None and check.verdict == "failed":
        return "lost", "broken breaks, as it must"
    if run.not_observed is not None:
        return "unknown", "broken not observed"
    return "unknown" if variant.verdict == "unknown" else "behind", "broken does not break, but must"


def _failing(run: Run, variant: Variant) -> bool:
    check = _decisive(run, variant)
    return check is not None and check.verdict == "failed"


def _decisive(run: Run, variant: Variant) -> Check | None:
    """Return the check that says most: of the broken variant the named one, of the protected the first that fails."""
    if variant.name == "broken":
        named = variant.check(run.breaks)
        return named if named is not None and (named.verdict == "failed" or run.not_observed is None) else None
    for verdict_ in ("failed", "unknown"):
        found = next((check for check in variant.checks if check.verdict == verdict_), None)
        if found is not None:
            return found
    return None


def _aligned(summaries: Sequence[str]) -> list[str]:
    """Align the numbers of both variants under each other, where they count the same."""
    tables = [[part.split(" ", 1) for part in summary.split(", ")] for summary in summaries]
    if len({tuple(len(part) for part in parts) for parts in tables}) != 1 or any(
        len(p) != 2 for t in tables for p in t
    ):
        return list(summaries)
    columns = range(len(tables[0]))
    numbers = [max(len(parts[column][0]) for parts in tables) for column in columns]
    nouns = [max(len(parts[column][1]) for parts in tables) for column in columns]
    lines = []
    for parts in tables:
        written = [
            f"{number:>{numbers[column]}} {f'{noun},':<{nouns[column] + 1}}"
            for column, (number, noun) in enumerate(parts)
        ]
        lines.append(" ".join(written).rstrip().removesuffix(","))
    return lines


def _why(screen: Screen, run: Run, variant: Variant, check: Check) -> list[list[Span]]:
    """Lay out the smallest set of events that breaks the rule, and its picture."""
    events = variant.history.events
    witness = [events[place - 1] for place in check.witness][:_WITNESS_MAX]
    names = message_names(variant)
    on = f", on {names[check.message]}" if check.message in names else ""
    failed = variant.name == "protected"
    label = "Why it failed" if failed else "Why it broke"
    text = f"{len(check.witness)} of {count(len(events))} events{on}"
    if not failed:
        text = f"the smallest set of events that breaks the rule: {len(check.witness)} of {count(len(events))}{on}"
    late = lateness(Evidence(events=events), visibility_ms=run.visibility_ms)
    lines: list[list[Span]] = [[Span(label, "bold"), Span(f"  {text}")], *_events(screen, witness, names, late)]
    about = list(dict.fromkeys(event.message for event in witness if event.message is not None))
    if picture := lane_picture(variant.history, about, screen, run.limits, names, bad=check.witness):
        lines += [[], *picture]
    return lines


def _events(
    screen: Screen, witness: Sequence[Event], names: dict[str, str], late: Mapping[int, int]
) -> list[list[Span]]:
    rows: list[tuple[str, str, str, str, Span, str]] = []
    for event in witness:
        sign = marks(screen.signs, event, {one.i for one in witness})
        said = what(event, late.get(event.i))
        if event.message in names and len({one.message for one in witness}) > 1:
            said = f"{names[event.message or '']}, {said}"
        rows.append((count(event.i), count(event.t_ms), event.process, event.f, sign, said))
    heads = ("#", "t, ms", "who", "event", "what")
    number = max(len(heads[0]), *(len(row[0]) for row in rows), 5)
    instant = max(len(heads[1]), *(len(row[1]) for row in rows))
    who = max(len(heads[2]), *(cells(row[2]) for row in rows))
    word = max(len(heads[3]) + 2, *(len(row[3]) + 2 for row in rows))
    head = f"{heads[0]:>{number + 1}}  {heads[1]:>{instant}}  {heads[2]:<{who}}  {heads[3]:<{word}}  {heads[4]}"
    lines: list[list[Span]] = [[Span(head, "dim")]]
    for i, t_ms, process, f, sign, said in rows:
        before = f"{i:>{number + 1}}  {t_ms:>{instant}}  {harmless(process):<{who}}  "
        after = f" {f:<{word - 2}}  "
        room = screen.width - len(before) - 1 - len(after)
        lines.append([Span(before), sign, Span(after), Span(_cut(harmless(said), room, screen.signs))])
    return lines


def _cut(text: str, room: int, signs: Signs) -> str:
    return text if cells(text) <= room else f"{text[: max(room - len(signs.ellipsis), 0)]}{signs.ellipsis}"


def plain(lines: Sequence[Line]) -> str:
    """Return lines as text, without their styles."""
    return "\n".join("".join(span.text for span in line) for line in lines)
