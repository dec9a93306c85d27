"""Logs: one line per event on stderr, as logfmt or as JSON; the form for terminals is given by the command line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from penstock.domain.log_fields import log_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

_REQUEST_FIELDS = ("request_id", "operation", "status", "code", "duration_ms")
_JOB_FIELDS = ("correlation_id", "job_id", "attempt", "queue", "worker", "report", "state", "failure")
"""`correlation_id` is that of the request which enqueued the job."""
_PROCESS_FIELDS = (
    "signal",
    "processes",
    "requests",
    "long_polls",
    "grace_s",
    "pid",
    "reason",
    "number",
    "connections",
    "by_ms",
)
FIELDS = (*_REQUEST_FIELDS, *_JOB_FIELDS, *_PROCESS_FIELDS)
"""What a line may contain besides its text, given to loggers as `extra`. What libraries give is not written."""

_TURNED_AWAY = frozenset({401, 403})
_JOB_WORDS = {"succeeded": "done", "retrying": "retrying", "dead": "dead", "cancelled": "cancelled"}


def configure_logging(*, level: str, form: Literal["console", "json"], terminal: logging.Handler | None = None) -> None:
    """Send what any logger of this process says, ours or a library's, to stderr in one form.

    The console form is that of the `terminal`, where there is one, and logfmt elsewhere.
    """
    if form == "json" or terminal is None:
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter() if form == "json" else LogfmtFormatter())
    else:
        handler = terminal
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # What uvicorn says of its own start and stop repeats what we say.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))


class JsonFormatter(logging.Formatter):
    """Writes a record as an object of JSON on one line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="microseconds")
            .replace("+00:00", "Z"),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=repr)


class LogfmtFormatter(logging.Formatter):
    """Writes a record as one line of logfmt: when, what in one word, and fields. A traceback is a field too."""

    def format(self, record: logging.LogRecord) -> str:
        word = word_of(record)
        fields: dict[str, object] = {}
        if word == record.levelname.lower():
            fields["logger"] = record.name
            fields["message"] = record.getMessage()
        fields |= fields_of(record)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        return logfmt(round(record.created * 1_000), word, fields)


def logfmt(at_ms: int, word: str, fields: Mapping[str, object]) -> str:
    """Write one line: the instant in UTC, the word, and the fields as `name=value`."""
    return " ".join(filter(None, (utc_of(at_ms), word, log_fields(fields))))


def utc_of(at_ms: int) -> str:
    """Write an instant as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def word_of(record: logging.LogRecord) -> str:
    """Name what a record is about in one word: that of the state or the event, or else its level."""
    about = record.__dict__
    if record.msg == "request" and "status" in about:
        status = about["status"]
        return "denied" if status in _TURNED_AWAY else "failed" if status >= 500 else "request"
    if record.msg in ("report", "report refused"):
        return "refused" if record.msg != "report" else _JOB_WORDS.get(about.get("state", ""), "report")
    if record.msg in ("stopping", "stopped"):
        return str(record.msg)
    return record.levelname.lower()


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields of a record that we know."""
    about = record.__dict__
    return {name: about[name] for name in FIELDS if name in about}
