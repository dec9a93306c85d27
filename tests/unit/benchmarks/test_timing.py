"""What callers did is counted and summed up rightly."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.rounds import Trial, ratio, take_turns
from benchmarks.timing import Budget, Latency, Rate, Stopwatch, measure, percentile

A_LATENCY = Latency(p50_ms=1, p90_ms=1, p99_ms=1, max_ms=1)


def a_rate(messages_per_s: float) -> Rate:
    return Rate(
        operations=1,
        messages=1,
        seconds=1,
        operations_per_s=messages_per_s,
        messages_per_s=messages_per_s,
        cpu_us_per_message=1,
        latency=A_LATENCY,
    )


@pytest.mark.parametrize(
    ("samples", "share", "expected"),
    [
        ([7.0], 0.5, 7.0),
        ([7.0], 0.99, 7.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        ([float(n) for n in range(1, 101)], 0.9, 90.0),
        ([float(n) for n in range(1, 101)], 0.99, 99.0),
        ([float(n) for n in range(1, 1001)], 0.99, 990.0),
    ],
)
def test_a_percentile_is_a_sample_that_so_many_do_not_exceed(
    samples: list[float], share: float, expected: float
) -> None:
    assert percentile(samples, share) == expected


def test_latencies_are_told_in_milliseconds_whatever_their_order() -> None:
    assert Latency.of([0.004, 0.001, 0.003, 0.002]) == Latency(p50_ms=2, p90_ms=4, p99_ms=4, max_ms=4)


def test_a_budget_of_messages_hands_out_exactly_those() -> None:
    budget = Budget(messages=25)
    assert [budget.take(10) for _ in range(4)] == [10, 10, 5, 0]


def test_a_budget_of_no_time_hands_out_nothing() -> None:
    assert Budget(seconds=0).take(10) == 0


def test_a_budget_of_little_time_hands_out_something_however_late_it_is_asked() -> None:
    assert Budget(seconds=1e-9).take(10) == 10


async def test_callers_share_the_messages_and_work_at_the_same_time() -> None:
    at_once = most = 0

    async def step(count: int) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return count

    rate = await measure(step, callers=7, batch=10, budget=Budget(messages=95))
    assert (rate.messages, rate.operations, most) == (95, 10, 7)


async def test_what_a_step_did_counts_and_not_what_it_was_asked_for() -> None:
    async def half(count: int) -> int:
        return count // 2

    stopwatch = Stopwatch()
    assert await stopwatch.run(half, callers=1, batch=10, budget=Budget(messages=20)) == 10
    assert await stopwatch.run(half, callers=1, batch=10, budget=Budget(messages=10)) == 5
    assert stopwatch.messages == 15


async def test_a_step_that_fails_ends_the_measurement() -> None:
    async def fail(count: int) -> int:
        raise OSError("no disk")

    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await measure(fail, callers=2, batch=1, budget=Budget(messages=10))


async def test_contestants_take_turns_and_another_begins_each_round() -> None:
    calls: list[str] = []
    speeds = {"a": iter([1.0, 9.0, 2.0]), "b": iter([4.0, 4.0, 4.0])}

    async def run(name: str) -> Rate:
        calls.append(name)
        return a_rate(next(speeds[name]))

    trials = await take_turns({"a": lambda: run("a"), "b": lambda: run("b")}, rounds=3)
    assert "".join(calls) == "abbaab"
    assert trials["a"].messages_per_s == 2.0
    compared = ratio("a to b", trials["a"], trials["b"], wanted=0.8)
    assert (compared.value, compared.reached) == (0.5, False)


def test_a_ratio_compares_what_was_measured_in_the_same_round() -> None:
    # The machine was slow in the second round, for both.
    one, other = (
        Trial(name="", messages_per_s=0, rounds=[a_rate(value) for value in rates])
        for rates in ([80.0, 8.0, 81.0], [100.0, 10.0, 90.0])
    )
    assert ratio("", one, other).value == 0.8
