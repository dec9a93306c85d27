"""The page about leaving Celery runs as written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.conftest import folder, postgres_server, store
from tests.docs.pages import page
from tests.docs.playing import play

__all__ = ["folder", "postgres_server", "store"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_the_page_about_leaving_celery_runs_as_written(store: str, folder: Path) -> None:
    play(page("docs/celery.md"), folder, {"sqlite:jobs.db": store})
