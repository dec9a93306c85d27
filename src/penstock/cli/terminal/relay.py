"""`penstock relay` on stderr: its banner, a line for each notice, and the live line."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatchmethod
from typing import Literal, TextIO

import msgspec

from penstock.cli.terminal.colours import ColorChoice
from penstock.cli.terminal.lines import facts, log_line
from penstock.cli.terminal.records import Form, json_line
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Line, Span, harmless
from penstock.cli.terminal.values import coarse_duration, count, counted, duration, time_of_day, whole_duration
from penstock.client.transactions import relay_notices as notices
from penstock.client.transactions.relay import RelayStatus
from penstock.client.transactions.relay_notices import RelayNotice
from penstock.domain.clock import SystemClock, Timer
from penstock.server.logs import logfmt

REDRAW_MS = 250
_WORDS: dict[type[RelayNotice], tuple[str, str]] = {
    notices.Ready: ("ready", "info"),
    notices.Enqueued: ("enqueued", "info"),
    notices.SetAside: ("refused", "error"),
    notices.PutOff: ("waiting", "warning"),
    notices.Lost: ("lost", "error"),
    notices.Back: ("back", "info"),
    notices.Stopping: ("stopping", "info"),
    notices.Stopped: ("stopped", "info"),
}
"""The word and the level of each notice in a log."""
SAME_S = 60.0
"""A queue that waits for the same reason is mentioned once in this time."""


class RelayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the banner of a relay says."""

    version: str
    address: str
    database: str
    batch: int
    interval_s: float


