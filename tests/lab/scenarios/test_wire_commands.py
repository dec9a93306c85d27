"""Commands in the guides and reports of the scenarios about lost answers, leases, tenants and retries."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from penstock.lab.knobs import FLAGS, turned
from penstock.lab.laboratory import LabSettings, command_of
from penstock.lab.scenarios import scenario

GUIDES = Path(__file__).parents[3] / "docs" / "lab"
NAMES = ["double-send", "lost-response", "lease-theft", "noisy-neighbour", "retry-storm"]


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_a_guide_are_understood(name: str) -> None:
    text = (GUIDES / f"{name}.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ penstock lab run (.+)$", text, re.MULTILINE)
    assert commands
    for command in [*commands, scenario(name).try_command.partition("penstock lab run ")[2]]:
        found, *words = shlex.split(command.removesuffix(" --open"))
        assert found == name
        given: dict[str, str] = {}
        for flag, value in zip(words[::2], words[1::2], strict=True):
            knob, _, turn = value.partition("=") if flag == "--knob" else (flag.removeprefix("--"), "", value)
            given[knob] = turn
        known = {knob.name for knob in scenario(name).knobs}
        assert set(given) <= known
        turned(scenario(name).knobs, given, {})
    assert (GUIDES / "pictures" / f"{name}.svg").read_text(encoding="utf-8").startswith("<svg ")


def test_the_command_of_a_report_names_knobs_without_a_flag() -> None:
    played = scenario("double-send")
    knobs = turned(played.knobs, {"count": "4", "cuts": "2"}, {})
    assert command_of(played, knobs, LabSettings()) == "penstock lab run double-send --seed 7 --count 4 --knob cuts=2"
    assert "cuts" not in FLAGS
