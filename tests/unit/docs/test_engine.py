"""The examples of docs/engine.md run, and print what the text says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[3] / "docs" / "engine.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\nIt prints `([^`]+)`", TEXT, re.DOTALL)


@pytest.mark.parametrize(("code", "printed"), EXAMPLES, ids=["job", "message"])
def test_an_example_prints_what_the_text_says(code: str, printed: str) -> None:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, printed), ran.stderr


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == TEXT.count("```python")
