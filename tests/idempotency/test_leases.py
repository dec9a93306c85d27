"""`idem.lease(key)`: who holds a key, for how long, and what becomes of it at the end of the block."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock import DynamoRecords, Idempotency, SQLiteRecords, errors
from penstock.client.idempotency.leases import Places
from penstock.client.idempotency.records import Records, Started, Taken
from penstock.client.idempotency.renewals import Renewals, Renewed
from penstock.domain.clock import SystemClock
from penstock.domain.failpoints import Failpoints
from penstock.testing import ManualClock
from tests.idempotency.stores import Opener, later


@pytest.fixture
def plain(tmp_path: Path, clock: ManualClock, failpoints: Failpoints) -> Iterator[Idempotency]:
    """One on SQLite, for what does not depend on the store."""
    records = SQLiteRecords(tmp_path / "plain.db", clock=clock)
    with Idempotency(records, clock=clock, failpoints=failpoints, lru=0) as made:
        yield made


def test_a_block_completes_its_key_with_the_result_given(idem: Idempotency) -> None:
    with idem.lease(("order", 17), scope="charges") as lease:
        assert (lease.done, lease.attempts, lease.result) == (False, 1, None)
        assert lease.key == "test/charges:order:17"
        lease.complete({"paid": True})
    with idem.lease(("order", 17), scope="charges") as again:
        assert (again.done, again.attempts, again.result) == (True, 1, {"paid": True})


async def test_an_async_block_completes_its_key(idem: Idempotency) -> None:
    async with idem.lease("a") as lease:
        assert not lease.done
    async with idem.lease("a") as again:
        assert (again.done, again.result) == (True, None)
        again.complete("something else")
    async with idem.lease("a") as third:
        assert third.result is None


def test_a_block_that_raises_gives_its_key_up(idem: Idempotency) -> None:
    def hold() -> None:
        with idem.lease("a") as lease:
            attempts.append(lease.attempts)
            raise KeyboardInterrupt

    attempts: list[int] = []
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            hold()
    assert attempts == [1, 2]


def test_what_was_said_to_be_complete_is_even_if_the_block_raises(idem: Idempotency) -> None:
    def hold() -> None:
        with idem.lease("a") as lease:
            lease.complete(1)
            raise ValueError("afterwards")

    with pytest.raises(ValueError, match="afterwards"):
        hold()
    with idem.lease("a") as again:
        assert again.result == 1


def test_a_result_comes_back_as_the_type_asked_for(idem: Idempotency) -> None:
    with idem.lease("a", returns=set) as lease:
        lease.complete({1})
    with idem.lease("a", returns=set) as again:
        assert again.result == {1}


def test_verify_completes_a_block_that_was_given_up(idem: Idempotency) -> None:
    with contextlib.suppress(OSError), idem.lease("a", verify=lambda: 1 / 0):
        raise OSError
    with idem.lease("a", verify=lambda: "found") as lease:
        assert (lease.done, lease.result) == (True, "found")
    with idem.lease("a") as again:
        assert (again.done, again.result) == (True, "found")


def test_two_holders_at_once_are_refused_with_the_time_left(
    idem: Idempotency, opener: Opener, clock: ManualClock
) -> None:
    other = Idempotency(opener(clock=clock), clock=clock, scope="test")
    with idem.lease("a"):
        later(clock, 15)
        with pytest.raises(errors.IdempotencyInProgress) as refused, other.lease("a"):
            raise AssertionError("it must not run")
    assert refused.value.retry_after == 45
    assert refused.value.key == "test:a"
    assert "45 seconds" in str(refused.value)
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (copy.key, copy.retry_after, str(copy)) == ("test:a", 45, str(refused.value))


async def test_of_many_async_calls_one_runs_and_the_others_wait_for_its_result(opener: Opener) -> None:
    calls: list[int] = []
    begun, gate = asyncio.Event(), asyncio.Event()

    async def charge(order: int) -> int:
        calls.append(order)
        begun.set()
        await gate.wait()
        return order * 2

    wrapped = [Idempotency(opener(), wait=30)(key="{order}", scope="s")(charge) for _ in range(3)]
    waiting = [asyncio.create_task(one(7)) for one in wrapped * 3]
    await begun.wait()
    gate.set()
    assert await asyncio.gather(*waiting) == [14] * 9
    assert calls == [7]


def test_of_many_threads_one_runs_and_the_others_wait_for_its_result(opener: Opener) -> None:
    calls: list[int] = []
    gate = threading.Event()

    def charge(order: int) -> int:
        calls.append(order)
        gate.wait(30)
        return order * 2

    wrapped = [Idempotency(opener(), wait=30)(key="{order}", scope="s")(charge) for _ in range(3)]
    with ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(one, 7) for one in wrapped * 2]
        while not calls:
            time.sleep(0.005)
        gate.set()
        assert [one.result(30) for one in waiting] == [14] * 6
    assert calls == [7]


def test_a_wait_ends_at_its_limit(plain: Idempotency) -> None:
    with plain.lease("a"), pytest.raises(errors.IdempotencyInProgress), plain.lease("a", wait=0.1):
        raise AssertionError("it must not run")


def test_who_waits_takes_over_from_a_holder_that_died(plain: Idempotency, clock: ManualClock) -> None:
    plain.records.start(":a", "dead", lease_ms=60_000, ttl_ms=600_000, fingerprint="")
    looked = threading.Event()

    class Watched(SQLiteRecords):
        def start(self, *args: Any, **kwargs: Any) -> Taken:
            taken = super().start(*args, **kwargs)
            if not isinstance(taken, Started):
                looked.set()
            return taken

    waiting = Idempotency(Watched(plain.records._path, clock=clock), clock=clock, wait=30)  # type: ignore[attr-defined] # noqa: SLF001

    def hold() -> int:
        with waiting.lease("a") as lease:
            return lease.attempts

    with ThreadPoolExecutor(1) as pool:
        attempts = pool.submit(hold)
        assert looked.wait(30)
        later(clock, 61)
        assert attempts.result(30) == 2
    waiting.close()


def test_a_late_holder_cannot_complete(idem: Idempotency, opener: Opener, clock: ManualClock) -> None:
    other = Idempotency(opener(clock=clock), clock=clock, scope="test")

    def hold() -> None:
        with idem.lease("a") as lease:
            later(clock, 61)
            with other.lease("a") as second:
                assert second.attempts == 2
                second.complete("second")
            lease.complete("first")

    with pytest.raises(errors.IdempotencyLeaseLost, match="test:a") as lost:
        hold()
    assert pickle.loads(pickle.dumps(lost.value)).key == "test:a"
    with idem.lease("a") as third:
        assert third.result == "second"


def test_a_late_holder_cannot_give_up_what_another_holds(idem: Idempotency, opener: Opener, clock: ManualClock) -> None:
    other = Idempotency(opener(clock=clock), clock=clock, scope="test")

    def hold() -> None:
        with idem.lease("a"):
            later(clock, 61)
            other.lease("a").__enter__()
            raise OSError("late")

    with pytest.raises(OSError, match="late"):
        hold()
    with pytest.raises(errors.IdempotencyInProgress), idem.lease("a"):
        raise AssertionError("it must not run")


def test_a_lease_is_renewed_while_its_holder_works(idem: Idempotency, opener: Opener, clock: ManualClock) -> None:
    other = Idempotency(opener(clock=clock), clock=clock, scope="test")
    with idem.lease("a") as lease:
        for _ in range(10):
            later(clock, 30)
            assert idem.renewals.renew_due() == 20_000
            with pytest.raises(errors.IdempotencyInProgress) as refused, other.lease("a"):
                raise AssertionError("it must not run")
            assert refused.value.retry_after == 60
        assert not lease.lost
    with other.lease("a") as again:
        assert again.done
    assert idem.renewals.renew_due() == 0


def test_a_renewal_beside_a_completion_loses_nothing(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Renewing(SQLiteRecords):
        def complete(self, *args: Any, **kwargs: Any) -> bool:
            held = super().complete(*args, **kwargs)
            later(clock, 30)
            idem.renewals.renew_due()
            return held

    idem = Idempotency(Renewing(tmp_path / "records.db", clock=clock), clock=clock)
    with idem.lease("a") as lease:
        pass
    assert not lease.lost
    assert caplog.text == ""
    idem.close()


def test_a_holder_can_see_that_its_lease_is_lost(idem: Idempotency, opener: Opener, clock: ManualClock) -> None:
    other = Idempotency(opener(clock=clock), clock=clock, scope="test")
    lost: list[bool] = []

    def hold() -> None:
        with idem.lease("a") as lease:
            later(clock, 61)
            with other.lease("a"):
                pass
            idem.renewals.renew_due()
            lost.append(lease.lost)

    with pytest.raises(errors.IdempotencyLeaseLost):
        hold()
    assert lost == [True]


async def test_a_function_that_blocks_the_event_loop_keeps_its_key(tmp_path: Path) -> None:
    renewed = threading.Semaphore(0)

    class Watched(SQLiteRecords):
        def renew(self, *args: Any, **kwargs: Any) -> bool:
            held = super().renew(*args, **kwargs)
            renewed.release()
            return held

    with Idempotency(Watched(tmp_path / "records.db"), lease=0.3) as idem:
        async with idem.lease("a") as lease:
            for _ in range(5):
                assert renewed.acquire(timeout=30)  # The loop stands still here.
            lease.complete(1)
        async with idem.lease("a") as again:
            assert (again.done, again.attempts) == (True, 1)


def test_a_renewal_that_fails_is_tried_again(plain: Idempotency, tmp_path: Path, clock: ManualClock) -> None:
    broken = threading.Event()

    class Failing(SQLiteRecords):
        def renew(self, *args: Any, **kwargs: Any) -> bool:
            if broken.is_set():
                raise errors.RecordsUnavailable("the network is away")
            return super().renew(*args, **kwargs)

    idem = Idempotency(Failing(tmp_path / "plain.db", clock=clock), clock=clock)
    with idem.lease("a") as lease:
        broken.set()
        later(clock, 20)
        seen = [(idem.renewals.renew_due(), lease.lost)]
        later(clock, 41)
        seen.append((idem.renewals.renew_due(), lease.lost))
        broken.clear()
        later(clock, 6)
        seen.append((idem.renewals.renew_due(), lease.lost))
    assert seen == [(6_000, False), (6_000, True), (20_000, False)]
    idem.close()


async def test_a_cancelled_block_gives_its_key_up(idem: Idempotency) -> None:
    entered = asyncio.Event()

    async def hold() -> None:
        async with idem.lease("a"):
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(hold())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with idem.lease("a") as lease:
        assert lease.attempts == 2


async def test_a_key_taken_for_a_caller_that_left_is_given_up(tmp_path: Path) -> None:
    asked, answer, given_up = threading.Event(), threading.Event(), threading.Event()

    class Slow(SQLiteRecords):
        def start(self, *args: Any, **kwargs: Any) -> Taken:
            taken = super().start(*args, **kwargs)
            asked.set()
            answer.wait(30)
            return taken

        def release(self, *args: Any, **kwargs: Any) -> bool:
            released = super().release(*args, **kwargs)
            given_up.set()
            return released

    with Idempotency(Slow(tmp_path / "records.db")) as idem:
        task = asyncio.create_task(idem.lease("a").__aenter__())
        await asyncio.to_thread(asked.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        answer.set()
        assert await asyncio.to_thread(given_up.wait, 30)
        async with idem.lease("a") as lease:
            assert lease.attempts == 2


async def test_a_completion_is_made_even_if_its_caller_is_cancelled(
    plain: Idempotency, failpoints: Failpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even one that has not begun, since all threads are busy."""
    monkeypatch.setattr("penstock.client.idempotency.idempotency.THREADS", 1)
    free = threading.Event()

    async def hold() -> None:
        async with plain.lease("a") as lease:
            lease.complete(1)

    def cancel_soon() -> None:
        plain.threads().submit(free.wait, 30)
        asyncio.get_running_loop().call_later(0, task.cancel)

    task = asyncio.create_task(hold())
    failpoints.arm(Places.RETURNED, cancel_soon)
    with pytest.raises(asyncio.CancelledError):
        await task
    free.set()
    async with plain.lease("a", wait=30) as again:
        assert (again.done, again.result) == (True, 1)


