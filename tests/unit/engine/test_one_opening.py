"""`Engine.open` is how programs, benchmarks and tests get an engine; only tests of the stores go below it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
BELOW = ("tests/unit/store/", "tests/simulation/", "tests/unit/engine/test_one_opening.py")
"""Where stores themselves are tested, and what kills them."""


def test_only_the_engine_and_tests_of_stores_open_a_store_by_its_address() -> None:
    files = [path for folder in ("src", "tests", "benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py")]
    opening = [str(path.relative_to(ROOT)) for path in files if "penstock.store.opening" in path.read_text()]
    assert [path for path in opening if not path.startswith(BELOW)] == ["src/penstock/engine/engine.py"]


def test_nothing_that_is_shipped_or_measured_builds_an_engine_by_hand() -> None:
    files = [path for folder in ("src", "benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py")]
    assert [str(path.relative_to(ROOT)) for path in files if " Engine(" in path.read_text()] == []
