"""mypy and pyright, both in strict mode, reject the wrong lines of `typing_example.py` and accept the others."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import penstock

EXAMPLE = Path(__file__).with_name("typing_example.py")
SOURCE = Path(penstock.__file__).parents[1]
MARK = "  # error: "

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def marked() -> dict[int, str]:
    """Return the numbers of the lines that are wrong, and why they are."""
    lines = enumerate(EXAMPLE.read_text().splitlines(), start=1)
    return {number: line.partition(MARK)[2] for number, line in lines if MARK in line}


def test_the_example_names_everything_that_the_package_exports() -> None:
    text = EXAMPLE.read_text()
    raw = {"Continuation", "Middleware", "NewJob", "__version__", "value_of"}  # These are not about tasks.
    assert [name for name in penstock.__all__ if name not in raw and not re.search(rf"\b{name}\b", text)] == []


def test_mypy_rejects_the_wrong_lines_and_no_others(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir("mypy-typing-example")
    # Without the project's own configuration: a user has another.
    options = ["--strict", "--config-file=", f"--cache-dir={cache}", "--show-absolute-path"]
    command = [sys.executable, "-m", "mypy", *options, str(EXAMPLE)]
    environment = {**os.environ, "MYPYPATH": str(SOURCE)}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    errors = re.findall(r"^(.*?):(\d+): error: (.*)$", ran.stdout, re.MULTILINE)
    assert {path for path, _, _ in errors} == {str(EXAMPLE)}, ran.stdout + ran.stderr
    check({int(number): message for _, number, message in errors})


class Place(msgspec.Struct):
    line: int


class Range(msgspec.Struct):
    start: Place


class Diagnostic(msgspec.Struct):
    file: str
    severity: str
    message: str
    range: Range


class Findings(msgspec.Struct, rename="camel"):
    general_diagnostics: list[Diagnostic]


def test_pyright_rejects_the_wrong_lines_and_no_others(tmp_path: Path) -> None:
    node, pyright = _node(), _pyright()
    copy = tmp_path / EXAMPLE.name
    copy.write_text(EXAMPLE.read_text())
    settings = {"include": [copy.name], "extraPaths": [str(SOURCE)], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({**settings, "pythonVersion": "3.11"}))
    command = [node, pyright, "--project", str(tmp_path), "--pythonpath", sys.executable, "--outputjson"]
    ran = subprocess.run(command, capture_output=True, check=False)
    found = msgspec.json.decode(ran.stdout, type=Findings).general_diagnostics
    errors = [one for one in found if one.severity == "error"]
    assert {Path(one.file).name for one in errors} == {EXAMPLE.name}, ran.stdout
    check({one.range.start.line + 1: one.message for one in errors})


def check(rejected: dict[int, str]) -> None:
    wrong = marked()
    assert len(wrong) > 70
    assert {number: wrong[number] for number in wrong.keys() - rejected.keys()} == {}, "these were accepted"
    assert {number: rejected[number] for number in rejected.keys() - wrong.keys()} == {}, "these were rejected"


def _node() -> str:
    """Return the node that comes with playwright, so that nothing is fetched and no other has to be installed."""
    found = importlib.util.find_spec("playwright")
    if found is None or found.origin is None:
        pytest.skip("playwright is not installed, whose node pyright runs on: pyright was NOT tried. Run `make setup`.")
    return str(Path(found.origin).with_name("driver") / "node")


def _pyright() -> str:
    found = importlib.util.find_spec("pyright")
    if found is None or found.origin is None:
        pytest.skip("pyright is not installed, and was NOT tried. Run `make setup`.")
    return str(Path(found.origin).with_name("dist") / "index.js")
