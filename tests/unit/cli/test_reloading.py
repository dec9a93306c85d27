"""Which files `--reload` watches."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from penstock.cli.failures import Failure
from penstock.cli.worker import reloading
from penstock.cli.worker.reloading import changed_file, snapshot


def test_python_files_of_the_project_are_watched_and_no_others(tmp_path: Path) -> None:
    files = [
        "shop.py",
        "shop/mail/deliver.py",
        "shop/notes.txt",
        ".git/hook.py",
        "env/pyvenv.cfg",
        "env/lib/library.py",
        "node_modules/tool.py",
        "shop/__pycache__/mail.py",
    ]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    watched = {os.path.relpath(path, tmp_path) for path in snapshot(tmp_path)}
    assert watched == {"shop.py", "shop/mail/deliver.py"}


def test_files_that_are_new_changed_or_gone_are_noticed(tmp_path: Path) -> None:
    module = tmp_path / "shop.py"
    seen = [snapshot(tmp_path)]
    module.write_text("one = 1")
    seen.append(snapshot(tmp_path))
    module.write_text("eleven = 11")
    seen.append(snapshot(tmp_path))
    os.utime(module, ns=(1, 1))
    seen.append(snapshot(tmp_path))
    module.unlink()
    seen.append(snapshot(tmp_path))
    assert [changed_file(before, after) for before, after in itertools.pairwise(seen)] == [str(module)] * 4
    assert changed_file(seen[1], dict(seen[1])) is None


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "FILES_MAX", 2)
    for number in range(3):
        (tmp_path / f"module{number}.py").touch()
    with pytest.raises(Failure, match="too many to watch"):
        snapshot(tmp_path)
