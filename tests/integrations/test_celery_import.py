"""Celery is loaded by whoever asks for it, and by nobody else."""

from __future__ import annotations

import subprocess
import sys

from tests.end_to_end.running import environment


def run(program: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment()
    )
    return ran.stdout + ran.stderr


def test_penstock_loads_no_celery() -> None:
    loaded = run("import sys; from penstock import Penstock, Worker; print({'celery', 'kombu'} & {*sys.modules})")
    assert loaded == "set()\n"


def test_a_missing_celery_is_named() -> None:
    assert "penstock.celery needs Celery" in run("import sys; sys.modules['celery'] = None; import penstock.celery")
