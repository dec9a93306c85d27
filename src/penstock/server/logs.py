"""Logs: one line per event on stderr, for people or for machines."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Literal

import structlog

if TYPE_CHECKING:
    from structlog.typing import Processor

_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.PositionalArgumentsFormatter(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
]
_REQUEST_FIELDS = ("request_id", "operation", "status", "code", "duration_ms")
"""What is told of a request, by the plain logger of the endpoint: to ask that whether anybody listens is cheap."""

_JOB_FIELDS = ("correlation_id", "job_id", "attempt", "queue", "worker", "report", "state", "failure")
"""What is told of a job, in the same way. `correlation_id` is that of the request which enqueued it."""


def configure_logging(*, level: str, form: Literal["console", "json"]) -> None:
    """Send what any logger of this process says, ours through structlog or a library's, to stderr in one form."""
    finish: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if form == "json":
        finish += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # Without the values of variables, which rich would print: among them are bodies and credentials.
        finish.append(
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        )
    handler = logging.StreamHandler(sys.stderr)
    foreign: list[Processor] = [*_SHARED, structlog.stdlib.ExtraAdder(allow=(*_REQUEST_FIELDS, *_JOB_FIELDS))]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=foreign, processors=finish))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # What uvicorn tells of its own start and stop repeats what we say.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
