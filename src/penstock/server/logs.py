"""Logs: one line per event on stderr, for people or for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

_REQUEST_FIELDS = ("request_id", "operation", "status", "code", "duration_ms")
_JOB_FIELDS = ("correlation_id", "job_id", "attempt", "queue", "worker", "report", "state", "failure")
"""`correlation_id` is that of the request which enqueued the job."""
_PROCESS_FIELDS = ("signal", "pid", "reason", "number", "connections", "by_ms")
FIELDS = (*_REQUEST_FIELDS, *_JOB_FIELDS, *_PROCESS_FIELDS)
"""What a line may tell besides its text, given to loggers as `extra`. What libraries give is not written."""

_EVENT_WIDTH = 30
_PLAIN = "\x1b[0m"
_BOLD = "\x1b[1m"
_COLOURS = {
    logging.DEBUG: "\x1b[32m",
    logging.INFO: "\x1b[32m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[31m",
}


def configure_logging(*, level: str, form: Literal["console", "json"]) -> None:
    """Send what any logger of this process says, ours or a library's, to stderr in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter(colours=sys.stderr.isatty()))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # What uvicorn tells of its own start and stop repeats what we say.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))


class JsonFormatter(logging.Formatter):
    """Writes a record as an object of JSON on one line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": _timestamp(record),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=repr)


class ConsoleFormatter(logging.Formatter):
    """Writes a record for people: one line, and what went wrong, without the values of variables, below it."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        level, event = f"{record.levelname.lower():9}", f"{record.getMessage():{_EVENT_WIDTH}}"
        if self._colours:
            level = f"{_COLOURS.get(record.levelno, '')}{level}{_PLAIN}"
            event = f"{_BOLD}{event}{_PLAIN}"
        told = [f"{name}={_value(value)}" for name, value in sorted(_fields(record).items())]
        lines = [" ".join([f"{_timestamp(record)} [{level}] {event} [{record.name}]", *told])]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        if record.stack_info:
            lines.append(self.formatStack(record.stack_info))
        return "\n".join(lines)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    told = record.__dict__
    return {name: told[name] for name in FIELDS if name in told}


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _value(value: object) -> str:
    """Write a value so that it cannot be mistaken for two, nor for a line of its own."""
    text = str(value)
    plain = text.isprintable() and not any(character in text for character in " =\"'")
    return text if plain else repr(value)
