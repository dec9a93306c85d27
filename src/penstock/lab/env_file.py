"""The file `.env`: five variables, written whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEYS = ("QUEUE_URL", "DLQ_ARN", "AWS_REGION", "MESSAGE_STATUS_TABLE", "MESSAGE_SIDE_EFFECTS_TABLE")


class NotOurs(RuntimeError):
    """The file has settings of somebody else, which would be lost."""


def read(path: Path) -> dict[str, str]:
    """Return the variables of a file; none if there is no such file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    given = (line.strip().removeprefix("export ") for line in lines)
    pairs = (line.partition("=") for line in given if line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}


def read_ours(path: Path) -> dict[str, str]:
    """Return the five variables of a file that has exactly those; none of any other file, which is somebody else's."""
    try:
        found = read(path)
    except (OSError, UnicodeDecodeError):
        return {}
    return found if set(found) == set(KEYS) else {}


def check(path: Path) -> None:
    """Raise `NotOurs` if a file has anything but the five variables."""
    if others := sorted(set(read(path)) - set(KEYS)):
        raise NotOurs(f"{path} has other settings, which would be lost: {', '.join(others)}.")


def write(path: Path, variables: Mapping[str, str]) -> None:
    """Write exactly the five variables."""
    check(path)
    beside = path.with_name(f"{path.name}.new")
    beside.write_text("".join(f"{key}={variables[key]}\n" for key in KEYS), encoding="utf-8")
    beside.replace(path)
