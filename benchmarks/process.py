"""Processes: the event loop and the memory of this one, and the processor time and memory that others use."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.errors import ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Result = TypeVar("Result")

_PROC = Path("/proc/self")
_GC_THRESHOLDS = (50_000, 20, 50)


def child_environment() -> dict[str, str]:
    """Return the environment of a process that imports `benchmarks`, which is not installed, from any folder."""
    root = str(Path(__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root if inherited is None else os.pathsep.join((root, inherited))}


def loop_name() -> str:
    """Name the kind of event loop that runs."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 # It exists on some systems only.
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[None, None, Result]) -> Result:
    """Run to the end, on uvloop if it is installed, with a garbage collector that seldom walks over what is alive."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            return runner.run(main)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def forget_peak_memory() -> None:
    """Let the peak start again from what is used now, where the system can do that."""
    try:
        (_PROC / "clear_refs").write_text("5")
    except OSError:
        return  # The peak is then that of the whole life of the process, which is an upper bound.


def peak_memory_bytes() -> int:
    """Return the most memory (resident set) that the process had since the peak was last forgotten."""
    return _status_bytes("VmHWM") or _lifetime_peak_bytes()


def memory_bytes() -> int:
    """Return the memory (resident set) that the process has now; the peak, where the system tells no more."""
    return _status_bytes("VmRSS") or _lifetime_peak_bytes()


def _status_bytes(field: str) -> int | None:
    try:
        lines = (_PROC / "status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return None


def _lifetime_peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def cpu_seconds_of(pid: int) -> float:
    """Return the processor time that a process has used so far, in all its threads and in its children."""
    return _sum_over(pid, _cpu_seconds)


def memory_bytes_of(pid: int) -> int:
    """Return the memory (resident set) that a process and its children have now."""
    return int(_sum_over(pid, lambda process: process.memory_info().rss))


def pss_bytes_of(pid: int) -> int:
    """Return the memory of a process and its children; shared pages count once (PSS), where that is known."""

    def read(process: Any) -> float:  # noqa: ANN401 # psutil has no types here.
        memory = process.memory_full_info()
        return float(getattr(memory, "pss", memory.rss))

    return int(_sum_over(pid, read))


def processes_of(pid: int) -> list[int]:
    """Return a process and its children."""
    found: list[int] = []

    def note(process: Any) -> float:  # noqa: ANN401 # psutil has no types here.
        found.append(process.pid)
        return 0.0

    _sum_over(pid, note)
    return found


def _cpu_seconds(process: Any) -> float:  # noqa: ANN401 # psutil has no types here.
    times = process.cpu_times()
    # Children that have ended count with their parent, where the system tells of them.
    ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + ended)


def _sum_over(pid: int, read: Callable[[Any], float]) -> float:
    """Add up what is read of a process and its children, as psutil knows them."""
    try:
        import psutil  # type: ignore[import-untyped] # noqa: PLC0415 # Whoever measures servers installs it; nothing else needs it.
    except ImportError:
        raise ServerUnavailable("what a server uses cannot be read: psutil is not installed") from None
    try:
        server = psutil.Process(pid)
        total = read(server)
        children = server.children(recursive=True)
    except psutil.NoSuchProcess:
        raise ServerUnavailable("the server that is measured has ended") from None
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):  # It ended just now.
            total += read(child)
    return total
