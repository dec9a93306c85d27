"""What `--help` writes: no boxes, one edge for all descriptions, and an example for each command."""

from __future__ import annotations

import inspect
import re
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from penstock.cli import app
from penstock.cli import serve as serve_module
from penstock.cli.worker import command as worker_module
from tests.unit.cli.terminals import Terminal
from tests.unit.cli.test_usage import run

LAB = [("lab",), *(("lab", name) for name in ("ls", "run", "report", "produce", "validate"))]
SCHEDULE = [("schedule",), ("schedule", "ls"), ("schedule", "prune")]
COMMANDS = [(), ("serve",), ("worker",), ("relay",), *SCHEDULE, *LAB]
ENTRY = re.compile(r"  (?P<label>\S+(?: \S+)*)  +(?P<text>\S.*)")

each_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda names: " ".join(names) or "penstock")


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def help_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert run(monkeypatch, *command, "--help") == 0
    written = capsys.readouterr()
    assert written.err == ""
    return written.out


def test_help_says_what_it_does_how_it_is_called_and_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        help_of(monkeypatch, capsys, "schedule", "prune")
        == """\
Remove schedules of every @app.cron that the app no longer has.

penstock schedule prune APP [flags]

  APP              Where the app is, as with penstock worker.

  --import MODULE  Another module that declares tasks. Can be repeated. Give all
                   that your workers get.
  --dry-run        Show what would be removed, and change nothing.
  --yes            Do not ask.
  --all            Also remove schedules of packages that the app has no task
                   in. They may belong to another app.

Example: penstock schedule prune shop:app --dry-run
"""
    )


@each_command
def test_help_fits_80_columns_without_boxes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    lines = help_of(monkeypatch, capsys, *command).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() and line.isascii() for line in lines)


@each_command
def test_all_descriptions_start_in_one_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    entries = [ENTRY.fullmatch(line) for line in help_of(monkeypatch, capsys, *command).splitlines()]
    assert len({entry.start("text") for entry in entries if entry}) == 1


@each_command
def test_help_shows_no_defaults_that_say_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    assert re.findall(r"default:|default (?:\(\)|True|False|0\b(?!\d))", help_of(monkeypatch, capsys, *command)) == []


@each_command
def test_the_example_is_a_command_that_parses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    last = help_of(monkeypatch, capsys, *command).splitlines()[-1]
    label, program, *arguments = last.split()
    assert (label, program) == ("Example:", "penstock")
    assert tuple(arguments[: len(command)]) == command or command == ("schedule",)
    app.parse_args(arguments, exit_on_error=False, print_error=False)


def test_a_default_is_written_after_its_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = help_of(monkeypatch, capsys, "serve")
    assert "  --port N                  Port to listen on. 0 picks a free one.  default 9324\n" in written


def test_a_flag_that_is_on_is_listed_as_what_turns_it_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.findall(r"--(?:no-)?status", help_of(monkeypatch, capsys, "worker")) == ["--no-status"]


@pytest.mark.parametrize("command", [serve_module.serve, worker_module.worker], ids=lambda command: command.__name__)
def test_help_names_every_value_of_a_choice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: object
) -> None:
    assert inspect.isfunction(command)
    hints = {name: hint for name, hint in get_type_hints(command).items() if get_origin(hint) is Literal}
    assert hints
    written = help_of(monkeypatch, capsys, command.__name__)
    for name, hint in hints.items():
        flag = written.partition(f"  --{name.replace('_', '-')} ")[2].partition("\n  --")[0]
        assert [value for value in get_args(hint) if value not in flag] == [], name


def test_in_a_terminal_headings_and_defaults_are_dim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    with Terminal() as terminal:
        monkeypatch.setattr("sys.stdout", terminal.stream)
        app.help_print(["serve"])
        terminal.stream.flush()
    assert "\n\x1b[2mnetwork\x1b[0m\n" in terminal.raw
    assert "\x1b[2mdefault 9324\x1b[0m\n" in terminal.raw
    assert "\x1b[1mpenstock serve [flags]\x1b[0m\n" in terminal.raw
    assert set(re.findall(r"\x1b\[[0-9;]*m", terminal.raw)) == {"\x1b[0m", "\x1b[1m", "\x1b[2m"}
