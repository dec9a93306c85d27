"""The statements of jobs: in both dialects, and none that walks over a whole table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import resources

import apsw
import pytest

from penstock.store.jobs.statements import Dialect, statements
from penstock.store.sqlite.migrations import migrate

SQLITE = statements(Dialect.SQLITE)

SMALL = {
    "json_each",
    "job_queue",
    "q",  # Queues.
    "job_removed",  # Read from its beginning, and limited.
    "job_lane USING COVERING INDEX job_lane_empty",
    "job_breaker USING INDEX job_breaker_closed",
}
"""What may be walked over: arguments, queues, and indexes of what is to be removed."""

_COMMENT = re.compile(r"--.*")
_PARAMETER = re.compile(r"\?(\d+)")


@pytest.fixture(scope="module")
def db() -> apsw.Connection:
    db = apsw.Connection(":memory:")
    migrate(db, ":memory:")
    return db


def plan(db: apsw.Connection, statement: str) -> list[str]:
    text = _COMMENT.sub("", statement)
    parameters = max((int(number) for number in _PARAMETER.findall(text)), default=0)
    return [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {text}", (None,) * parameters)]


def walked(db: apsw.Connection, statement: str) -> set[str]:
    """The tables of which every row is visited, but for those that are small."""
    own = set(re.findall(r"(?:CO-ROUTINE|MATERIALIZE) (\w+)", "\n".join(plan(db, statement))))
    scans = {step.removeprefix("SCAN ") for step in plan(db, statement) if step.startswith("SCAN ")}
    return {
        scan
        for scan in scans
        if scan not in SMALL | own and not scan.startswith(("CONSTANT", "json_each ", "q ", "d VIRTUAL"))
    }


@pytest.mark.parametrize("name", SQLITE)
def test_no_statement_walks_over_a_whole_table(db: apsw.Connection, name: str) -> None:
    assert walked(db, SQLITE[name]) == set()


def test_a_walk_is_noticed(db: apsw.Connection) -> None:
    assert walked(db, "SELECT id FROM job WHERE tenant = ?1") == {"job"}


@pytest.mark.parametrize(
    "name", ["positions_by_state", "positions_by_tag", "positions_of_any", "jobs_ahead", "dead_page", "events_after"]
)
def test_pages_are_not_sorted(db: apsw.Connection, name: str) -> None:
    assert not [step for step in plan(db, SQLITE[name]) if "TEMP B-TREE" in step]


def test_both_dialects_have_the_same_statements() -> None:
    postgres = statements(Dialect.POSTGRES)
    assert postgres.keys() == SQLITE.keys()
    for name, text in postgres.items():
        assert set(re.findall(r"\$(\d+)", text)) == set(_PARAMETER.findall(SQLITE[name])), name
        assert "[sqlite]" not in text
        assert "[postgres]" not in SQLITE[name]


def texts(node: ast.AST) -> set[str]:
    """The strings in a piece of code."""
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def scripts() -> Iterator[ast.Module]:
    for file in resources.files("penstock.store.jobs").iterdir():
        if file.name.endswith(".py"):
            yield ast.parse(file.read_text(encoding="utf-8"))


def test_every_statement_is_used_by_some_script() -> None:
    assert SQLITE.keys() - set().union(*map(texts, scripts())) == set()


def test_every_statement_that_a_script_names_is_there() -> None:
    yields = [node for script in scripts() for node in ast.walk(script) if isinstance(node, ast.Yield)]
    steps = [node.value.elts[0] for node in yields if isinstance(node.value, ast.Tuple)]
    # Others are named by a variable, from a list that the test before looks through.
    named = set().union(*(texts(step) for step in steps if isinstance(step, ast.Constant | ast.IfExp)))
    assert len(named) > len(SQLITE) // 2
    assert named - SQLITE.keys() == set()
