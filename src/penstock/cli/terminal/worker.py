"""`penstock worker` on stderr: its banner, a line for each notice, and the live line."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import tzinfo
from typing import Literal, TextIO

import msgspec

from penstock.cli.terminal.colours import ColorChoice
from penstock.cli.terminal.lines import facts, log_line
from penstock.cli.terminal.records import Form, RecordHandler, json_line
from penstock.cli.terminal.repeats import Repeats
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.status import status_line
from penstock.cli.terminal.text import Span, harmless
from penstock.cli.terminal.values import duration, time_of_day
from penstock.cli.terminal.worker_fields import tell
from penstock.cli.terminal.worker_lines import Said, Wording
from penstock.client.worker.notices import (
    Cancelled,
    Died,
    Done,
    LeaseOver,
    Notice,
    Retrying,
    Snoozed,
    Status,
    Stopped,
    Stopping,
)
from penstock.domain.clock import Clock, SystemClock, Timer
from penstock.server.logs import logfmt

BEATS = 3
"""A worker sends this many heartbeats within the length of a lease."""
REDRAW_MS = 250
"""How long the live line stays as it is."""
_MET_BY_MANY = (Retrying, Died, LeaseOver, Cancelled)
"""What happens to many jobs at once for the same cause."""
_DIGITS = re.compile(r"\d+")


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that a worker takes jobs from."""

    name: str
    slots: int
    tasks: Sequence[str] = ()


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the banner of a worker says."""

    version: str
    address: str
    name: str
    queues: Sequence[QueueFacts]
    grace_s: float
    lease_s: float | None = None
    """How long a lease lasts, if the server said so."""
    server_name: str = ""
    server_version: str = ""


class WorkerTerminal:
    """Writes what a worker has to say: lines for people in a terminal, one line of logfmt or JSON each elsewhere.

    It is an `Observer` of the worker. `watch` starts the live line on the running event loop; `close` ends it and
    brings the cursor back, so call it however the worker ends. `verbose` adds jobs that succeed or are put off.
    """

    def __init__(  # noqa: PLR0913 - one for each flag, and what tests set
        self,
        about: WorkerFacts,
        stream: TextIO,
        *,
        color: ColorChoice = "auto",
        log_format: Literal["console", "logfmt", "json"] = "console",
        verbose: bool = False,
        show_status: bool = True,
        clock: Clock | None = None,
        zone: tzinfo | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._about = about
        self._clock = clock or SystemClock()
        self._zone = zone
        self._verbose = verbose
        self._show_status = show_status
        self._screen = Screen(stream, color=color, environment=environment)
        for_people = log_format == "console" and self._screen.terminal
        self._form: Form = "people" if for_people else "json" if log_format == "json" else "logfmt"
        self._wording = Wording(self._screen.signs, self._clock.wall_ms, zone)
        self._repeats = Repeats()
        self._status: Callable[[], Status] | None = None
        self._timer: Timer | None = None
        self._grace_s: float | None = None

    @property
    def verbose(self) -> bool:
        """Whether jobs that succeed are worth a line: to people they are while the worker stops."""
        return self._verbose or (self._grace_s is not None and self._form == "people")

    def banner(self) -> None:
        """Write who this worker is and what it takes; nothing in a pipe."""
        if self._form != "people":
            return
        about, signs = self._about, self._screen.signs
        server = f"server {harmless(about.server_version)}" if about.server_version else ""
        known = ", ".join(filter(None, (harmless(about.server_name), server)))
        head = [
            Span(f"Penstock worker {about.version}", "bold"),
            Span(" to "),
            Span(harmless(about.address), "bold"),
            Span(f"  {known}" if known else "", "dim"),
        ]
        name_cells = max((len(signs.name(queue.name)) for queue in about.queues), default=0)
        slots_cells = max((len(f"{queue.slots:,}") for queue in about.queues), default=0)
        rows = [("name", [Span(harmless(about.name))])]
        for index, queue in enumerate(about.queues):
            line = [
                Span(f"{signs.name(queue.name):<{name_cells}}  "),
                Span(f"{queue.slots:>{slots_cells},} at a time", "dim"),
                Span("  " + ", ".join(signs.name(task) for task in queue.tasks) if queue.tasks else ""),
            ]
            rows.append(("" if index else "queues", line))
        if about.lease_s is not None:
            beats = f"  a heartbeat every {duration(about.lease_s / BEATS)}"
            rows.append(("lease", [Span(duration(about.lease_s)), Span(beats, "dim")]))
        rows.append(("stop", [Span("Ctrl+C or SIGTERM"), Span(f"  running jobs get {duration(about.grace_s)}", "dim")]))
        self._screen.write([head, [], *facts(self._screen, rows), []])

    def watch(self, status: Callable[[], Status]) -> None:
        """Show these numbers at the foot of the terminal, at most four times a second, until `close`."""
        self._status = status
        if self._form == "people":
            self._tick()

    def notice(self, notice: Notice) -> None:
        """Write what happened, if it is worth a line."""
        if isinstance(notice, Stopping):
            self._grace_s = notice.grace_s
        if isinstance(notice, (Done, Snoozed)) and not self.verbose:
            return
        if self._form == "people":
            self._write_for_people(notice)
        else:
            told, now_ms = tell(notice, self._about.name), self._clock.wall_ms()
            if self._form == "json":
                self._screen.write_text(json_line(now_ms, told.word, told.level, told.fields))
            else:
                self._screen.write_text(logfmt(now_ms, told.word, told.fields))

    def log_handler(self) -> logging.Handler:
        """Return a handler for records of your code and of libraries: it writes above the live line."""
        return RecordHandler(self._screen, form=self._form, zone=self._zone)

    def close(self) -> None:
        """Remove the live line and bring the cursor back. Notices can still be written."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._screen.close()

    def _write_for_people(self, notice: Notice) -> None:
        if isinstance(notice, Stopped):
            self.close()
            self._write_summaries(self._clock.now_ms(), last=True)
        if isinstance(notice, Stopping) and notice.reason == "SIGINT":
            # The terminal has echoed it: within the live line, which goes, or on a line of its own, which ends here.
            self._screen.write_text("^C" if self._screen.live else "")
        if isinstance(notice, _MET_BY_MANY):
            now_ms = self._clock.now_ms()
            self._write_summaries(now_ms)
            form, _ = self._repeats.meet(_cause(notice), (notice, self._clock.wall_ms()), notice.job, now_ms)
            if form == "counted":
                return
            said = self._wording.say(notice)
            self._write(said if form == "whole" else self._wording.same(notice, said.state, said.word))
            return
        self._write(self._wording.say(notice))

    def _write(self, said: Said) -> None:
        time = time_of_day(self._clock.wall_ms(), self._zone)
        self._screen.write([*log_line(self._screen, time, said.state, said.word, said.texts), *said.below])

    def _write_summaries(self, now_ms: int, *, last: bool = False) -> None:
        for repeat, jobs in self._repeats.due(now_ms, last=last):
            assert isinstance(repeat.about, tuple)
            notice, first_ms = repeat.about
            self._write(self._wording.summary(notice, jobs, first_ms))

    def _tick(self) -> None:
        self._write_summaries(self._clock.now_ms())
        self.redraw()
        self._timer = self._clock.call_at(self._clock.now_ms() + REDRAW_MS, self._tick)

    def redraw(self) -> None:
        """Show the numbers as they are now."""
        if self._status is not None and self._show_status:
            self._screen.show(status_line(self._status(), self._screen.signs, self._grace_s))


def _cause(notice: Retrying | Died | LeaseOver | Cancelled) -> Hashable:
    """Return what makes two notices the same. Numbers in messages do not count."""
    if isinstance(notice, (Retrying, Died)):
        trouble = notice.trouble
        why: Hashable = (trouble.kind, _DIGITS.sub("0", trouble.message), trouble.at)
    else:
        why = _DIGITS.sub("0", notice.reason)
    return (type(notice), notice.queue, notice.task, why)
