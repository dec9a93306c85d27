"""Records of Python's logging, written by the same writer as our own lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import tzinfo
from typing import Literal

from penstock.cli.terminal.lines import log_line
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span, harmless
from penstock.cli.terminal.tracebacks import traceback_lines
from penstock.cli.terminal.values import time_of_day
from penstock.server.logs import JsonFormatter, LogfmtFormatter, utc_of

Form = Literal["people", "logfmt", "json"]


class RecordHandler(logging.Handler):
    """Writes records in the form of all other lines of a screen."""

    def __init__(self, screen: Screen, *, form: Form = "people", zone: tzinfo | None = None) -> None:
        super().__init__()
        self.screen = screen
        self.zone = zone
        self._formatter_of_pipe = None if form == "people" else JsonFormatter() if form == "json" else LogfmtFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. What cannot be formatted is reported as Python reports it, and stops nobody."""
        try:
            if self._formatter_of_pipe is not None:
                self.screen.write_text(self._formatter_of_pipe.format(record))
            else:
                self.write(record)
        except Exception:  # noqa: BLE001 - the outermost edge: a line of a log must not end what it is about
            self.handleError(record)

    def write(self, record: logging.LogRecord) -> None:
        """Write a record for people: its level, its logger and its message, and a traceback below."""
        state = "lost" if record.levelno >= logging.ERROR else "plain"
        state = "behind" if record.levelno == logging.WARNING else state
        self.say(record, state, record.levelname.lower()[:9], [f"{record.name}  {record.getMessage()}"])

    def say(self, record: logging.LogRecord, state: str, word: str, texts: list[str]) -> None:
        """Write one event, and below it the traceback of the record."""
        lines = [[Span(harmless(part))] for text in texts for part in text.splitlines() or [""]]
        below: list[list[Span]] = []
        formatter = logging.Formatter()
        if record.exc_info:
            below += traceback_lines(formatter.formatException(record.exc_info), self.screen.signs.ellipsis)
        if record.stack_info:
            below += traceback_lines(record.stack_info, self.screen.signs.ellipsis)
        time = time_of_day(record.created * 1_000, self.zone)
        self.screen.write([*log_line(self.screen, time, state, word, lines), *below])


def json_line(at_ms: int, word: str, level: str, fields: Mapping[str, object]) -> str:
    """Write one event as an object of JSON on one line, with the names that records have."""
    return json.dumps({"event": word, "level": level, "timestamp": utc_of(at_ms), **fields}, default=repr)
