"""How log lines look where no terminal shows them."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from penstock.server.logs import JsonFormatter, LogfmtFormatter, logfmt

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


def test_a_line_of_logfmt_has_the_same_in_one_line() -> None:
    line = LogfmtFormatter().format(record("Look at %s", "this", level=logging.WARNING, reason="a b\n'c'", hidden="s"))
    assert line == ('2025-11-13T02:13:20.250Z warning logger=penstock.part message="Look at this" reason="a b\\n\'c\'"')


@pytest.mark.parametrize(
    ("text", "fields", "line"),
    [
        ("stopping", {"signal": "SIGTERM"}, "stopping signal=SIGTERM"),
        ("stopped", {}, "stopped"),
        ("request", {"operation": "PurgeQueue", "status": 403}, "denied operation=PurgeQueue status=403"),
        ("request", {"operation": "SendMessage", "status": 503}, "failed operation=SendMessage status=503"),
        ("request", {"operation": "SendMessage", "status": 200}, "request operation=SendMessage status=200"),
        ("report", {"job_id": "j", "state": "dead", "failure": "E"}, "dead job_id=j state=dead failure=E"),
        ("report", {"job_id": "j", "state": "succeeded"}, "done job_id=j state=succeeded"),
        ("report refused", {"job_id": "j", "code": "LeaseLost"}, "refused code=LeaseLost job_id=j"),
    ],
)
def test_what_we_have_a_word_for_begins_with_that_word(text: str, fields: dict[str, Any], line: str) -> None:
    assert LogfmtFormatter().format(record(text, **fields)) == f"2025-11-13T02:13:20.250Z {line}"


@pytest.mark.parametrize(
    ("value", "written"),
    [("plain", "plain"), ("", '""'), ("a b", '"a b"'), ('a"b', '"a\\"b"'), ("café au lait", '"café au lait"')],
)
def test_a_value_cannot_be_mistaken_for_two(value: str, written: str) -> None:
    assert logfmt(0, "word", {"name": value}) == f"1970-01-01T00:00:00.000Z word name={written}"


def test_text_that_moves_a_cursor_is_escaped() -> None:
    assert logfmt(0, "word", {"name": "\x1b[2J\u202e\x9b"}).endswith('name="\\u001b[2J\\u202e\\u009b"')


@pytest.mark.parametrize("formatter", [JsonFormatter(), LogfmtFormatter()])
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
    assert "\n" not in formatter.format(failed)
    assert "hush" not in formatter.format(failed)