def test_the_error_of_the_block_counts_where_the_key_cannot_be_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(SQLiteRecords):
        def release(self, key: str, owner: str) -> bool:
            raise errors.RecordsUnavailable("the network is away")

    idem = Idempotency(Failing(tmp_path / "records.db"))
    with pytest.raises(ValueError, match="the cause"), idem.lease("a"):
        raise ValueError("the cause")
    assert "could not be given up" in caplog.text
    idem.close()


def test_a_completion_that_cannot_be_recorded_is_said(tmp_path: Path, clock: ManualClock) -> None:
    class Failing(SQLiteRecords):
        def complete(self, *args: Any, **kwargs: Any) -> bool:
            raise errors.RecordsUnavailable("the network is away")

    idem = Idempotency(Failing(tmp_path / "records.db", clock=clock), clock=clock)
    with pytest.raises(errors.RecordsUnavailable, match="network"), idem.lease("a"):
        pass
    # Its effect has happened: the key is not free before its lease is over, and `verify` is asked then.
    with pytest.raises(errors.IdempotencyInProgress), idem.lease("a"):
        pass
    later(clock, 61)
    with pytest.raises(errors.RecordsUnavailable), idem.lease("a", verify=lambda: "found"):
        raise AssertionError("it must not run")
    idem.close()


