"""Knobs of scenarios: their defaults, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lab.scenarios import scenario
from tests.unit.cli.test_usage import run as run_command

DEFAULTS: dict[str, dict[str, int | float]] = {
    "fifo-order": {"count": 10, "consumer-count": 5},
    "backpressure": {"rate": 5.0, "depth-threshold": 10, "equilibrium-ticks": 3},
    "purge-timing": {"iterations": 2, "count": 10, "danger-count": 10, "safe-delay": 65.0},
    "out-of-order": {"count": 10},
    "backlog-drain": {"stale-after": 15.0},
    "dlq-redrive": {"count": 5, "visibility-timeout": 10},
}
BAD = [
    ("fifo-order", "--consumer-count", "0", "--consumer-count must be"),
    ("fifo-order", "--knob", "groups=none", "--knob groups must be"),
    ("backpressure", "--iterations", "1", "--iterations must be"),
    ("backpressure", "--knob", "rate=-1", "--knob rate must be"),
    ("purge-timing", "--safe-delay", "soon", "--safe-delay must be"),
    ("purge-timing", "--danger-count", "0", "--danger-count must be"),
    ("out-of-order", "--count", "1", "--count must be"),
    ("backlog-drain", "--knob", "stale-after=0", "--knob stale-after must be"),
    ("backlog-drain", "--knob", "outages=3", "Did you mean outage?"),
    ("dlq-redrive", "--consumer-count", "2", "dlq-redrive has no knob consumer-count"),
    ("double-send", "--knob", "cuts=5", "--knob cuts must be"),
    ("double-send", "--knob", "fifo=yes", "--knob fifo must be"),
    ("lost-response", "--knob", "cuts=0", "--knob cuts must be"),
    ("lease-theft", "--processing-delay", "0", "--processing-delay must be"),
    ("noisy-neighbour", "--knob", "wait-factor=0.5", "--knob wait-factor must be"),
    ("retry-storm", "--iterations", "0", "--iterations must be"),
    ("retry-storm", "--consumer-count", "2", "retry-storm has no knob consumer-count"),
]


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_of_the_documentation(name: str) -> None:
    knobs = {knob.name: knob.default for knob in scenario(name).knobs}
    assert {knob: knobs[knob] for knob in DEFAULTS[name]} == DEFAULTS[name]


@pytest.mark.parametrize(("name", "flag", "value", "said"), BAD)
def test_a_bad_knob_is_refused_before_anything_runs(
    name: str,
    flag: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert run_command(monkeypatch, "lab", "run", name, flag, value, "--out", str(tmp_path / "lab")) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "lab").exists()
