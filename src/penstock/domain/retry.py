"""Retries: how often a job is tried, and how long it waits in between."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.limits import HOUR_MS, SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable


_DOUBLINGS_MAX = 1_000


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How often, and how soon. Failures and lost leases have budgets of their own: a crash is not the job's fault."""

    attempts_max: int = 10
    """How many attempts may fail before the job is dead."""
    losses_max: int = 5
    """How many attempts may be lost before the job is dead."""
    backoff_ms: int = SECOND_MS
    """The ceiling of the first wait; it doubles, or whatever `factor` says, with each failure."""
    factor: float = 2.0
    backoff_ms_max: int = HOUR_MS
    jitter: bool = True
    """Wait a random part of the ceiling (full jitter), so that what failed together does not come back together."""


def backoff_ms(
    policy: RetryPolicy, failures: int, chance: Callable[[], float], retry_after_ms: int | None = None
) -> int:
    """How long to wait after the `failures`-th failure; `chance` gives numbers from 0 up to 1.

    What the failure itself asks for (`retry_after_ms`) is the least, and may go beyond the policy's longest wait.
    """
    steps: float = failures - 1
    if policy.factor > 1:
        # 2.0 ** 1024 is too large for a float, and any such wait is the longest one anyway.
        steps = min(steps, _DOUBLINGS_MAX / math.log2(policy.factor))
    ceiling_ms = min(policy.backoff_ms * policy.factor**steps, policy.backoff_ms_max)
    waited_ms = ceiling_ms * chance() if policy.jitter else ceiling_ms
    return max(int(waited_ms), retry_after_ms or 0)
