"""The server's log records as lines for people."""

from __future__ import annotations

import logging
import re
import sys
import threading
from datetime import tzinfo

from penstock.cli.terminal.lines import log_line
from penstock.cli.terminal.records import RecordHandler
from penstock.cli.terminal.repeats import Repeats
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span, harmless
from penstock.cli.terminal.values import counted, duration, time_of_day, whole_duration
from penstock.domain.clock import SystemClock
from penstock.server.config import ServerConfig
from penstock.server.logs import configure_logging, fields_of, word_of

_UPKEEP = "penstock.engine.upkeep"
_OWN = "penstock."
_DENIAL = re.compile(
    r"User: (?:arn:aws:iam::\d+:user/)?(?P<user>\S+) is not authorized to perform: \S+ "
    r"on resource: (?:arn:aws:sqs:[^:\s]*:[^:\s]*:)?(?P<resource>\S*)"
)
"""As Amazon words it."""
_FOR_DEBUGGING = frozenset({"request", "report", "done", "retrying", "refused", "cancelled"})
"""What happens all the time, or is the business of workers: nobody would act on it here."""


class ServerHandler(RecordHandler):
    """Writes the server's records for people: one line for each thing to act on, the same cause once and then counted.

    A process that another one started leaves it to that one to say that they stop.
    """

    def __init__(
        self, screen: Screen, config: ServerConfig, *, child: bool = False, zone: tzinfo | None = None
    ) -> None:
        super().__init__(screen, zone=zone)
        self._store = config.store
        self._debugging = config.log_level == "debug"
        self._child = child
        self._repeats = Repeats()
        self._clock = SystemClock()
        self._timer: threading.Timer | None = None
        self._stopping_s: float | None = None
        self._lost_s: float | None = None
        self._refused = 0

    def write(self, record: logging.LogRecord) -> None:
        """Write a record, if a person would act on it."""
        now_ms = round(record.created * 1_000)
        self._write_summaries(now_ms)
        word = word_of(record)
        if word in ("stopping", "stopped"):
            if not self._child:
                self._write_end(record, word)
        elif record.name == _UPKEEP and not record.exc_info:
            self._write_store(record)
        elif word == "failed" and self._lost_s is not None:
            self._refused += 1
        elif word in ("denied", "failed", "dead"):
            state = "dead" if word == "dead" else "lost"
            self._write_once(record, state, word)
        elif word not in _FOR_DEBUGGING or self._debugging:
            self._write_other(record, word)

    def close(self) -> None:
        """Wake up no more."""
        if self._timer is not None:
            self._timer.cancel()
        super().close()

    def _write_end(self, record: logging.LogRecord, word: str) -> None:
        about = record.__dict__
        if word == "stopping":
            self._stopping_s = self._stopping_s or record.created
            if about.get("signal") == "SIGINT":
                self.screen.write_text("")  # The terminal has echoed ^C, and left the line open.
            self.say(record, "paused", word, [_stopping(about)])
            return
        self._write_summaries(round(record.created * 1_000), last=True)
        took = "" if self._stopping_s is None else f"in {duration(record.created - self._stopping_s)}; "
        kept = {"sqlite": "store closed, everything is on disk", "memory": "what the store held is gone"}
        self.say(record, "done", word, [took + kept.get(self._store.partition(":")[0], "store closed")])

    def _write_store(self, record: logging.LogRecord) -> None:
        """Say once that the store does not answer, and once that it does again."""
        if record.levelno >= logging.WARNING:
            if self._lost_s is None:
                self._lost_s, self._refused = record.created, 0
                reason = record.args[-1] if isinstance(record.args, tuple) and record.args else record.getMessage()
                self.say(record, "lost", "store", [str(reason), "Writes are refused with 503; numbers may be old."])
        elif self._lost_s is not None:
            after = whole_duration(max(record.created - self._lost_s, 1))
            refused = f"; {counted(self._refused, 'request')} refused" if self._refused else ""
            self._lost_s = None
            self.say(record, "done", "back", [f"The store answers again after {after}{refused}"])

    def _write_once(self, record: logging.LogRecord, state: str, word: str) -> None:
        """Write what has a cause that others may have too."""
        about = record.__dict__
        if word == "dead":
            cause = str(about.get("failure", "failed"))
            text = f"{self.screen.signs.job(str(about['job_id']))}  attempt {about['attempt']}, {cause}"
        else:
            cause = text = _request(record)
        one = str(about.get("job_id") or about.get("request_id"))
        now_ms = round(record.created * 1_000)
        form, _ = self._repeats.meet((word, cause), (state, word, cause), one, now_ms)
        if form == "counted":
            self._wake_later(now_ms)
        else:
            self.say(record, state, word, [text])

    def _write_other(self, record: logging.LogRecord, word: str) -> None:
        message = record.getMessage()
        texts = [message if record.name.startswith(_OWN) else f"{record.name}  {message}"]
        if more := fields_of(record):
            texts.append("  ".join(f"{name} {value}" for name, value in more.items()))
        if record.exc_info and record.name.startswith(_OWN):
            texts.append("This is a bug in Penstock.")
        state = "lost" if record.levelno >= logging.ERROR else "plain"
        self.say(record, "behind" if record.levelno == logging.WARNING else state, word, texts)

    def _write_summaries(self, now_ms: int, *, last: bool = False) -> None:
        for repeat, number in self._repeats.due(now_ms, last=last):
            assert isinstance(repeat.about, tuple)
            state, word, cause = repeat.about
            times = "once" if number == "1" else f"{number} times"
            text = [
                Span(f"{harmless(cause)}  {times} in a minute"),
                Span(f"  the same as {time_of_day(repeat.first_ms, self.zone)}", "dim"),
            ]
            self.screen.write(log_line(self.screen, time_of_day(now_ms, self.zone), state, word, [text]))

    def _wake_later(self, now_ms: int) -> None:
        """Write what was counted when its minute is over, also if nothing else happens."""
        due_ms = self._repeats.next_ms
        if due_ms is None or self._timer is not None:
            return
        self._timer = threading.Timer((due_ms - now_ms) / 1_000, self._wake)
        self._timer.daemon = True
        self._timer.start()

    def _wake(self) -> None:
        self.acquire()
        try:
            self._timer = None
            now_ms = self._clock.wall_ms()
            self._write_summaries(now_ms)
            self._wake_later(now_ms)
        finally:
            self.release()


