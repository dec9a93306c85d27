"""The programs in examples/ run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, page, pattern
from tests.end_to_end.running import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

EXAMPLES = {
    "charge_once.py": [],
    "fan_out_42_fields.py": [],
    "outbox.py": [],
    "littles_law.py": ["--seconds", "1", "--slots", "4", "--task-ms", "20", "--rates", "50", "400"],
    "saga.py": [],
    "three_consumers.py": [],
    "three_sqs_consumers.py": [],
}


ELSEWHERE = {"fastapi_shop.py": "integrations/test_fastapi_example.py"}
"""Programs that need more, and the tests that run them."""


def run(name: str, folder: Path, store: str | None = None) -> str:
    """Run an example in a folder and return what it prints."""
    variables = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *EXAMPLES[name]],
        cwd=folder,
        env=environment(**variables) | ({} if store is None else {"PENSTOCK_URL": store}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_the_fan_out_assembles_all_that_there_is(store: str, folder: Path) -> None:
    last = run("fan_out_42_fields.py", folder, store).splitlines()[-2:]
    assert last == ["42 of 42 fields, 1 failed", "42 fields in the record of doc-123, 1 without a value: lender"]


def test_each_order_is_charged_once(store: str, folder: Path) -> None:
    assert run("outbox.py", folder, store).splitlines() == [
        "20 orders tried, 15 placed",
        "15 jobs in 20 attempts, 15 charges booked, 0 left",
    ]


def test_jobs_in_the_system_are_rate_times_time(store: str, folder: Path) -> None:
    below, above = re.findall(r"^ +(.*)$", run("littles_law.py", folder, store), re.MULTILINE)[1:]
    asked, rate, time_ms, product, *_, left = (float(number) for number in below.split())
    assert asked == 50
    assert abs(rate * time_ms / 1_000 - product) < 0.1
    assert left < float(above.split()[-1]), "above capacity the queue grows"


def test_the_table_of_the_page_has_the_columns_of_the_program(folder: Path) -> None:
    [shown] = [block for block in page("docs/workers.md").of("text") if "λ × W" in block.text]
    first, heads, *_ = run("littles_law.py", folder).splitlines()
    assert pattern(shown.text.splitlines()[1]).fullmatch(heads + "\n")
    assert first.startswith("4 slots, tasks of 20 ms")


@pytest.mark.parametrize("name", ["charge_once.py", "saga.py", "three_consumers.py", "three_sqs_consumers.py"])
def test_a_pattern_holds_while_its_workers_are_killed(name: str, store: str, folder: Path) -> None:
    """What it prints is what the page shows."""
    assert f"```text\n{run(name, folder, store)}```" in page("docs/patterns.md").text


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {*EXAMPLES, *ELSEWHERE}
    for name, test in ELSEWHERE.items():
        assert name in (ROOT / "tests" / test).read_text()
