"""Options of tasks and calls, durations and retries: what they become, and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Discard, Retry, RetryAfter, Snooze
from penstock.client.durations import milliseconds, seconds
from penstock.client.tasks.options import CallOptions, TaskOptions, fields_of

DURATIONS: list[tuple[Any, int]] = [
    (0, 0),
    (30, 30_000),
    (0.25, 250),
    (0.0001, 1),
    ("0", 0),
    ("90", 90_000),
    ("500ms", 500),
    ("90s", 90_000),
    ("5m", 300_000),
    ("5min", 300_000),
    ("1h30m", 5_400_000),
    ("1.5 h", 5_400_000),
    (" 7D ", 604_800_000),
    ("2w", 1_209_600_000),
    (timedelta(minutes=2), 120_000),
]


@pytest.mark.parametrize(("given", "length_ms"), DURATIONS)
def test_durations_are_read_as_people_write_them(given: Any, length_ms: int) -> None:
    assert milliseconds(given) == length_ms
    assert seconds(given) * 1_000 == pytest.approx(length_ms, abs=1)


@pytest.mark.parametrize(
    "given", ["", "soon", "5 parsecs", "1h-5m", "-5s", -1, math.nan, math.inf, "inf", None, True, [5], timedelta(-1)]
)
def test_what_is_no_duration_is_refused_by_name(given: Any) -> None:
    with pytest.raises(ValueError, match=r"^timeout (is|cannot be) "):
        milliseconds(given, "timeout")


FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"queue": "mail.v2:eu-1"}, {"queue": "mail.v2:eu-1"}),
    ({"timeout": "90s"}, {"timeout_ms": 90_000}),
    ({"priority": 0}, {"priority": 0}),
    ({"tenant": ""}, {"tenant": ""}),
    ({"concurrency": ("api", 3)}, {"concurrency": {"key": "api", "width": 3}}),
    ({"rate": ("stripe", 0.5)}, {"start_rate": {"key": "stripe", "per_second": 0.5}}),
    ({"expires": "1h"}, {"expires_in_ms": 3_600_000}),
    ({"retention": 0}, {"retention_ms": 0}),
    ({"tags": ("a", "b")}, {"tags": ["a", "b"]}),
    ({"delay": 0}, {"delay_ms": 0}),
    ({"run_at": datetime(2026, 11, 18, tzinfo=UTC)}, {"run_at_ms": 1_794_960_000_000}),
    ({"group": "g", "key": "k"}, {"group": "g", "idempotency_key": "k"}),
    ({"unique": "u", "replace": True}, {"unique_key": "u", "on_duplicate": "replace"}),
    ({"replace": False}, {"on_duplicate": "keep"}),
]


@pytest.mark.parametrize(("options", "fields"), FIELDS)
def test_options_become_fields_of_a_job(options: dict[str, Any], fields: dict[str, Any]) -> None:
    assert fields_of(options) == fields


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"prio": 1}, TypeError, "There is no option 'prio'. The options are concurrency, delay,"),
    ({"delay": -1}, ValueError, "delay cannot be negative"),
    ({"delay": "soon"}, ValueError, "delay is written like"),
    ({"timeout": 0}, ValueError, "timeout is more than 0"),
    ({"expires": "0s"}, ValueError, "expires is more than 0"),
    ({"retention": -1}, ValueError, "retention cannot be negative"),
    ({"run_at": datetime(2026, 1, 1)}, ValueError, "run_at is a datetime with a time zone"),  # noqa: DTZ001
    ({"run_at": "tomorrow"}, ValueError, "run_at is a datetime with a time zone"),
    ({"run_at": 5}, ValueError, "run_at is a datetime with a time zone"),
    ({"delay": 1, "run_at": datetime(2026, 1, 1, tzinfo=UTC)}, ValueError, "either delay or run_at"),
    ({"priority": 10}, ValueError, "priority is from 0 to 9"),
    ({"priority": -1}, ValueError, "priority is from 0 to 9"),
    ({"priority": "9"}, TypeError, "priority is a whole number"),
    ({"priority": True}, TypeError, "priority is a whole number"),
    ({"priority": 1.5}, TypeError, "priority is a whole number"),
    ({"tags": "urgent"}, TypeError, r"tags is a list of texts, such as \['urgent'\]"),
    ({"tags": [1]}, TypeError, "A tag is a text, not 1"),
    ({"tags": [""]}, ValueError, "A tag has 1 to 200 characters, not 0"),
    ({"tags": ["x"] * 21}, ValueError, "up to 20 tags, not 21"),
    ({"tags": 5}, TypeError, "tags is a list of texts"),
    ({"concurrency": 3}, TypeError, r'concurrency is a key and a number, such as \("api", 3\)'),
    ({"concurrency": ("api", 1.5)}, TypeError, "concurrency is a key and a number"),
    ({"concurrency": ("api", True)}, TypeError, "concurrency is a key and a number"),
    ({"concurrency": ("api", 0)}, ValueError, "The number of concurrency is more than 0"),
    ({"concurrency": ("", 1)}, ValueError, "The key of concurrency has 1 to 200 characters"),
    ({"rate": ("api", -1)}, ValueError, "The number of rate is more than 0"),
    ({"rate": ("api", math.nan)}, ValueError, "The number of rate is more than 0"),
    ({"queue": ""}, ValueError, "queue has 1 to 200 characters"),
    ({"queue": "a b"}, ValueError, "queue has letters and digits"),
    ({"queue": "x" * 201}, ValueError, "queue has 1 to 200 characters, not 201"),
    ({"queue": None}, TypeError, "queue is a text"),
    ({"tenant": 5}, TypeError, "tenant is a text"),
    ({"group": ""}, ValueError, "group has 1 to 200 characters"),
    ({"key": "x" * 201}, ValueError, "key has 1 to 200 characters"),
    ({"unique": b"u"}, TypeError, "unique is a text"),
    ({"replace": True}, ValueError, "replace needs unique"),
    ({"id": "order-17"}, ValueError, "id is a UUID"),
    ({"retry": 5}, TypeError, r"retry is a Retry, not 5\. Write Retry\(attempts=3\)"),
]


@pytest.mark.parametrize(("options", "error", "said"), WRONG)
def test_a_wrong_option_is_refused_where_it_is_given(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        fields_of(options)


@pytest.mark.parametrize("name", sorted(set(CallOptions.__annotations__) - set(TaskOptions.__annotations__)))
def test_an_option_of_calls_is_none_of_tasks(name: str) -> None:
    with pytest.raises(TypeError, match=f"There is no option '{name}'. The options are concurrency, expires,"):
        fields_of({name: 1}, TaskOptions)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"attempts": 0}, "attempts is a whole number from 1 to 1,000"),
        ({"attempts": 1_001}, "attempts is a whole number from 1 to 1,000"),
        ({"attempts": "5"}, "attempts is a whole number"),
        ({"attempts": True}, "attempts is a whole number"),
        ({"losses": 0}, "losses is a whole number"),
        ({"backoff": -1}, "backoff cannot be negative"),
        ({"max_backoff": "x"}, "max_backoff is written like"),
        ({"factor": 0.5}, "factor is a number from 1 to 100"),
        ({"factor": math.nan}, "factor is a number from 1 to 100"),
        ({"factor": "2"}, "factor is a number from 1 to 100"),
        ({"permanent": [ValueError]}, "permanent is a tuple of exception classes"),
        ({"permanent": (5,)}, "permanent is a tuple of exception classes"),
    ],
)
def test_a_retry_that_makes_no_sense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Retry(**given)


@pytest.mark.parametrize("verdict", [Snooze, RetryAfter])
def test_a_verdict_takes_a_duration(verdict: Any) -> None:
    assert verdict("1m").delay_ms == 60_000
    with pytest.raises(ValueError, match=rf"{verdict.__name__} cannot be negative"):
        verdict(-1)
    assert str(Discard("gone")) == "gone"
