"""How large campaigns are: full size in `make evidence`, a small part of it everywhere else."""

from __future__ import annotations

import os

import pytest

GATHERING_EVIDENCE = "PENSTOCK_TEST_EVIDENCE" in os.environ

campaign = pytest.mark.campaign
"""Marks a test that takes its number of trials from `trials`, and reports with `record_property("evidence", line)`."""


def trials(full: int, *, share: int = 20) -> int:
    """Return how many trials to run: `full` as evidence, otherwise one in `share` of them."""
    return full if GATHERING_EVIDENCE else max(1, full // share)