class RelayTerminal:
    """Writes what a relay has to say: lines for people in a terminal, one line of logfmt or JSON each elsewhere.

    `watch` starts the live line on the running event loop; `close` ends it. `verbose` adds each batch.
    """

    def __init__(
        self,
        about: RelayFacts,
        stream: TextIO,
        *,
        color: ColorChoice = "auto",
        log_format: Literal["console", "logfmt", "json"] = "console",
        verbose: bool = False,
        show_status: bool = True,
    ) -> None:
        self._about = about
        self._clock = SystemClock()
        self._verbose = verbose
        self._show_status = show_status
        self._screen = Screen(stream, color=color)
        for_people = log_format == "console" and self._screen.terminal
        self._form: Form = "people" if for_people else "json" if log_format == "json" else "logfmt"
        self._status: Callable[[], RelayStatus] | None = None
        self._timer: Timer | None = None
        self._said: dict[tuple[str, str], int] = {}
        """When a queue and a reason were last mentioned."""

    def banner(self) -> None:
        """Write what is relayed from where to where; nothing in a pipe."""
        if self._form != "people":
            return
        about = self._about
        head = [Span(f"Penstock relay {about.version}", "bold"), Span(" to "), Span(harmless(about.address), "bold")]
        every = f"  looks every {duration(about.interval_s)}, up to {count(about.batch)} jobs in a request"
        rows: list[tuple[str, Line]] = [
            ("outbox", [Span(harmless(about.database)), Span(every, "dim")]),
            ("stop", [Span("Ctrl+C or SIGTERM"), Span("  it finishes what it has begun", "dim")]),
        ]
        self._screen.write([head, [], *facts(self._screen, rows), []])

    def watch(self, status: Callable[[], RelayStatus]) -> None:
        """Show these numbers at the foot of the terminal, until `close`."""
        self._status = status
        if self._form == "people" and self._show_status:
            self._tick()

    def notice(self, notice: RelayNotice) -> None:
        """Write what happened, if it is worth a line."""
        if isinstance(notice, notices.Enqueued) and not self._verbose:
            return
        if isinstance(notice, notices.PutOff) and not self._is_new(notice):
            return
        if isinstance(notice, notices.Stopped):
            self.close()
        if self._form != "people":
            self._log(notice)
            return
        if isinstance(notice, notices.Stopping) and notice.reason == "SIGINT":
            # The terminal has echoed it: within the live line, which goes, or on a line of its own, which ends here.
            self._screen.write_text("^C" if self._screen.live else "")
        state, word, text = self._say(notice)
        time = time_of_day(self._clock.wall_ms(), None)
        self._screen.write(log_line(self._screen, time, state, word, [[Span(harmless(text))]]))

    def close(self) -> None:
        """Remove the live line and bring the cursor back. Notices can still be written."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._screen.close()

    def _is_new(self, notice: notices.PutOff) -> bool:
        now_ms = self._clock.now_ms()
        self._said = {key: at_ms for key, at_ms in self._said.items() if now_ms - at_ms < SAME_S * 1_000}
        key = (notice.queue, notice.reason)
        new = key not in self._said
        if new:
            self._said[key] = now_ms
        return new

    def _log(self, notice: RelayNotice) -> None:
        word, level = _WORDS[type(notice)]
        fields: dict[str, object] = {}
        for name in notice.__struct_fields__:
            value = getattr(notice, name)
            if value is not None and value != "":
                fields[name] = round(value, 3) if isinstance(value, float) else value
        now_ms = self._clock.wall_ms()
        if self._form == "json":
            self._screen.write_text(json_line(now_ms, word, level, fields))
        else:
            self._screen.write_text(logfmt(now_ms, word, fields))

    @singledispatchmethod
    def _say(self, notice: RelayNotice) -> tuple[str, str, str]:
        """Return a state, a word and a text."""
        raise AssertionError(f"nobody has put {type(notice).__name__} into words")

    @_say.register
    def _ready(self, notice: notices.Ready) -> tuple[str, str, str]:
        return "done", "ready", f"{counted(notice.waiting, 'job')} in the outbox"

    @_say.register
    def _enqueued(self, notice: notices.Enqueued) -> tuple[str, str, str]:
        return "done", "enqueued", f"{counted(notice.jobs, 'job')} in {duration(notice.took_s)}"

    @_say.register
    def _set_aside(self, notice: notices.SetAside) -> tuple[str, str, str]:
        signs = self._screen.signs
        return "dead", "refused", f"{signs.name(notice.queue)} {signs.job(notice.job)}  set aside, {notice.reason}"

    @_say.register
    def _put_off(self, notice: notices.PutOff) -> tuple[str, str, str]:
        queue, jobs = self._screen.signs.name(notice.queue), counted(notice.jobs, "job")
        return "retrying", "waiting", f"{queue}  {jobs}, again in {duration(notice.in_s)}: {notice.reason}"

    @_say.register
    def _lost(self, notice: notices.Lost) -> tuple[str, str, str]:
        return (
            "lost",
            "lost",
            f"the {notice.peer} does not answer, next try in {duration(notice.in_s)}: {notice.reason}",
        )

    @_say.register
    def _back(self, notice: notices.Back) -> tuple[str, str, str]:
        return "done", "back", f"the {notice.peer} answers again after {duration(notice.after_s)}"

    @_say.register
    def _stopping(self, _: notices.Stopping) -> tuple[str, str, str]:
        return "paused", "stopping", "it finishes what it has begun. Ctrl+C again to quit now"

    @_say.register
    def _stopped(self, notice: notices.Stopped) -> tuple[str, str, str]:
        left = "" if notice.waiting is None else f", {count(notice.waiting)} left in the outbox"
        done = f"{count(notice.enqueued)} enqueued, {count(notice.set_aside)} refused"
        return "done", "stopped", f"{done} in {coarse_duration(notice.ran_s)}{left}"

    def _tick(self) -> None:
        if self._status is not None:
            self._screen.show(self._line(self._status()))
        self._timer = self._clock.call_at(self._clock.now_ms() + REDRAW_MS, self._tick)

    def _line(self, status: RelayStatus) -> list[Span]:
        signs = self._screen.signs
        if status.lost is not None:
            return [signs.of("lost"), Span(f" no {status.lost} for {whole_duration(status.lost_s)}, trying again")]
        line: list[Span] = []
        for state, number, word in (
            ("ready", status.waiting or 0, "waiting"),
            ("done", status.enqueued, "enqueued"),
            ("dead", status.set_aside, "refused"),
        ):
            sign = signs.of(state)
            line += [sign, Span(f" {count(number)} {word}  ")] if number else [Span(f"{sign.text} 0 {word}  ", "dim")]
        last = "none yet" if status.last_s is None else f"last {whole_duration(status.last_s)} ago"
        return [*line, Span(last, "dim")]
