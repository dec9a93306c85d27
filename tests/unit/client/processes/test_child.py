"""The program that a child runs, without a pool."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from penstock.client.worker.processes.frames import Assignment, FrameReader, Run, Setup, decoder_in_parent, frame_of
from tests.unit.client.processes.conftest import MODULE


@pytest.mark.parametrize("kept", [0, 3, 4, 30])
def test_a_child_exits_quietly_if_its_parent_dies_while_it_writes(kept: int) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            child = subprocess.Popen(
                [sys.executable, "-m", "penstock.client.worker.processes.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
            )
        ours.sendall(frame_of(Setup(entry=f"{MODULE}:entry", path=list(sys.path), python_path=None)))
        reader = FrameReader()
        while not (bodies := reader.feed(ours.recv(1024))):
            pass
        assert [type(decoder_in_parent.decode(body)).__name__ for body in bodies] == ["Ready"]
        ours.sendall(frame_of(Run(assignment=Assignment(module=MODULE, qualname="reverse", call=bytes(99))))[:kept])
    _, complaints = child.communicate(timeout=30)
    assert (child.returncode, complaints) == (0, b"")


def test_frames_are_found_wherever_the_stream_is_cut() -> None:
    frames = [frame_of(Setup(entry=entry, path=[], python_path=None)) for entry in ("", "a:b", "c:d" * 99)]
    stream = b"".join(frames)
    for size in range(1, len(stream) + 1):
        reader = FrameReader()
        found = [body for at in range(0, len(stream), size) for body in reader.feed(stream[at : at + size])]
        assert found == [frame[4:] for frame in frames]
