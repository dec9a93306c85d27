from __future__ import annotations

import math
import random
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.limits import DAY_MS, HOUR_MS
from penstock.domain.retry import RetryPolicy, backoff_ms

POLICIES = st.builds(
    RetryPolicy,
    backoff_ms=st.integers(0, DAY_MS),
    factor=st.floats(0.0, 1e300),
    backoff_ms_max=st.integers(0, 365 * DAY_MS),
    jitter=st.booleans(),
)
FAILURES = st.integers(1, 1_000_000)
CHANCES = st.floats(0.0, 1.0, exclude_max=True)


def no_luck() -> float:
    return math.nextafter(1.0, 0.0)


@given(POLICIES, FAILURES, CHANCES)
def test_a_wait_is_never_negative_nor_beyond_the_longest(policy: RetryPolicy, failures: int, chance: float) -> None:
    assert 0 <= backoff_ms(policy, failures, lambda: chance) <= policy.backoff_ms_max


@given(POLICIES, FAILURES, CHANCES, st.integers(0, 365 * DAY_MS))
def test_what_the_failure_asks_for_is_the_least(
    policy: RetryPolicy, failures: int, chance: float, retry_after_ms: int
) -> None:
    waits_ms = backoff_ms(policy, failures, lambda: chance, retry_after_ms)
    assert waits_ms == max(retry_after_ms, backoff_ms(policy, failures, lambda: chance))


@given(POLICIES, FAILURES)
def test_the_ceiling_never_falls_from_one_failure_to_the_next(policy: RetryPolicy, failures: int) -> None:
    if policy.factor >= 1:
        assert backoff_ms(policy, failures, no_luck) <= backoff_ms(policy, failures + 1, no_luck)


@given(POLICIES, FAILURES, CHANCES, CHANCES)
def test_jitter_is_full(policy: RetryPolicy, failures: int, chance: float, other: float) -> None:
    waits_ms = [backoff_ms(policy, failures, partial(float, chance)) for chance in sorted((chance, other))]
    if policy.jitter:
        assert backoff_ms(policy, failures, lambda: 0.0) == 0
        assert waits_ms == sorted(waits_ms)
    else:
        assert waits_ms[0] == waits_ms[1]


def test_jitter_spreads_evenly_over_the_whole_ceiling() -> None:
    chance = random.Random(7).random
    waits_ms = [backoff_ms(RetryPolicy(backoff_ms=1_000), 1, chance) for _ in range(10_000)]
    tenths = [sum(tenth * 100 <= wait_ms < tenth * 100 + 100 for wait_ms in waits_ms) for tenth in range(10)]
    assert min(tenths) > 900
    assert max(tenths) < 1_100


def test_without_jitter_it_doubles_up_to_its_longest() -> None:
    policy = RetryPolicy(backoff_ms=1_000, backoff_ms_max=HOUR_MS, jitter=False)
    waits_ms = [backoff_ms(policy, failures, no_luck) for failures in range(1, 15)]
    assert waits_ms[:5] == [1_000, 2_000, 4_000, 8_000, 16_000]
    assert waits_ms[-1] == waits_ms[-2] == HOUR_MS


def test_a_factor_of_one_waits_the_same_each_time() -> None:
    policy = RetryPolicy(backoff_ms=700, factor=1.0, jitter=False)
    assert {backoff_ms(policy, failures, no_luck) for failures in (1, 2, 50, 10_000)} == {700}


def test_no_number_of_failures_is_too_large() -> None:
    for factor in (1.0001, 2.0, 1e300):
        policy = RetryPolicy(factor=factor, backoff_ms=DAY_MS, jitter=False)
        assert backoff_ms(policy, 10**9, no_luck) == policy.backoff_ms_max
    assert backoff_ms(RetryPolicy(factor=1e300, backoff_ms=0), 10**9, no_luck) == 0
