"""Several processes of one worker: they are started, started again when they die, and stopped together."""

from __future__ import annotations

import signal
import time

from penstock.cli.failures import INTERRUPTED
from penstock.cli.worker.children import Child, Signals, described
from penstock.cli.worker.observing import Sayer
from penstock.cli.worker.parent import KILL_AFTER_S
from penstock.cli.worker.settings import WorkerSettings

SHORT_LIFE_S = 10.0
SHORT_LIVES_MAX = 5
"""After this many short lives in a row a process is not started again."""
BACKOFF_S = 0.25
BACKOFF_S_MAX = 5.0
LOOK_S = 0.1
IDLE_S = 1.0


class _Place:
    """One of the processes, through all of its lives."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: Child | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        """When it is to be started, if it does not run."""
        self.was_ready = False
        self.short_lives = 0
        """How many in a row."""


class Supervisor:
    """Runs the processes of a worker until it is stopped. It never imports the app.

    The first process starts alone: if it cannot start, this is said once, and that is the end. The others follow when
    the first is ready.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._sayer = Sayer(settings)
        self._places = [_Place(number) for number in range(1, settings.processes + 1)]
        self._stops = 0
        """How often it was asked to stop."""
        self._kill_at: float | None = None
        self._failed: int | None = None
        """The exit code, if it gave up."""

    def run(self) -> int:
        """Return the exit code once all processes have ended."""
        with Signals().heeded() as signals:
            self._start(self._places[0])
            while True:
                for _ in signals.wait(self._patience()):
                    self._stop()
                self._look()
                if self._kill_at is not None and not any(place.child for place in self._places):
                    break
        if self._failed is not None:
            return self._failed
        return INTERRUPTED if self._stops > 1 else 0

    def _patience(self) -> float:
        """Return for how long there is nothing to do unless a signal comes."""
        settled = self._kill_at is None and all(place.child and place.was_ready for place in self._places)
        return IDLE_S if settled else LOOK_S

    def _start(self, place: _Place) -> None:
        place.started_at = time.monotonic()
        place.child = Child(self._settings.one_process(place.number).arguments(), place.number)

    def _look(self) -> None:
        now = time.monotonic()
        for place in self._places:
            if place.child is not None:
                code = place.child.ended()
                place.was_ready = place.was_ready or place.child.ready
                if code is not None:
                    place.child = None
                    self._ended(place, code, now)
                elif self._kill_at is not None and now >= self._kill_at:
                    place.child.signal(signal.SIGKILL)
            elif self._kill_at is None and now >= place.start_at and self._may_start(place):
                self._start(place)

    def _may_start(self, place: _Place) -> bool:
        first = self._places[0]
        return place is first or first.was_ready

    def _ended(self, place: _Place, code: int, now: float) -> None:
        if self._kill_at is not None:
            return
        if code > 0 and not place.was_ready:
            # It said itself what is wrong, and would say the same again.
            self._give_up(code)
            return
        place.short_lives = place.short_lives + 1 if now - place.started_at < SHORT_LIFE_S else 0
        name = self._settings.one_process(place.number).name
        if place.short_lives == SHORT_LIVES_MAX:
            self._sayer.warn(
                f"{name} ended {SHORT_LIVES_MAX} times in a row within {SHORT_LIFE_S:g} s of its start, the last time "
                f"by {described(code)}. The worker stops."
            )
            self._give_up(1)
            return
        pause_s = min(BACKOFF_S * 2 ** max(place.short_lives - 1, 0), BACKOFF_S_MAX)
        place.start_at = now + pause_s
        self._sayer.warn(f"{name} ended by {described(code)}. It starts again in {pause_s:g} s.")

    def _give_up(self, code: int) -> None:
        self._failed = code
        self._signal_all()

    def _stop(self) -> None:
        """Pass a request to stop on: the first one gives running jobs their grace, the second gives them back now."""
        self._stops += 1
        self._signal_all()

    def _signal_all(self) -> None:
        left_s = KILL_AFTER_S + (self._settings.grace_s if self._stops <= 1 else 0.0)
        self._kill_at = time.monotonic() + left_s
        for place in self._places:
            if place.child is not None:
                place.child.signal(signal.SIGTERM)