def test_the_recently_used_are_not_asked_for_again(records: Records, clock: ManualClock) -> None:
    idem = Idempotency(records, clock=clock, lru=2)
    for key in ("a", "b", "c"):
        with idem.lease(key) as lease:
            lease.complete(key)
    for key in ("a", "b", "c"):
        records.forget(f":{key}")
    assert [_done(idem, key) for key in ("b", "c", "a")] == [True, True, False]


def _done(idem: Idempotency, key: str) -> bool:
    with idem.lease(key) as lease:
        return lease.done


class Counting(SQLiteRecords):
    """Says which leases were renewed, and may fail the first time in a way that nobody expects."""

    def __init__(self, *, failing: bool = False) -> None:
        super().__init__(":memory:")
        self.failing = failing
        self.renewed: list[str] = []
        self.changed = threading.Event()

    def renew(self, key: str, owner: str, *, lease_ms: int, ttl_ms: int) -> bool:
        if self.failing:
            self.failing = False
            raise RuntimeError("nobody expects this")
        self.renewed.append(key)
        self.changed.set()
        return super().renew(key, owner, lease_ms=lease_ms, ttl_ms=ttl_ms)


def test_renewals_survive_an_error_that_nobody_expects(caplog: pytest.LogCaptureFixture) -> None:
    records = Counting(failing=True)
    with Idempotency(records, lease=0.3) as idem, idem.lease("a"):
        assert records.changed.wait(10)
    assert any("nobody expects this" in record.message for record in caplog.records)


