"""How log lines look, for people and for machines."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from penstock.server.logs import ConsoleFormatter, JsonFormatter

CREATED_S = 1_763_000_000.25


def record(text: str, *arguments: object, level: int = logging.INFO, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("penstock.part").makeRecord(
        "penstock.part", level, "file.py", 1, text, arguments, None, extra=extra
    )
    made.created = CREATED_S
    return made


def test_a_line_of_json_has_the_event_and_the_fields_that_we_know() -> None:
    told = json.loads(JsonFormatter().format(record("Job %s is done", 7, status=200, job_id="j", hidden="secret")))
    assert told == {
        "event": "Job 7 is done",
        "level": "info",
        "logger": "penstock.part",
        "timestamp": "2025-11-13T02:13:20.250000Z",
        "status": 200,
        "job_id": "j",
    }


def test_a_line_for_people_has_the_same_in_one_line() -> None:
    line = ConsoleFormatter(colours=False).format(
        record("stopping", signal="SIGTERM", reason="a b\n'c'", hidden="secret")
    )
    assert line == (
        "2025-11-13T02:13:20.250000Z [info     ] stopping                       [penstock.part] "
        "reason=\"a b\\n'c'\" signal=SIGTERM"
    )


def test_colours_are_only_where_they_are_wanted() -> None:
    warning = record("careful", level=logging.WARNING)
    assert "\x1b" not in ConsoleFormatter(colours=False).format(warning)
    assert "\x1b[33mwarning" in ConsoleFormatter(colours=True).format(warning)


@pytest.mark.parametrize("formatter", [JsonFormatter(), ConsoleFormatter(colours=False)])
def test_a_failure_is_told_without_the_values_of_variables(formatter: logging.Formatter) -> None:
    def fail(password: str) -> None:
        raise KeyError(len(password))

    password = "hush"
    failed = record("It failed")
    try:
        fail(password)
    except KeyError:
        failed.exc_info = sys.exc_info()
    assert "KeyError: 4" in formatter.format(failed)
    assert "hush" not in formatter.format(failed)
