"""What scripts need besides the store: ids, limits and chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.domain.ids import IdSource
    from penstock.domain.job_limits import JobLimits


class Surroundings(NamedTuple):
    """Passed to every script that needs them."""

    ids: IdSource
    limits: JobLimits
    chance: Callable[[], float]
    """Numbers from 0 up to 1, for the jitter of retries."""