def test_a_lease_that_begins_while_renewals_go_to_sleep_is_renewed_in_time() -> None:
    records = Counting()
    clock = SystemClock()
    short = Renewed("short", "b", 300, 300, clock.now_ms())

    class Late(Renewals):
        def renew_due(self) -> int:
            left_ms = super().renew_due()
            if "b" not in self._leases and not records.renewed:
                self.add(short)
            return left_ms

    renewals = Late(records, clock)
    hour = Renewed("hour", "a", 3_600_000, 3_600_000, clock.now_ms())
    renewals.add(hour)
    assert records.changed.wait(5)
    assert records.renewed[0] == "short"
    renewals.remove(short)
    renewals.remove(hour)
    records.close()


@pytest.mark.parametrize("wrong", ["records.db", None, SQLiteRecords])
def test_what_is_no_store_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(errors.IdempotencyInvalid, match="SQLiteRecords"):
        Idempotency(wrong)


def test_results_that_a_store_cannot_keep_are_refused_at_the_start(dynamo: Any) -> None:
    """DynamoDB would refuse the item when the effect has happened, and the function would run again."""
    with pytest.raises(ValueError, match="result_bytes_max"):
        Idempotency(DynamoRecords(dynamo), result_bytes_max=400_000)
    DynamoRecords(dynamo).create()
    with Idempotency(DynamoRecords(dynamo), result_bytes_max=DynamoRecords.RESULT_BYTES_MAX) as idem:
        for _ in range(2):
            with idem.lease("k" * 500, scope="s" * 500, returns=str, fingerprint="f") as lease:
                lease.complete("x" * (DynamoRecords.RESULT_BYTES_MAX - 2))
