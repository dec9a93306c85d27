from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.job import JobDraft
from penstock.domain.job_errors import ScheduleInvalid
from penstock.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from penstock.domain.schedule import CRON_LENGTH_MAX, INTERVAL_MS_MAX, Schedule, check, next_fire_ms

BERLIN = "Europe/Berlin"
"""Its clocks go from 02:00 to 03:00 on 29 March 2026, and from 03:00 to 02:00 on 25 October 2026."""

SPRING = "2026-03-29"
AUTUMN = "2026-10-25"


def every(interval_ms: int) -> Schedule:
    return Schedule(name="s", queue="q", draft=JobDraft(id="", task="t", payload=b"{}"), interval_ms=interval_ms)


def cron(expression: str, zone: str = "UTC") -> Schedule:
    return Schedule(name="s", queue="q", draft=JobDraft(id="", task="t", payload=b"{}"), cron=expression, zone=zone)


def at_ms(text: str) -> int:
    """Read an instant with its offset from UTC, as in 2026-03-29T01:30+01:00."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def fires(schedule: Schedule, after: str, count: int) -> list[str]:
    """The next instants, in UTC."""
    instants = []
    now_ms = at_ms(after)
    for _ in range(count):
        fires_ms = next_fire_ms(schedule, now_ms)
        assert fires_ms is not None
        instants.append(datetime.fromtimestamp(fires_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M"))
        now_ms = fires_ms
    return instants


def test_an_interval_fires_at_its_multiples_since_the_epoch() -> None:
    assert next_fire_ms(every(15 * MINUTE_MS), 0) == 15 * MINUTE_MS
    assert next_fire_ms(every(15 * MINUTE_MS), 15 * MINUTE_MS - 1) == 15 * MINUTE_MS
    assert next_fire_ms(every(15 * MINUTE_MS), 15 * MINUTE_MS) == 30 * MINUTE_MS


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("*/15 * * * *", "2026-01-01T00:01Z", ["2026-01-01T00:15", "2026-01-01T00:30"]),
        ("0 9 * * MON-FRI", "2026-01-02T10:00Z", ["2026-01-05T09:00", "2026-01-06T09:00"]),
        ("0 0 L * *", "2026-01-31T00:00Z", ["2026-02-28T00:00", "2026-03-31T00:00"]),
        ("0 0 29 2 *", "2026-01-01T00:00Z", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("30 4 1,15 * 5", "2026-01-01T05:00Z", ["2026-01-02T04:30", "2026-01-09T04:30", "2026-01-15T04:30"]),
        ("@daily", "2026-01-01T00:00Z", ["2026-01-02T00:00"]),
        ("@Hourly", "2026-01-01T00:00Z", ["2026-01-01T01:00"]),
        ("@weekly", "2026-01-01T00:00Z", ["2026-01-04T00:00"]),
        ("@monthly", "2026-01-01T00:00Z", ["2026-02-01T00:00"]),
        ("@yearly", "2026-01-01T00:00Z", ["2027-01-01T00:00"]),
    ],
)
def test_cron_expressions(expression: str, after: str, expected: list[str]) -> None:
    assert fires(cron(expression), after, len(expected)) == expected


def test_an_instant_within_a_minute_is_before_the_next() -> None:
    assert next_fire_ms(cron("* * * * *"), 1) == MINUTE_MS
    assert next_fire_ms(cron("* * * * *"), MINUTE_MS - 1) == MINUTE_MS
    assert next_fire_ms(cron("* * * * *"), MINUTE_MS) == 2 * MINUTE_MS


def test_a_time_zone_moves_with_its_clocks() -> None:
    assert fires(cron("0 9 * * *", BERLIN), "2026-03-27T12:00Z", 3) == [
        "2026-03-28T08:00",
        "2026-03-29T07:00",
        "2026-03-30T07:00",
    ]


@pytest.mark.parametrize("expression", ["30 2 * * *", "0,30 2 * * *", "0 2,3 * * *"])
def test_what_the_clocks_skip_fires_once_right_after_the_gap(expression: str) -> None:
    first, second = fires(cron(expression, BERLIN), f"{SPRING}T00:59Z", 2)
    assert first == f"{SPRING}T01:00"  # 03:00 in Berlin, where 02:00 never came.
    assert second.startswith("2026-03-30")


def test_what_comes_twice_fires_once() -> None:
    assert fires(cron("30 2 * * *", BERLIN), f"{AUTUMN}T00:00Z", 2) == [f"{AUTUMN}T00:30", "2026-10-26T01:30"]


@pytest.mark.parametrize("minute", [5, 30, 55])
def test_what_comes_twice_does_not_fire_again_if_asked_for_in_between(minute: int) -> None:
    # 02:05 for the second time: 02:30 was half an hour ago.
    after = f"{AUTUMN}T01:{minute:02}Z"
    assert fires(cron("30 2 * * *", BERLIN), after, 1) == ["2026-10-26T01:30"]


def test_an_hourly_expression_fires_every_hour_of_the_longer_and_of_the_shorter_day() -> None:
    longer = fires(cron("0 * * * *", BERLIN), f"{AUTUMN}T00:00+02:00", 25)
    assert longer[-1] == f"{AUTUMN}T23:00"  # Midnight, 25 hours later.
    shorter = fires(cron("0 * * * *", BERLIN), f"{SPRING}T00:00+01:00", 23)
    assert shorter[-1] == f"{SPRING}T22:00"


def test_a_star_for_the_minutes_goes_by_what_the_clocks_show() -> None:
    assert fires(cron("*/30 2 * * *", BERLIN), f"{SPRING}T00:00Z", 1) == ["2026-03-30T00:00"]
    assert fires(cron("*/30 2 * * *", BERLIN), f"{AUTUMN}T00:00+02:00", 4) == [
        f"{AUTUMN}T00:00",
        f"{AUTUMN}T00:30",
        f"{AUTUMN}T01:00",
        f"{AUTUMN}T01:30",
    ]


@pytest.mark.parametrize(
    "schedule",
    [
        every(SECOND_MS),
        every(INTERVAL_MS_MAX),
        cron("@daily"),
        cron("* * * * *", BERLIN),
    ],
)
def test_what_makes_sense_passes(schedule: Schedule) -> None:
    check(schedule)


@pytest.mark.parametrize(
    "schedule",
    [
        every(SECOND_MS - 1),
        every(0),
        every(-HOUR_MS),
        every(INTERVAL_MS_MAX + 1),
        cron(""),
        cron("@often"),
        cron("* * * *"),
        cron("* * * * * *"),
        cron("60 * * * *"),
        cron("* 24 * * *"),
        cron("* * 0 * *"),
        cron("* * * 13 *"),
        cron("* * * * 8"),
        cron("5-1 * * * *"),
        cron("*/0 * * * *"),
        cron("0 0 30 2 *"),
        cron("a b c d e"),
        cron("9" * CRON_LENGTH_MAX + " * * * *"),
        cron("0 0 * * *", "Europe/Atlantis"),
        cron("0 0 * * *", ""),
        cron("0 0 * * *", "Europe"),
        cron("0 0 * * *", "../../etc/localtime"),
        cron("0 0 * * *", "UTC\0"),
        Schedule(name="s", queue="q", draft=JobDraft(id="", task="t", payload=b"{}")),
        Schedule(
            name="s", queue="q", draft=JobDraft(id="", task="t", payload=b"{}"), cron="* * * * *", interval_ms=1000
        ),
    ],
)
def test_what_makes_no_sense_is_refused(schedule: Schedule) -> None:
    with pytest.raises(ScheduleInvalid):
        check(schedule)


def test_an_expression_that_never_comes_true_is_refused() -> None:
    with pytest.raises(ScheduleInvalid):
        check(cron("0 0 31 2,4,6,9,11 *"))


FIELD = st.text("0123456789*/,-LW#MON ", min_size=1, max_size=8)


@given(st.lists(FIELD, min_size=4, max_size=6))
def test_any_text_is_refused_or_has_a_next_instant(fields: list[str]) -> None:
    schedule = cron(" ".join(fields), BERLIN)
    try:
        check(schedule)
    except ScheduleInvalid:
        return
    fires_ms = next_fire_ms(schedule, 0)
    assert fires_ms is not None
    assert fires_ms > 0


ZONES = ["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]
"""Among them one that puts its clocks forward by half an hour, and one that has skipped a whole day."""

EXPRESSIONS = ["30 2 * * *", "0 0 * * *", "*/20 * * * *", "15 */2 * * *", "59 23 L * *", "0 1-3 * * SUN"]


@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.integers(at_ms("2010-01-01T00:00Z"), at_ms("2040-01-01T00:00Z")),
)
def test_instants_go_forward_and_none_is_left_out(expression: str, zone: str, after_ms: int) -> None:
    schedule = cron(expression, zone)
    instants = [after_ms]
    for _ in range(4):
        fires_ms = next_fire_ms(schedule, instants[-1])
        assert fires_ms is not None
        instants.append(fires_ms)
    assert all(earlier < later for earlier, later in pairwise(instants))
    # Asked from anywhere in between, the next one is the same.
    for earlier, later in pairwise(instants[1:]):
        assert next_fire_ms(schedule, (earlier + later) // 2) == later
        assert next_fire_ms(schedule, later - 1) == later


@given(st.integers(SECOND_MS, INTERVAL_MS_MAX), st.integers(0, 100 * 365 * DAY_MS))
def test_an_interval_ends_within_itself(interval_ms: int, after_ms: int) -> None:
    fires_ms = next_fire_ms(every(interval_ms), after_ms)
    assert fires_ms is not None
    assert 0 < fires_ms - after_ms <= interval_ms
    assert fires_ms % interval_ms == 0


def test_berlin_is_what_these_tests_take_it_for() -> None:
    zone = ZoneInfo(BERLIN)
    offsets = [
        datetime.fromisoformat(text).astimezone(zone).utcoffset()
        for text in (f"{SPRING}T00:59+00:00", f"{SPRING}T01:00+00:00", f"{AUTUMN}T01:00+00:00")
    ]
    assert [offset.total_seconds() / 3600 for offset in offsets if offset is not None] == [1, 2, 1]


@pytest.mark.parametrize("zone", ["UTC", BERLIN, "Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize("expression", ["0 0 1 1 *", "* * * * *", "0 0 29 2 */7", "59 23 31 12 *"])
@pytest.mark.parametrize("left_ms", [DAY_MS, HOUR_MS, MINUTE_MS, 1, 0, -1, -400 * DAY_MS])
def test_nothing_fires_after_the_year_9999(expression: str, zone: str, left_ms: int) -> None:
    end_ms = at_ms("9999-12-31T23:59:59.999+00:00")
    fires_ms = next_fire_ms(cron(expression, zone), end_ms - left_ms)
    assert fires_ms is None or end_ms - left_ms < fires_ms <= end_ms
