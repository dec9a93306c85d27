"""The guides of the lab: every command prints what its page says, and every picture is of the scenario as it is."""

from __future__ import annotations

import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from penstock.lab.scenarios import NAMES
from scripts import make_lab_pictures
from scripts.make_lab_pictures import PICTURES, made_pictures
from tests.docs.pages import Block, page, pages, pattern
from tests.docs.playing import alike, commands, play, surroundings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

GUIDES = [name for name in pages() if name.startswith("docs/lab/") and Path(name).stem in NAMES]
SHOWN = {0: "✓", 4: "[✕?]"}
"""How the last lines of a run begin, by its exit code."""


@pytest.mark.parametrize("name", GUIDES)
def test_what_a_guide_says_to_try_prints_what_it_says(name: str, folder: Path) -> None:
    blocks = [block for block in page(name).of("console") if not block.not_run]
    assert blocks, "a guide has one thing to try"
    for block in blocks:
        run_commands(block, folder)


def run_commands(block: Block, folder: Path) -> None:
    """Run the commands of a block in a pipe, where the width is always the same."""
    for entered, shown in commands(block.text):
        ran = subprocess.run(
            ["bash", "-c", entered],
            cwd=folder,
            env=surroundings(folder) | {"LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert pattern(alike(shown)).fullmatch(alike(ran.stdout).rstrip() + "\n"), f"{entered} wrote:\n{ran.stdout}"
        assert re.search(rf"^{SHOWN[ran.returncode]} ", shown, re.MULTILINE), ran.returncode
        assert ran.stderr == ""


def test_the_design_notes_run_as_written(folder: Path) -> None:
    play(page("docs/lab/design-notes.md"), folder)


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_has_its_picture_and_fits_a_screen(name: str) -> None:
    text = page(name).text
    assert f"](pictures/{Path(name).stem}.svg)" in text
    assert text.count("\n") <= 60
    for word in ("**What happens.**", "**Why.**", "**What to do about it.**", "## Try it"):
        assert word in text


@pytest.mark.parametrize("name", ["crash", "duplicates"])
def test_a_picture_is_what_the_scenario_draws_today(name: str) -> None:
    [(path, picture)] = made_pictures([name])
    assert path.read_text(encoding="utf-8") == picture, "run python scripts/make_lab_pictures.py"


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_needs_no_other_file_and_knows_the_dark(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert root.tag.endswith("svg")
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"url\((?!#)|@import|<script|<image|<foreignObject", text)
    targets = {value for element in root.iter() for key, value in element.items() if key.endswith("href")}
    ids = {element.get("id") for element in root.iter()}
    assert {target.removeprefix("#") for target in targets} <= ids


def test_the_index_of_guides_has_all_of_them() -> None:
    index = page("docs/lab/README.md").text
    assert {name for name in GUIDES if f"({Path(name).name})" not in index} == set()


def test_the_script_says_which_pictures_are_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_lab_pictures, "PICTURES", tmp_path)
    assert make_lab_pictures.main(["--check", "crash"]) == 1
    assert make_lab_pictures.main(["crash"]) == 0
    assert make_lab_pictures.main(["--check", "crash"]) == 0
