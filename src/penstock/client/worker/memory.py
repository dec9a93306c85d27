"""How much memory this process uses."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path


def resident_bytes() -> int:
    """Return the resident set of now; where the system does not show it, the largest so far."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024
