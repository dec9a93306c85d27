"""`penstock lab ls`: the scenarios, what must be so in each, and what became of it last."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.failures import show
from penstock.cli.lab.failures import failure_of
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span
from penstock.cli.terminal.values import counted, whole_duration

_RULE, _LAST, _AGO = 34, 14, 6


def ls(*, out: Annotated[Path, Parameter(metavar="DIR")] = Path("lab")) -> int:
    """List the scenarios.

    Parameters
    ----------
    out
        The folder that reports are kept in.
    """
    from penstock.domain.clock import SystemClock
    from penstock.lab.archive import Archive, ArchiveBroken
    from penstock.lab.report.wording import LOOKS
    from penstock.lab.scenarios import NAMES, scenario

    try:
        kept = Archive(out).summaries()
    except ArchiveBroken as error:
        return show(failure_of(error))
    screen = Screen(sys.stdout)
    now_ms = SystemClock().wall_ms()
    if not screen.terminal:
        rows = ["scenario\trule\tlast\tago_s"]
        for name in NAMES:
            last = kept.get(name)
            ago = "" if last is None else f"{max(now_ms - last.started_ms, 0) / 1_000:.1f}"
            rows.append(f"{name}\t{scenario(name).short}\t{'' if last is None else last.outcome}\t{ago}")
        sys.stdout.write("\n".join(rows) + "\n")
        return 0
    wide = max(len(name) for name in NAMES)
    head = f"{'scenario':<{wide}}  {'it must be that':<{_RULE}}  {'last':<{_LAST}} {'ago':>{_AGO}}"
    lines: list[list[Span]] = [[Span(head, "dim")]]
    for name in NAMES:
        last = kept.get(name)
        before = Span(f"{name:<{wide}}  {scenario(name).short:<{_RULE}}  ")
        if last is None:
            lines.append([before, Span(f"{screen.signs.nothing:<{_LAST}} {'never':>{_AGO}}", "dim")])
            continue
        ago = _in_one_unit(max(now_ms - last.started_ms, 0) // 1_000)
        sign = screen.signs.of(LOOKS[last.outcome])
        lines.append([before, sign, Span(f" {last.outcome:<{_LAST - 2}} {ago:>{_AGO}}")])
    screen.write(lines)
    aside = Screen(sys.stderr)
    said = f"{counted(len(NAMES), 'scenario')}. penstock lab run NAME runs one, and --all runs all"
    total_s = sum(one.duration_ms for one in kept.values()) / 1_000
    aside.write([[], [Span(f"{said} in {whole_duration(total_s)}." if len(kept) == len(NAMES) else f"{said}.")]])
    return 0


def _in_one_unit(seconds: int) -> str:
    for unit, length_s in (("h", 3_600), ("min", 60)):
        if seconds >= 48 * 3_600:
            return f"{seconds // 86_400} days"
        if seconds >= length_s:
            return f"{seconds // length_s} {unit}"
    return f"{seconds} s"
