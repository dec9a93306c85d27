"""What every store of records does."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.client.idempotency.records import Completed, Held, Mismatched, Records, Started, Taken
from penstock.testing import ManualClock
from tests.idempotency.stores import DAY_MS, LEASE_MS, Opener, later

KEY = "orders:17"


def start(records: Records, owner: str, *, key: str = KEY, fingerprint: str = "", ttl_ms: int = DAY_MS) -> Taken:
    return records.start(key, owner, lease_ms=LEASE_MS, ttl_ms=ttl_ms, fingerprint=fingerprint)


def test_the_first_holder_gets_the_key(records: Records) -> None:
    assert start(records, "a") == Started(1)


def test_another_holder_learns_how_long_the_lease_lasts(records: Records, clock: ManualClock) -> None:
    start(records, "a")
    later(clock, 20)
    assert start(records, "b") == Held(40_000)


def test_a_start_can_be_repeated_by_its_owner(records: Records) -> None:
    assert start(records, "a") == start(records, "a") == Started(1)


def test_other_keys_are_free(records: Records) -> None:
    start(records, "a")
    assert start(records, "b", key="orders:18") == Started(1)


def test_a_lease_that_is_over_is_taken_over(records: Records, clock: ManualClock) -> None:
    start(records, "a")
    later(clock, 59.999)
    assert start(records, "b") == Held(1)
    later(clock, 0.001)
    assert start(records, "b") == Started(2)
    assert start(records, "a") == Held(LEASE_MS)


def test_a_renewed_lease_lasts_longer(records: Records, clock: ManualClock) -> None:
    start(records, "a")
    later(clock, 50)
    assert records.renew(KEY, "a", lease_ms=LEASE_MS, ttl_ms=DAY_MS)
    later(clock, 50)
    assert start(records, "b") == Held(10_000)


def test_a_completed_record_has_its_result(records: Records, clock: ManualClock) -> None:
    start(records, "a")
    assert records.complete(KEY, "a", b'{"paid":true}', ttl_ms=DAY_MS)
    later(clock, 10)
    assert start(records, "b") == Completed(b'{"paid":true}', 1, DAY_MS - 10_000)


@pytest.mark.parametrize("result", [None, b"null", b'""', "\u00e4\u0000".encode(), b"x" * 262_144])
def test_a_result_comes_back_byte_by_byte(records: Records, result: bytes | None) -> None:
    start(records, "a")
    records.complete(KEY, "a", result, ttl_ms=DAY_MS)
    assert start(records, "b") == Completed(result, 1, DAY_MS)


def test_a_completion_can_be_repeated_by_its_owner(records: Records) -> None:
    start(records, "a")
    assert records.complete(KEY, "a", b"1", ttl_ms=DAY_MS)
    assert records.complete(KEY, "a", b"1", ttl_ms=DAY_MS)


def test_a_late_holder_changes_nothing(records: Records, clock: ManualClock) -> None:
    start(records, "a")
    later(clock, 61)
    start(records, "b")
    assert not records.renew(KEY, "a", lease_ms=10 * LEASE_MS, ttl_ms=DAY_MS)
    assert not records.release(KEY, "a")
    assert not records.complete(KEY, "a", b'"late"', ttl_ms=DAY_MS)
    assert start(records, "c") == Held(LEASE_MS)
    assert records.complete(KEY, "b", b'"right"', ttl_ms=DAY_MS)
    assert not records.complete(KEY, "a", b'"late"', ttl_ms=DAY_MS)
    assert start(records, "c") == Completed(b'"right"', 2, DAY_MS)


def test_a_holder_that_nobody_replaced_completes_late(records: Records, clock: ManualClock) -> None:
    start(records, "a")
    later(clock, 1_000)
    assert records.complete(KEY, "a", b"1", ttl_ms=DAY_MS)


def test_a_key_that_is_given_up_is_free_and_its_attempt_counted(records: Records) -> None:
    start(records, "a")
    assert records.release(KEY, "a")
    assert not records.release(KEY, "a")
    assert not records.complete(KEY, "a", b"1", ttl_ms=DAY_MS)
    assert start(records, "b") == Started(2)
    assert start(records, "a") == Held(LEASE_MS)


def test_a_completed_record_is_not_given_up(records: Records) -> None:
    start(records, "a")
    records.complete(KEY, "a", b"1", ttl_ms=DAY_MS)
    assert not records.release(KEY, "a")
    assert not records.renew(KEY, "a", lease_ms=LEASE_MS, ttl_ms=DAY_MS)
    assert start(records, "b") == Completed(b"1", 1, DAY_MS)


def test_an_expired_record_is_as_none(records: Records, clock: ManualClock) -> None:
    start(records, "a")
    records.complete(KEY, "a", b"1", ttl_ms=10_000)
    later(clock, 9.999)
    assert start(records, "b") == Completed(b"1", 1, 1)
    later(clock, 0.001)
    assert start(records, "b") == Started(1)
    assert records.complete(KEY, "b", b"2", ttl_ms=10_000)
    assert start(records, "c") == Completed(b"2", 1, 10_000)


def test_an_expired_start_is_as_none(records: Records, clock: ManualClock) -> None:
    start(records, "a", ttl_ms=70_000, fingerprint="x")
    later(clock, 70)
    assert start(records, "b", fingerprint="y") == Started(1)
    assert not records.complete(KEY, "a", b"1", ttl_ms=DAY_MS)


def test_another_fingerprint_is_refused_in_every_state(records: Records, clock: ManualClock) -> None:
    start(records, "a", fingerprint="x")
    assert start(records, "b", fingerprint="y") == Mismatched()
    later(clock, 61)
    assert start(records, "b", fingerprint="y") == Mismatched()
    assert start(records, "b", fingerprint="x") == Started(2)
    records.complete(KEY, "b", b"1", ttl_ms=DAY_MS)
    assert start(records, "c", fingerprint="y") == Mismatched()
    assert start(records, "c", fingerprint="x") == Completed(b"1", 2, DAY_MS, "x")


def test_no_fingerprint_matches_any(records: Records, clock: ManualClock) -> None:
    start(records, "a")
    later(clock, 61)
    assert start(records, "b", fingerprint="x") == Started(2)
    later(clock, 61)
    assert start(records, "c") == Started(3)
    assert start(records, "d", fingerprint="y") == Mismatched()


def test_a_forgotten_record_is_as_none(records: Records) -> None:
    start(records, "a")
    records.complete(KEY, "a", b"1", ttl_ms=DAY_MS)
    records.forget(KEY)
    records.forget(KEY)
    assert start(records, "b") == Started(1)


def test_what_is_unknown_can_neither_be_renewed_nor_ended(records: Records) -> None:
    assert not records.renew(KEY, "a", lease_ms=LEASE_MS, ttl_ms=DAY_MS)
    assert not records.complete(KEY, "a", b"1", ttl_ms=DAY_MS)
    assert not records.release(KEY, "a")
    assert start(records, "b") == Started(1)


def test_records_outlast_their_connections(opener: Opener, clock: ManualClock) -> None:
    first, second = opener(clock=clock), opener(clock=clock)
    start(first, "a")
    first.close()
    assert start(second, "b") == Held(LEASE_MS)
    assert first.complete(KEY, "a", b"1", ttl_ms=DAY_MS)
    assert start(second, "b") == Completed(b"1", 1, DAY_MS)


def test_long_and_odd_keys_are_kept(records: Records) -> None:
    for key in ("k" * 512, "\u00e4\u4e2d\U0001f600 '\"\\;--", "a:b", "A:b"):
        assert start(records, "a", key=key) == Started(1)
        assert start(records, "b", key=key) == Held(LEASE_MS)


def test_of_many_holders_at_once_one_gets_the_key(opener: Opener, clock: ManualClock) -> None:
    several = [opener(clock=clock) for _ in range(4)]
    several[0].check()
    together = threading.Barrier(8)

    def race(number: int, key: str) -> Taken:
        together.wait(30)
        return start(several[number % 4], f"owner-{number}", key=key)

    with ThreadPoolExecutor(8) as pool:
        for turn in range(5):
            taken = list(pool.map(race, range(8), [f"race-{turn}"] * 8))
            assert sorted(type(one).__name__ for one in taken) == ["Held"] * 7 + ["Started"]


def test_of_many_that_take_over_one_gets_the_key(opener: Opener, clock: ManualClock) -> None:
    several = [opener(clock=clock) for _ in range(4)]
    start(several[0], "dead")
    together = threading.Barrier(8)

    def race(number: int) -> Taken:
        together.wait(30)
        return start(several[number % 4], f"{turn}-{number}")

    with ThreadPoolExecutor(8) as pool:
        for turn in range(2, 7):
            later(clock, 61)
            taken = list(pool.map(race, range(8)))
            assert sorted(map(repr, taken)) == ["Held(left_ms=60000)"] * 7 + [f"Started(attempts={turn})"]


def test_time_that_flows_frees_what_is_over(opener: Opener) -> None:
    """Without a clock of a test: the store's own counts."""
    records = opener()
    assert records.start(KEY, "a", lease_ms=3_600_000, ttl_ms=DAY_MS, fingerprint="") == Started(1)
    held = start(records, "b")
    assert isinstance(held, Held)
    assert 3_500_000 < held.left_ms <= 3_600_000
    assert records.renew(KEY, "a", lease_ms=0, ttl_ms=DAY_MS)
    assert start(records, "b") == Started(2)
