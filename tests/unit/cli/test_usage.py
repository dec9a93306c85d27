"""The short help, what is said about arguments that make no sense, and starts that fail."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli import COMMANDS, app, main
from penstock.cli.starting import start_failure
from penstock.cli.terminal.screen import Screen
from penstock.server.config import ServerConfig, StartFailure
from penstock.server.config_file import ConfigFile
from tests.unit.cli.terminals import UTF8, Terminal


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert isinstance(end.value.code, int)
    return end.value.code


def test_without_arguments_the_commands_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch) == 0
    written = capsys.readouterr()
    assert written.out.startswith(f"Penstock {__version__}  durable SQS-compatible queues and jobs\n\nRun       serve")
    assert written.out.endswith("\nLocal:    penstock serve\nMore:     penstock COMMAND --help\n")
    assert written.err == ""


def test_the_short_help_lists_every_command_and_no_other() -> None:
    listed = [name.split()[0] for names in COMMANDS.values() for name in names]
    assert sorted(listed) == sorted(name for name in app if not name.startswith("-"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("srve", "--port", "0"),
            "error: No command named srve. Did you mean serve?\n  try  penstock serve --port 0\n",
        ),
        (("xyzzy",), "error: No command named xyzzy.\n  try  penstock --help\n"),
        (("--versoin",), "error: No flag named --versoin. Did you mean --version?\n  try  penstock --version\n"),
        (
            ("serve", "--prot=9325"),
            "error: penstock serve has no flag --prot. Did you mean --port?\n  try  penstock serve --port=9325\n",
        ),
        (("serve", "--nothing"), "error: penstock serve has no flag --nothing.\n  try  penstock serve --help\n"),
        (("serve", "--port", "x"), "error: --port must be a whole number, not x.\n  try  penstock serve --help\n"),
        (
            ("serve", "--log-format", "jsn"),
            "error: --log-format must be console or json, not jsn.\n  try  penstock serve --log-format json\n",
        ),
        (
            ("serve", "--color=blue"),
            "error: --color must be auto, always or never, not blue.\n  try  penstock serve --help\n",
        ),
        (("serve", "--host"), "error: --host needs a value.\n  try  penstock serve --help\n"),
        (
            ("worker",),
            "error: penstock worker needs APP.\n  try  penstock worker shop:app -q mail:20 -q docs --processes 2\n",
        ),
        (("serve", "now"), "error: penstock serve takes no argument now.\n  try  penstock serve --help\n"),
        (("se\x1b[2J",), "error: No command named se\\x1b[2J.\n  try  penstock --help\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_arguments_that_make_no_sense_are_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run(monkeypatch, *arguments) == 2
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", said)


def explained(failure: StartFailure, *, columns: int = 80) -> Terminal:
    with Terminal(columns) as terminal:
        screen = Screen(terminal.stream, environment=UTF8)
        screen.write(start_failure(screen, failure))
    return terminal


def test_an_open_address_is_refused_as_drawn() -> None:
    with pytest.raises(StartFailure) as failure:
        ServerConfig(host="0.0.0.0").check()
    terminal = explained(failure.value)
    assert (
        terminal.screen
        == """\
refused: 0.0.0.0 is reachable from other machines, and no keys are set.
  try  add [[keys]] to a file and pass --config FILE, or --insecure
"""
    )
    assert terminal.raw.startswith("\x1b[1;31mrefused:\x1b[0m 0.0.0.0")


def failure_of(path: Path, text: str) -> StartFailure:
    path.write_text(text)
    with pytest.raises(StartFailure) as failure:
        ConfigFile(path.name)
    return failure.value


def test_an_unknown_setting_is_shown_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = "# a comment\n" * 12
    terminal = explained(failure_of(tmp_path / "penstock.toml", before + 'host = "0.0.0.0"\nprot = 9324\n'))
    assert (
        terminal.screen
        == """\
error: penstock.toml, line 14: unknown setting prot.

  13 │ host = "0.0.0.0"
  14 │ prot = 9324
     │ ^^^^ did you mean port?
"""
    )
    assert "\x1b[31m^^^^\x1b[0m did you mean \x1b[1mport\x1b[0m?" in terminal.raw


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('monitoring_token = "hush hush"\nprot = 1', "  2 │ prot = 1\n    │ ^^^^ did you mean port?\n"),
        ('stroe = "postgresql://me:hush@db/x"', "  1 │ stroe = …\n    │ ^^^^^ did you mean store?\n"),
        ('[[keys]]\nsecret_access_kye = "hush"', "  2 │ secret_access_kye = …\n"),
        ("[server]\nport = 1", "error: penstock.toml, line 1: unknown setting server.\n"),
    ],
)
def test_an_excerpt_shows_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, shown: str) -> None:
    monkeypatch.chdir(tmp_path)
    terminal = explained(failure_of(tmp_path / "penstock.toml", text))
    assert shown in terminal.screen
    assert "hush" not in terminal.screen


def test_a_long_error_wraps_under_its_text_in_a_terminal_only() -> None:
    failure = StartFailure("The store cannot be opened, because " + "somebody has it open " * 3 + "now.")
    assert (
        explained(failure).screen
        == """\
error: The store cannot be opened, because somebody has it open somebody has it
       open somebody has it open now.
"""
    )
    stream = io.StringIO()
    screen = Screen(stream, environment=UTF8)
    screen.write(start_failure(screen, failure))
    assert stream.getvalue() == f"error: {failure}\n"
