"""`Retry`: when a failed attempt is followed by another, and the errors by which a task decides that itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.durations import Duration, milliseconds

if TYPE_CHECKING:
    from penstock.client.requests import RetrySettings


COUNT_MAX = 1_000
FACTOR_MAX = 100


class Retry:
    """How often a task is tried, and how long it waits in between.

    `attempts` may fail and `losses` may be lost (their worker died) before the job is dead; the two are counted apart.
    The wait after the n-th failure is a random part of `backoff` × `factor`^(n-1), at most of `max_backoff`.
    An exception of a class in `permanent` makes the job dead at once.
    """

    def __init__(
        self,
        attempts: int = 10,
        *,
        losses: int = 5,
        backoff: Duration = 1,
        factor: float = 2.0,
        max_backoff: Duration = "1h",
        jitter: bool = True,
        permanent: tuple[type[Exception], ...] = (),
    ) -> None:
        for name, count in {"attempts": attempts, "losses": losses}.items():
            if type(count) is not int or not 1 <= count <= COUNT_MAX:
                raise ValueError(f"{name} is a whole number from 1 to {COUNT_MAX:,}, not {count!r}.")
        if type(factor) not in {int, float} or not 1 <= factor <= FACTOR_MAX:
            raise ValueError(f"factor is a number from 1 to {FACTOR_MAX}, not {factor!r}.")
        try:
            issubclass(Exception, permanent)
        except TypeError:
            raise ValueError(f"permanent is a tuple of exception classes, not {permanent!r}.") from None
        self.attempts = attempts
        self.permanent = permanent
        self.settings: RetrySettings = {
            "attempts_max": attempts,
            "losses_max": losses,
            "backoff_ms": milliseconds(backoff, "backoff"),
            "factor": float(factor),
            "backoff_ms_max": milliseconds(max_backoff, "max_backoff"),
            "jitter": jitter,
        }

    def __repr__(self) -> str:
        return f"Retry({self.attempts}, {', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"


class Verdict(Exception):
    """A task raises one of these to say what becomes of its job."""


class Snooze(Verdict):
    """Run the job again after `delay`. This attempt does not count as a failure."""

    def __init__(self, delay: Duration) -> None:
        self.delay_ms = milliseconds(delay, "Snooze")
        super().__init__(f"again in {self.delay_ms / 1_000:g} s")


class RetryAfter(Verdict):
    """This attempt failed; try again, but not before `delay` has passed."""

    def __init__(self, delay: Duration, message: str = "") -> None:
        self.delay_ms = milliseconds(delay, "RetryAfter")
        super().__init__(message or f"not before {self.delay_ms / 1_000:g} s from now")


class Discard(Verdict):
    """There is nothing to do any more: the job ends as cancelled, without another attempt and without a dead letter."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
