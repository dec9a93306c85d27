"""What holds for all tests, and what parts of the product are made with. A test or a folder may replace any of it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from penstock.domain.failpoints import Failpoints
from penstock.domain.limits import Limits
from penstock.testing import CountedIds, ManualClock
from tests.support.exploring import EXPLORING

# The same examples every time, so that a failure is one for everybody; and however slow a machine is, it is no failure.
settings.register_profile(
    "penstock",
    derandomize=not EXPLORING,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("penstock")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ids() -> CountedIds:
    return CountedIds()


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
def failpoints() -> Failpoints:
    return Failpoints()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the campaigns found."""
    lines = [
        f"{report.nodeid}: {value}"
        for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
        for name, value in report.user_properties
        if report.when == "call" and name == "evidence"
    ]
    if lines:
        terminalreporter.section("evidence")
        for line in lines:
            terminalreporter.write_line(line)
