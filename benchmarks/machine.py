"""The machine that a benchmark runs on, in a few words."""

from __future__ import annotations

import os
import platform


def describe_machine() -> str:
    """Say what the figures depend on most."""
    return f"{os.cpu_count()} CPUs, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
