from __future__ import annotations

import pytest

from penstock import Penstock


@pytest.fixture
def app() -> Penstock:
    """An app whose server does not exist."""
    return Penstock("http://127.0.0.1:1", timeout=0.2)
