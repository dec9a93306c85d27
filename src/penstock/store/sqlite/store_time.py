"""The time of a store: it goes on while the server runs, and from where it was when the server starts again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import apsw

    from penstock.domain.clock import Clock

STEP_MS = 100
"""By how much the wall clock has to differ from what it was expected to show, to be taken for set anew."""

LOOK_EVERY_MS = 100
KEEP_EVERY_MS = 60_000

_NEVER_MS = 2**63

_KEPT = "SELECT value FROM meta WHERE name IN ('store_time_ms', 'wall_time_ms') ORDER BY name"

_KEEP = """
INSERT INTO meta (name, value) VALUES ('store_time_ms', ?), ('wall_time_ms', ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""


class StoreTime:
    """All instants in the file are of this time. The wall clock starts it, and callers see that (decision record 10).

    Both times are saved once a minute, and whenever the wall clock was set. The time that the store was closed is the
    difference in wall time, or zero if the wall clock went back. Time that a test pins is used as it is.
    """

    def __init__(self, db: apsw.Connection, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._offset_ms = 0
        pinned = clock.pinned_ms is not None
        self._look_at_ms = _NEVER_MS if pinned else 0
        self._keep_at_ms = _NEVER_MS if pinned else 0
        self.ahead_ms = 0
        """How far this time is ahead of the wall clock."""
        kept: list[int] = [value for (value,) in db.execute(_KEPT)]
        if kept and not pinned:
            store_ms, wall_ms = kept
            self.ahead_ms = store_ms - wall_ms + max(0, wall_ms - clock.wall_ms())
            self._offset_ms = self.ahead_ms + clock.wall_ms() - clock.now_ms()

    def now_ms(self) -> int:
        """Return the present instant, and notice now and then whether the wall clock was set."""
        now_ms = self._clock.now_ms() + self._offset_ms
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_EVERY_MS
            ahead_ms = now_ms - self._clock.wall_ms()
            if not -STEP_MS < ahead_ms - self.ahead_ms < STEP_MS:
                self.ahead_ms = ahead_ms
                self._keep_at_ms = 0
        return now_ms

    def keep(self, now_ms: int) -> None:
        """Write the time down, if it is time to; within a transaction."""
        if now_ms >= self._keep_at_ms:
            self._db.execute(_KEEP, (now_ms, now_ms - self.ahead_ms))
            self._keep_at_ms = now_ms + KEEP_EVERY_MS

    def drop(self) -> None:
        """Write it down again soon: the transaction was rolled back."""
        self._keep_at_ms = min(self._keep_at_ms, self._look_at_ms)
