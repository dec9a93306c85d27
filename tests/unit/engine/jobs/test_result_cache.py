from __future__ import annotations

import pytest

from penstock.engine.jobs import result_cache
from penstock.engine.jobs.result_cache import ResultCache
from penstock.testing import ManualClock

TTL_MS = 60_000


def cache_of(clock: ManualClock, entries_max: int = 3, chance: float = 0.0) -> ResultCache:
    return ResultCache(clock, entries_max=entries_max, ttl_ms=TTL_MS, chance=lambda: chance)


def put(cache: ResultCache, key: bytes, job_id: str, result: bytes = b"1", until_ms: int = 2**62) -> None:
    cache.put(1, key, job_id=job_id, fingerprint=b"f", result=result, until_ms=until_ms)


def known(cache: ResultCache, *keys: bytes) -> list[str | None]:
    found = [cache.get(1, key) for key in keys]
    return [None if entry is None else entry.job_id for entry in found]


def test_the_least_recently_used_goes_first() -> None:
    cache = cache_of(ManualClock())
    for key in (b"a", b"b", b"c"):
        put(cache, key, key.decode())
    assert known(cache, b"a") == ["a"]
    put(cache, b"d", "d")
    assert known(cache, b"a", b"b", b"c", b"d") == ["a", None, "c", "d"]
    assert len(cache) == 3


async def test_an_entry_lasts_for_its_time_less_a_random_part_of_it() -> None:
    clock = ManualClock()
    whole, part = cache_of(clock), cache_of(clock, chance=0.5)
    put(whole, b"a", "a")
    put(part, b"a", "a")
    await clock.advance(ms=TTL_MS * 9 // 10 - 1)
    assert known(part, b"a") == ["a"]
    await clock.advance(ms=1)
    assert (known(part, b"a"), known(whole, b"a")) == ([None], ["a"])
    assert len(part) == 0
    await clock.advance(ms=TTL_MS // 10)
    assert known(whole, b"a") == [None]


async def test_an_entry_lasts_no_longer_than_what_it_stands_for() -> None:
    clock = ManualClock()
    cache = cache_of(clock)
    put(cache, b"a", "a", until_ms=clock.now_ms() + 10)
    assert known(cache, b"a") == ["a"]
    await clock.advance(ms=10)
    assert known(cache, b"a") == [None]


def test_what_has_changed_is_forgotten() -> None:
    cache = cache_of(ManualClock())
    put(cache, b"a", "a")
    cache.forget("another")
    assert known(cache, b"a") == ["a"]
    cache.forget("a")
    assert known(cache, b"a") == [None]


def test_a_key_that_stands_for_another_job_by_now_replaces_the_old_one() -> None:
    cache = cache_of(ManualClock())
    put(cache, b"a", "old")
    put(cache, b"a", "new")
    cache.forget("old")
    assert known(cache, b"a") == ["new"]
    assert cache.get(2, b"a") is None


def test_all_results_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_cache, "BYTES_MAX", 10)
    cache = cache_of(ManualClock(), entries_max=100)
    for key in (b"a", b"b", b"c"):
        put(cache, key, key.decode(), result=b"1234")
    assert known(cache, b"a", b"b", b"c") == [None, "b", "c"]
    cache.forget("b")
    put(cache, b"d", "d", result=b"123456")
    assert known(cache, b"c", b"d") == ["c", "d"]