def _request(record: logging.LogRecord) -> str:
    """Say which request was refused or failed: who may not do it, if that is known, or else with which code."""
    about = record.__dict__
    prefix = "sqs:" if record.name.endswith(".sqs") else ""
    asked = f"{prefix}{about['operation']}"
    denial = _DENIAL.match(str(about.get("reason", "")))
    if denial is not None:
        return f"{denial['user']} may not {asked} on {denial['resource'] or 'any queue'}"
    return f"{asked}  {about.get('code') or about['status']}"


def _stopping(about: dict[str, object]) -> str:
    parts: list[str] = []
    if processes := about.get("processes"):
        parts.append(counted(int(str(processes)), "process", "processes"))
    if requests := about.get("requests"):
        parts.append(f"finishing {counted(int(str(requests)), 'request')}")
    if long_polls := about.get("long_polls"):
        parts.append(f"ending {counted(int(str(long_polls)), 'long poll')}")
    doing = ", ".join(parts) or "no request under way"
    return f"{doing}; at most {about['grace_s']} s" if "grace_s" in about else doing


def set_up_logs(config: ServerConfig, *, child: bool = False) -> None:
    """Have this process log as configured: for people if its stderr is a terminal."""
    screen = Screen(sys.stderr, color=config.color)
    handler = ServerHandler(screen, config, child=child) if screen.terminal else None
    configure_logging(level=config.log_level, form=config.log_format, terminal=handler)


def set_up_logs_of_child(config: ServerConfig) -> None:
    """Do the same in one of several processes of a server."""
    set_up_logs(config, child=True)
