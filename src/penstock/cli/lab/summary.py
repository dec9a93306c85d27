"""The table of many scenarios: a row as each ends, then what fails, where the eye ends."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.lab.verdicts import exit_is_good, failing_check
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span, harmless
from penstock.cli.terminal.values import counted, duration
from penstock.lab.report.wording import LOOKS
from penstock.lab.run import Run

_VERDICT, _FOUND, _TOOK = 12, 33, 7


class Summary:
    """Writes rows to one screen, and what is said about them to another."""

    def __init__(self, page: Screen, aside: Screen, names: Sequence[str]) -> None:
        self._page = page
        self._aside = aside
        self._wide = max(len(name) for name in names)
        self._count = len(names)
        self._results: list[tuple[Run, str]] = []

    def head(self, place: str, backend: str, seed: int) -> None:
        """Write the head."""
        if not self._page.terminal:
            self._page.write_text("scenario\tverdict\tfound\ttook_s")
            return
        self._aside.write(
            [
                [
                    Span(counted(self._count, "scenario"), "bold"),
                    Span(harmless(f"  {place}, {backend}, seed {seed}")),
                ],
                [],
            ]
        )
        head = f"  {'scenario':<{self._wide}}  {'verdict':<{_VERDICT}}  {'found':<{_FOUND}}  {'took, s':>{_TOOK}}"
        self._page.write([[Span(head, "dim")]])

    def row(self, run: Run, took_s: float, report: str) -> None:
        """Write what became of one scenario."""
        self._results.append((run, report))
        found = harmless(run.found)
        if not self._page.terminal:
            self._page.write_text(f"{run.scenario}\t{run.outcome}\t{found}\t{took_s:.3f}")
            return
        ellipsis = self._page.signs.ellipsis
        if len(found) > _FOUND:
            found = found[: _FOUND - len(ellipsis)] + ellipsis
        text = f" {run.scenario:<{self._wide}}  {run.outcome:<{_VERDICT}}  {found:<{_FOUND}}  {took_s:>{_TOOK}.1f}"
        self._page.write([[self._page.signs.of(LOOKS[run.outcome]), Span(text)]])

    def end(self, took_s: float, index: str) -> None:
        """Write the sum, and below it what fails, with the command that runs it again."""
        outcomes = [run.outcome for run, _ in self._results]
        fails, holds = outcomes.count("fails"), outcomes.count("holds")
        unknown, unseen = outcomes.count("unknown"), outcomes.count("not observed")
        breaks = outcomes.count("breaks")
        parts = [
            f"{fails} {'fails' if fails == 1 else 'fail'}" if fails else "",
            f"{unknown} {'is' if unknown == 1 else 'are'} unknown" if unknown else "",
            f"{holds} {'holds and fails' if holds == 1 else 'hold and fail'} when broken" if holds else "",
            f"{breaks} {'breaks as it' if breaks == 1 else 'break as they'} must" if breaks else "",
            f"{unseen} {'is' if unseen == 1 else 'are'} not observed here" if unseen else "",
        ]
        said = ", ".join(part for part in parts if part)
        self._aside.write([[], [Span(f"{said}. {duration(took_s)}.")]])
        bad = [(run, report) for run, report in self._results if not exit_is_good(run) and run.outcome != "breaks"]
        for run, report in bad:
            self._failure(run, report, index)
        if not bad:
            self._aside.write([[Span("  "), Span("report", "dim"), Span(f"  {harmless(index)}")]])

    def _failure(self, run: Run, report: str, index: str) -> None:
        check = failing_check(run)
        said = "" if check is None else f"{check.rule}: {check.sentence}"
        self._aside.write(
            [
                [],
                [
                    self._aside.signs.of(LOOKS[run.outcome]),
                    Span(f" {run.scenario}", "bold"),
                    Span(f"  {harmless(said)}"),
                ],
                [Span("  "), Span("report", "dim"), Span(f"  {harmless(report)}  all: {harmless(index)}")],
                [Span("  "), Span("again", "dim"), Span(f"   {harmless(run.commands[0])}")],
            ]
        )
