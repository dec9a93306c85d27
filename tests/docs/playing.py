"""Runs what a page shows in a folder of its own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import stat
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.docs.pages import ROOT, Block, Page, pattern
from tests.end_to_end.running import environment

PATIENCE_S = 50.0
_PLAYER = Path(__file__).with_name("player.py")
_STRICTLY = ["-q", "-W", "error", "-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function"]
_SHELL = r"""
curl() {
  if [ "$1" = -N ]; then command curl -sS --max-time 1 "$@" || [ $? = 28 ]; return; fi
  local answer; answer=$(command curl -sS --max-time 20 -w '\n%{http_code}' "$@")
  printf %s "${answer%$'\n'*}"
  case ${answer##*$'\n'} in 2*|409) ;; *) return 1 ;; esac
}
"""
_VARYING = {
    r"\b[0-9a-f]{8}-[0-9a-f]{4}[0-9a-f…-]*": "ID",
    r"\b\d\d:\d\d:\d\d\b": "TIME",
    r"\b\d+(?:\.\d+)? (?:ms|s|min)\b": "DURATION",
    r"\b\d+\.\d+\.\d+\b": "VERSION",
    r"-[0-9a-f]{4}\b": "-NAME",
}


def play(page: Page, folder: Path, replaced: Mapping[str, str] | None = None, *, worker: str | None = None) -> None:
    """Run all Python blocks of a page; `replaced` are texts, such as URLs, that stand for others here."""
    for name, text in page.files().items():
        (folder / name).write_text(_with(text, replaced))
    blocks = [block for block in page.of("python") if block.file is None and not block.not_run]
    played = {
        "worker": worker or page.worker,
        "blocks": [
            {
                "page": page.name,
                "line": block.line,
                "text": _with(block.text, replaced),
                "prints": None if block.prints is None else pattern(block.prints).pattern,
            }
            for block in blocks
        ],
    }
    if blocks:
        _run([sys.executable, str(_PLAYER)], folder, json.dumps(played))
    tests = sorted(name for name in page.files() if name.startswith("test_"))
    if tests:
        _run([sys.executable, "-m", "pytest", *_STRICTLY, *tests], folder)


def run_console(block: Block, folder: Path, replaced: Mapping[str, str] | None = None) -> None:
    """Run the commands of a console block in a terminal, and compare what they write.

    Times, durations, ids and versions may be others. Of a command that is interrupted every line has to come, in any
    order.
    """
    for entered, shown in commands(_with(block.text, replaced)):
        written, code = _in_terminal(entered, shown, folder)
        assert code == 0, f"{entered} exited with {code}:\n{written}"
        if "^C\n" in shown:
            assert _lines(shown) <= _lines(written), f"{entered} wrote:\n{written}"
        else:
            assert pattern(alike(shown)).fullmatch(alike(written).rstrip() + "\n"), f"{entered} wrote:\n{written}"


def run_shell(page: Page, folder: Path, replaced: Mapping[str, str], **variables: str) -> None:
    """Run the `sh` blocks of a page in one shell. A request that is wrong, or a command that fails, ends it.

    That a job is in another state (409) depends on what ran before, and is fine. Streams (`curl -N`) are followed for a
    second.
    """
    blocks = [block for block in page.of("sh") if not block.not_run]
    lines = [_SHELL, *(f"# {page.name}:{block.line}\n{_with(block.text, replaced)}" for block in blocks)]
    ran = subprocess.run(
        ["bash", "-euxc", "\n".join(lines)],
        cwd=folder,
        env=surroundings(folder) | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout[-1_000:]}\n{ran.stderr[-1_000:]}"


def _in_terminal(entered: str, shown: str, folder: Path) -> tuple[str, int]:
    """Run a command in a terminal, interrupt it where that is shown, and return what it wrote and its exit code."""
    before, interrupted, _ = shown.partition("^C\n")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        ["bash", "-c", f"exec {entered}" if interrupted else entered],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=surroundings(folder) | {"TERM": "xterm", "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )
    os.close(theirs)
    deadline = threading.Timer(PATIENCE_S, process.kill)
    deadline.start()
    try:
        written = b""
        # Linux says EIO where the last process has closed a terminal.
        while chunk := _read(ours):
            written += chunk
            if interrupted and _lines(before) <= _lines(_plain(written)):
                interrupted = ""
                process.send_signal(signal.SIGINT)
        return _plain(written), process.wait()
    finally:
        deadline.cancel()
        process.kill()
        process.wait()
        os.close(ours)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


def _plain(written: bytes) -> str:
    """Return what stays on the screen: without colours, and without lines that were erased."""
    text = written.decode(errors="replace").replace("\r\n", "\n")
    text = re.sub(r"\n[^\n]*\x1b\[K(?:\x1b\[A\x1b\[J|\Z)", "", text)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def alike(text: str) -> str:
    """Return a text with times, ids, durations and versions that are the same each time."""
    for varying, fixed in _VARYING.items():
        text = re.sub(varying, fixed, text)
    return text


def _lines(text: str) -> set[str]:
    return {line.strip() for line in alike(text).splitlines() if line.strip()} - {"^C"}


def commands(text: str) -> list[tuple[str, str]]:
    """Return each command of a console block and what is shown below it."""
    found = re.findall(r"^\$ (.*(?:\\\n.*)*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
    assert found, "a console block has a line that begins with $"
    return found


def _run(command: list[str], folder: Path, given: str = "") -> None:
    ran = subprocess.run(
        command,
        input=given,
        cwd=folder,
        env=surroundings(folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


def surroundings(folder: Path) -> dict[str, str]:
    """Return an environment in which `python` and `penstock` are those of this run."""
    programs = folder / ".bin"
    programs.mkdir(exist_ok=True)
    for name, arguments in {"python": (), "penstock": ("-m", "penstock")}.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *arguments])} "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    variables = {name: value for name, value in environment().items() if not name.startswith("AWS_")}
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return variables | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": paths}


def _with(text: str, replaced: Mapping[str, str] | None) -> str:
    for one, other in (replaced or {}).items():
        text = text.replace(one, other)
    return text
