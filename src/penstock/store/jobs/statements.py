"""The statements of jobs.sql, in the dialect of one store."""

from __future__ import annotations

import re
from enum import Enum
from importlib import resources

_HEADING = re.compile(r"^-- :(\w+)\n", re.MULTILINE)
_PARAMETER = re.compile(r"\$(\d+)")


class Dialect(Enum):
    """Whose SQL. The files are written in PostgreSQL's; a line that ends in `-- [name]` is for that store alone."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


def statements(dialect: Dialect) -> dict[str, str]:
    """Read all statements: each stands under a heading `-- :name` in one of the package's .sql files."""
    other = Dialect.POSTGRES if dialect is Dialect.SQLITE else Dialect.SQLITE
    found: dict[str, str] = {}
    for file in sorted(resources.files(__package__).joinpath("sql").iterdir(), key=lambda file: file.name):
        text = "".join(
            line
            for line in file.read_text(encoding="utf-8").splitlines(keepends=True)
            if not line.rstrip().endswith(f"-- [{other.value}]")
        ).replace(f"-- [{dialect.value}]", "")
        _, *parts = _HEADING.split(text)
        for name, statement in zip(parts[::2], parts[1::2], strict=True):
            assert name not in found, name
            found[name] = _translated(statement.strip(), dialect)
    return found


def _translated(statement: str, dialect: Dialect) -> str:
    if dialect is Dialect.POSTGRES:
        return statement
    return _PARAMETER.sub(r"?\1", statement).replace("penstock.", "")
