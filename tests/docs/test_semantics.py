"""The document about semantics names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_every_promise_is_shown_by_tests_that_there_are() -> None:
    sections = (ROOT / "docs" / "semantics.md").read_text().split("\n## ")[1:]
    shown = {section.partition("\n")[0]: _NAMED.findall(section) for section in sections}
    missing = [
        f"{path}::{name}"
        for tests in shown.values()
        for path, name in tests
        if f"def {name}(" not in _text(ROOT / "tests" / path)
    ]
    assert missing == []
    # What follows from the rest has none of its own.
    assert {title for title, tests in shown.items() if not tests} == {"CAP, in one paragraph"}


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
