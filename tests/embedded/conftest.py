"""A database file that processes share, and the owner processes that a test leaves behind, ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.embedded import EmbeddedFile


@pytest.fixture
def file(tmp_path: Path) -> Iterator[EmbeddedFile]:
    file = EmbeddedFile(tmp_path / "jobs.db")
    yield file
    file.close()
