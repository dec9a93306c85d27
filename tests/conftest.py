"""What holds for all tests, and what parts of the product are made with. A test or a folder may replace any of it."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

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

# A shell starts what it runs in the background without SIGINT, and so would be all processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a command sets up for its process, when a test runs it in its own."""
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in list(logging.root.manager.loggerDict))]
    before = [(logger, logger.level, logger.propagate, logger.disabled) for logger in loggers]
    disabled = logging.root.manager.disable
    yield
    logging.disable(disabled)
    for logger, level, propagate, was_disabled in before:
        if logger.level != level:
            logger.setLevel(level)
        logger.propagate, logger.disabled = propagate, was_disabled


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
