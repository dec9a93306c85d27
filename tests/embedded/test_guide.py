"""What docs/embedded.md shows is true: its examples and its unit run, and files, record and messages are as it says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock import Penstock, errors, value_of
from penstock.client import errors as client_errors
from penstock.store.ownership.record import Record
from tests.docs.pages import page
from tests.end_to_end.running import RunningServer
from tests.support.embedded import PATIENCE_S, EmbeddedFile

PAGE = page("docs/embedded.md")
GUIDE = PAGE.text
SOURCES = Path(__file__).parents[2] / "src" / "penstock"


def blocks(language: str) -> list[str]:
    return [block.text for block in PAGE.of(language)]


def test_the_examples_share_a_file(file: EmbeddedFile) -> None:
    for example in blocks("python"):
        subprocess.run([sys.executable, "-c", example], cwd=file.path.parent, check=True, timeout=PATIENCE_S)
        file.note_processes()
    with Penstock.embedded(file.path) as app:
        [job] = app.sync.jobs.list(queue="mail").jobs
        assert value_of(app.sync.jobs.result(job.id).result) == {"sent": "ada@example.org"}


def test_clients_find_the_owner_of_the_unit(file: EmbeddedFile, tmp_path: Path) -> None:
    [unit] = blocks("ini")
    [command] = re.findall(r"^ExecStart=\S+/penstock serve (.*)$", unit, re.MULTILINE)
    arguments = shlex.split(command.replace("/srv/app", str(tmp_path)))
    with RunningServer(tmp_path, *arguments) as server:
        assert file.client().ask("GET", "/v1/owner").json()["pid"] == server.process.pid


def test_the_record_is_as_shown(file: EmbeddedFile) -> None:
    [shown] = re.findall(r'^\{"state".*$', GUIDE, re.MULTILINE)
    assert msgspec.json.decode(shown, type=Record).state == "ready"
    file.dial().close()
    assert list(json.loads(Path(f"{file.path}.lock").read_text())) == list(json.loads(shown))


def test_every_message_of_the_guide_is_one_that_is_raised() -> None:
    [table] = re.findall(r"\| message \| what to do \|\n\|---\|---\|\n(.*?)\n\n", GUIDE, re.DOTALL)
    # Of each message the longest part without names and numbers.
    texts = [re.findall(r"^\| `(.*?)` \|", row)[0] for row in table.splitlines()]
    code = "".join(re.sub(r'"\s*\n\s*f?"', "", place.read_text()) for place in SOURCES.rglob("*.py"))
    assert len(texts) > 8
    for text in texts:
        part = max(re.split(r"…|\bN\b|\d+|: Read-only.*", text), key=len).strip(" .,:")
        assert part in code, part


@pytest.mark.parametrize("name", ["OwnerNotResponding", "OwnerNotFound", "OwnerNotStarted", "OwnerAccessDenied"])
def test_errors_of_owners_are_exported(name: str) -> None:
    assert issubclass(getattr(errors, name), client_errors.OwnerError)
