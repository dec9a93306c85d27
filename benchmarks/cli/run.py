"""What the commands of `python -m benchmarks` share: kinds of options, and how a benchmark is run to its end."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterator
from typing import Annotated, TypeVar

from cyclopts import Parameter
from cyclopts.validators import Number

Result = TypeVar("Result")
Failure = TypeVar("Failure", bound=BaseException)
Count = Annotated[int, Parameter(validator=Number(gte=1))]
Switch = Annotated[bool, Parameter(negative="")]


def run_to_end(benchmark: Coroutine[None, None, Result]) -> Result | None:
    """Run a benchmark; say what stands in its way, and return None, if something does."""
    from benchmarks.errors import BenchmarkFailed
    from benchmarks.process import run
    from penstock.domain.errors import PenstockError

    try:
        return run(benchmark)
    except* (BenchmarkFailed, PenstockError, OSError) as failures:
        # Callers fail together, for one reason, which is told once.
        for reason in dict.fromkeys(str(failure) for failure in _single(failures)):
            print(f"benchmarks: {reason}", file=sys.stderr)  # noqa: T201 # It is a command's way to complain.
    return None


def _single(failures: BaseExceptionGroup[Failure]) -> Iterator[Failure]:
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _single(failure)
        else:
            yield failure
