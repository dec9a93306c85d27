"""The short help, and what is said about commands and flags that do not exist."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, get_args, get_origin

import cyclopts
from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from penstock import __version__
from penstock.cli.terminal.problems import did_you_mean, problem
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.suggestions import closest
from penstock.cli.terminal.text import Span, harmless

_LABEL_CELLS = 10


def show_short_help(commands: Mapping[str, Sequence[str]]) -> None:
    """Write to stdout what there is, by what it is for, and where to read on."""
    more = {"Local:": "penstock serve", "More:": "penstock COMMAND --help"}
    Screen(sys.stdout).write(
        [
            [Span(f"Penstock {__version__}", "bold"), Span("  durable SQS-compatible queues and jobs")],
            [],
            *([Span(f"{purpose:<{_LABEL_CELLS}}"), Span(", ".join(names))] for purpose, names in commands.items()),
            [],
            *([Span(f"{label:<{_LABEL_CELLS}}", "dim"), Span(text)] for label, text in more.items()),
        ]
    )


def explain(app: cyclopts.App, error: CycloptsError, arguments: Sequence[str]) -> None:
    """Say on stderr what is wrong with arguments, with the one name that was probably meant."""
    screen = Screen(sys.stderr)
    command = " ".join(["penstock", *(error.command_chain or ())])
    read_on = _example(error) or f"{command} --help"
    what, wrong, meant = _fault(app, error, command)
    if meant is None:
        screen.write(problem(screen, "error", what, hint=read_on))
        return
    # Where values are listed, the right one is among them already.
    listed = isinstance(error, CoercionError)
    sentence = [Span(harmless(what)), *(() if listed else did_you_mean(meant))]
    screen.write(
        problem(screen, "error", sentence, hint=shlex.join(["penstock", *_corrected(arguments, wrong, meant)]))
    )


def _fault(app: cyclopts.App, error: CycloptsError, command: str) -> tuple[str, str, str | None]:
    """Return what is wrong in a sentence, the argument in question, and the one that was probably meant."""
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        wrong = error.unused_tokens[0]
        flag = wrong.startswith("-")
        known = [name for name in (error.app or app) if name.startswith("--" if flag else "")]
        return f"No {'flag' if flag else 'command'} named {wrong}.", wrong, closest(wrong, known)
    if isinstance(error, UnknownOptionError) and error.token.source == "cli":
        wrong = (error.token.keyword or error.token.value).partition("=")[0]
        names = [name for argument in error.argument_collection if argument.parse for name in argument.names]
        return f"{command} has no flag {wrong}.", wrong, closest(wrong, [name for name in names if name[:2] == "--"])
    if isinstance(error, CoercionError) and (wanted := _wanted(error)) and error.token is not None:
        wrong, name = error.token.value, error.token.keyword or "The value"
        return f"{name} must be {wanted}, not {wrong or 'empty'}.", wrong, closest(wrong, get_args(error.target_type))
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"{command} takes no argument {error.unused_tokens[0]}.", "", None
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        missing = f"{command} needs {error.argument.name}." if _is_bare(error) else f"{error.keyword} needs a value."
        return missing, "", None
    error.verbose = False
    return " ".join(str(error).split()), "", None


def _is_bare(error: CycloptsError) -> bool:
    """Return whether an argument without a flag was left out."""
    return isinstance(error, MissingArgumentError) and error.keyword is None


def _example(error: CycloptsError) -> str:
    """Return the example of the command's help where the command was given nothing to work on."""
    if not _is_bare(error) or error.app is None:
        return ""
    return str(error.app.help_epilogue or "").removeprefix("Example: ")


def _wanted(error: CoercionError) -> str:
    """Say what a value must be; nothing if that takes more words."""
    if get_origin(error.target_type) is Literal:
        names = [str(name) for name in get_args(error.target_type)]
        return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    kinds: dict[object, str] = {int: "a whole number", float: "a number"}
    return kinds.get(error.target_type, "")


def _corrected(arguments: Sequence[str], wrong: str, meant: str) -> list[str]:
    """Return the arguments with one name or value replaced, also where it is a part of `--name=value`."""
    corrected: list[str] = []
    for given in arguments:
        name, equals, value = given.partition("=")
        parts = [meant if part == wrong else part for part in ((name, value) if equals else (given,))]
        corrected.append(equals.join(parts))
    return corrected
