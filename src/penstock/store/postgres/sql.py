"""The statements in this package's .sql files, by name."""

from __future__ import annotations

import re
from importlib import resources

_HEADING = re.compile(r"^-- :(\w+)\n", re.MULTILINE)


def statements(file: str) -> dict[str, str]:
    """Read `sql/{file}.sql`: each statement stands under a heading `-- :name`."""
    text = resources.files(__package__).joinpath("sql", f"{file}.sql").read_text(encoding="utf-8")
    _, *parts = _HEADING.split(text)
    return {name: statement.strip() for name, statement in zip(parts[::2], parts[1::2], strict=True)}
