"""What docs/idempotency.md shows is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock import errors
from penstock.client.idempotency import sqlite_records
from penstock.client.idempotency.results import RESULT_BYTES_MAX
from tests.docs.pages import page
from tests.docs.playing import play

PAGE = page("docs/idempotency.md")


@pytest.mark.slow
def test_the_page_runs_as_written(tmp_path: Path, database: str, dynamo: Any, dynamo_url: str) -> None:
    here = f'"dynamodb", "eu-central-1", endpoint_url="{dynamo_url}", aws_access_key_id="x", aws_secret_access_key="x"'
    play(PAGE, tmp_path, {"postgresql://localhost/shop": database, '"dynamodb"': here})


def test_names_and_numbers_of_the_page_are_those_of_the_code() -> None:
    named = set(
        re.findall(
            r"`((?:Idempotency|Records|Result|Fingerprint)\w*(?:Lost|Progress|valid|able|Large|match))`", PAGE.text
        )
    )
    assert len(named) >= 6
    assert all(issubclass(getattr(errors, name), errors.ClientError) for name in named)
    assert f"at most {RESULT_BYTES_MAX // 1024} KiB" in PAGE.text
    assert f"at most {sqlite_records.SWEEP_LIMIT} at a time" in PAGE.text
