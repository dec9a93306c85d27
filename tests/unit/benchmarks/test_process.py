"""What is read of server processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for a few calls here.
import pytest

from benchmarks.errors import ServerUnavailable
from benchmarks.process import cpu_seconds_of, memory_bytes_of

_CHILD = "import time; end = time.process_time() + 0.05\nwhile time.process_time() < end: pass\nprint('up'); input()"
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_CHILD!r}])"


@pytest.fixture
def family() -> Iterator[int]:
    """A process that waits for its child, which has worked for a while."""
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent:
        assert parent.stdout.readline() == b"up\n"
        yield parent.pid
        parent.stdin.write(b"\n")


def test_children_count(family: int) -> None:
    alone = psutil.Process(family)
    assert memory_bytes_of(family) > alone.memory_info().rss
    times = alone.cpu_times()
    assert cpu_seconds_of(family) >= times.user + times.system + 0.04


def test_of_a_process_that_has_ended_nothing_can_be_read() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for read in (cpu_seconds_of, memory_bytes_of):
        with pytest.raises(ServerUnavailable, match="has ended"):
            read(ended.pid)
    assert cpu_seconds_of(os.getpid()) > 0
