"""Exceptions of tasks as failures of jobs, and where in the user's own code they came from."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import penstock
from penstock.client.errors import ArgumentsInvalid, ResultInvalid, StepInvalid
from penstock.client.worker.notices import Trouble
from penstock.client.worker.processes.errors import ChildFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from penstock.client.tasks.retries import Retry

KIND_LENGTH_MAX = 200
MESSAGE_LENGTH_MAX = 8_000
DETAILS_LENGTH_MAX = 32_000

_OURS = str(Path(penstock.__file__).parent) + os.sep
_LIBRARIES = tuple(
    {f"{path}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))}
)


_PERMANENT = (ArgumentsInvalid, ResultInvalid, StepInvalid)
"""Faults of the code or of what it was called with. The code is the same in the next attempt."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failure as the job API takes it."""

    kind: str
    message: str = ""
    details: str = ""
    permanent: bool = False
    retry_after_ms: int | None = None


class TroubleError(Exception):
    """An exception of a task that ran in another process, of which only a description came back."""

    def __init__(self, trouble: Trouble, *, permanent: bool) -> None:
        super().__init__(f"{trouble.kind}: {trouble.message}")
        self.trouble = trouble
        self.permanent = permanent


def trouble_of(error: BaseException, kind_of: Callable[[BaseException], str] | None = None) -> Trouble:
    """Describe an exception with its traceback. `kind_of` names its class; left out, without the module."""
    if isinstance(error, TroubleError):
        return error.trouble
    if isinstance(error, ChildFailed):
        return Trouble(kind=error.kind, message=error.message, details=error.traceback)
    frames = _without_ours(error.__traceback__)
    details = "".join(traceback.format_exception(type(error), error, frames, limit=-50))
    return Trouble(
        kind=(type(error).__qualname__ if kind_of is None else kind_of(error))[:KIND_LENGTH_MAX],
        message=_text(error)[:MESSAGE_LENGTH_MAX],
        details=details[-DETAILS_LENGTH_MAX:],
        at=_own_frame(error.__traceback__),
    )


def is_permanent(error: BaseException, retry: Retry | None) -> bool:
    """Return whether another attempt would fail in the same way."""
    if isinstance(error, TroubleError):
        return error.permanent
    return isinstance(error, _PERMANENT) or (retry is not None and isinstance(error, retry.permanent))


def written(trouble: Trouble, *, permanent: bool = False, retry_after_ms: int | None = None) -> bytes:
    """Write a failure for a report."""
    return msgspec.json.encode(
        Failure(
            kind=trouble.kind,
            message=trouble.message,
            details=trouble.details,
            permanent=permanent,
            retry_after_ms=retry_after_ms,
        )
    )


def is_own(path: str) -> bool:
    """Return whether a file is the user's own: neither Python's, nor a library's, nor ours."""
    return not path.startswith(("<", _OURS, *_LIBRARIES))


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames by which a worker calls a task. Where there are no others, the message says it all."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace


def _own_frame(trace: TracebackType | None) -> str:
    """Name the innermost frame of the user's own code."""
    found = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_own(code.co_filename):
            path = code.co_filename.removeprefix(f"{Path.cwd()}{os.sep}")
            found = f"{path}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return found


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - the user's own code, which must not hide the failure
        return f"<{type(error).__name__} cannot be written: {type(broken).__name__}>"


def stack_of(thread_id: int | None) -> str:
    """Return where a thread is now, as Python writes a traceback."""
    frame = sys._current_frames().get(thread_id or 0)  # noqa: SLF001 - what debuggers use for this
    return "" if frame is None else "".join(traceback.format_stack(frame, limit=30))
