"""`penstock serve` as a person meets it: on a real terminal, stopped with Ctrl+C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import __version__
from tests.end_to_end.running import STOP_TIMEOUT_S, command, environment
from tests.support.postgres import PostgresServer
from tests.unit.cli.terminals import shown

pytestmark = pytest.mark.slow

Session = Callable[..., tuple[str, str, int]]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Run a server on a terminal until it is ready, press Ctrl+C, and return screen, stdout and exit code."""

    def run(*arguments: str, piped: bool = False) -> tuple[str, str, int]:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        process = subprocess.Popen(
            command("serve", "--port", "0", *arguments),
            stdin=slave,
            stdout=subprocess.PIPE if piped else slave,
            stderr=slave,
            cwd=tmp_path,
            env=environment(TERM="xterm-256color", LANG="C.UTF-8", NO_COLOR=""),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - Ctrl+C is for its group
        )
        os.close(slave)
        written = b""
        try:
            while b"Ready in" not in written:
                written += os.read(master, 65_536)
            os.write(master, b"\x03")
            written += read_to_the_end(master)
            code = process.wait(timeout=STOP_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
            os.close(master)
        assert piped or process.stdout is None
        said = ""
        if process.stdout is not None:
            with process.stdout:
                said = process.stdout.read().decode()
        return written.decode(), said, code

    return run


def read_to_the_end(master: int) -> bytes:
    read = b""
    while True:
        try:
            part = os.read(master, 65_536)
        except OSError:  # Linux says so once nobody has the other end.
            return read
        if not part:
            return read
        read += part


def without_numbers(screen: str) -> str:
    """Replace what is another number each time: ports, times and durations."""
    for found, written in ((r"127\.0\.0\.1:\d+", "127.0.0.1:9324"), (r"\d\d:\d\d:\d\d", "00:00:00")):
        screen = re.sub(found, written, screen)
    return re.sub(r"in \d+(\.\d+)? m?s", "in 0.3 s", screen)


def test_a_person_sees_a_banner_and_how_it_stops(session: Session) -> None:
    written, _, code = session("--store", "sqlite:data/penstock.db")
    assert code == 0
    assert (
        without_numbers(shown(written))
        == f"""\
Penstock {__version__} on http://127.0.0.1:9324

  store   sqlite:data/penstock.db  new
  holds   no queues yet
  SQS     --endpoint-url http://127.0.0.1:9324  region us-east-1
  access  no keys set  only this machine can connect

✓ Ready in 0.3 s. Press Ctrl+C to stop.
^C
00:00:00 ‖ stopping  no request under way; at most 5 s
00:00:00 ✓ stopped   in 0.3 s; store closed, everything is on disk
"""
    )
    again, _, _ = session("--store", "sqlite:data/penstock.db")
    assert re.search(r"sqlite:data/penstock.db  [\d.]+ KiB, schema \d+\n", shown(again))


def test_a_program_that_reads_stdout_gets_its_line_also_next_to_a_banner(session: Session) -> None:
    written, said, code = session("--store", "memory:", piped=True)
    assert code == 0
    assert re.fullmatch(r"penstock is ready at http://127\.0\.0\.1:[1-9][0-9]*\n", said)
    assert "Penstock" in written


@pytest.mark.timeout(180)
def test_several_processes_say_together_that_they_start_and_stop(
    session: Session, postgres_server: PostgresServer
) -> None:
    name = postgres_server.create_database("template1")
    try:
        written, _, code = session("--workers", "2", "--store", postgres_server.dsn(name))
    finally:
        postgres_server.drop_database(name)
    assert code == 0
    screen = without_numbers(shown(written))
    assert "  PostgreSQL\n" in screen
    assert screen.endswith("""\
✓ Ready in 0.3 s. Press Ctrl+C to stop.
^C
00:00:00 ‖ stopping  2 processes; at most 10 s
00:00:00 ✓ stopped   in 0.3 s; store closed
""")


def test_no_colour_means_none(session: Session) -> None:
    written, _, _ = session("--store", "memory:", "--color", "never")
    assert "\x1b" not in written
