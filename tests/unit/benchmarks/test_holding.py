"""Processes that run only part of the time."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil  # type: ignore[import-untyped] # Its types are a package of their own.

from benchmarks.holding import PERIOD_S, held


def test_a_process_is_stopped_and_continued_and_runs_on_in_the_end() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            process = psutil.Process(busy.pid)
            seen: set[str] = set()
            with held([busy.pid], 0.5):
                ends_s = time.monotonic() + 60
                while not seen >= {psutil.STATUS_STOPPED, psutil.STATUS_RUNNING} and time.monotonic() < ends_s:
                    seen.add(process.status())
                    time.sleep(PERIOD_S / 7)
            assert seen >= {psutil.STATUS_STOPPED, psutil.STATUS_RUNNING}
            assert process.status() == psutil.STATUS_RUNNING
        finally:
            busy.kill()


def test_a_process_that_has_ended_is_let_go() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
        with held([ended.pid], 0.5):
            pass
