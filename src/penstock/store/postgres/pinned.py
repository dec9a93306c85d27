"""The injected clock as statements take it: an instant where it is moved by hand, else nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.domain.clock import Clock


class PinnedClock:
    """Never tells an earlier instant than before, even if the clock is set back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest_ms = 0

    @property
    def pinned_ms(self) -> int | None:
        """The present instant, or None: the database knows it."""
        pinned_ms = self._clock.pinned_ms
        if pinned_ms is None:
            return None
        self._latest_ms = max(self._latest_ms, pinned_ms)
        return self._latest_ms
