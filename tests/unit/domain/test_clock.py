"""Time that is moved by hand, and time that flows."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.domain.clock import ManualClock, SystemClock, Timer, from_wall_ms, sleep_until
from tests.support.machine import Machine, after_any_step


async def test_manual_time_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(start_ms=1_000)
    assert clock.now_ms() == clock.pinned_ms == 1_000
    await clock.advance(seconds=1.5, ms=1)
    assert clock.now_ms() == 2_501


async def test_timers_fire_in_the_order_of_their_instants_and_see_their_own_time() -> None:
    clock = ManualClock(start_ms=0)
    fired: list[tuple[str, int]] = []
    clock.call_at(300, lambda: fired.append(("late", clock.now_ms())))
    clock.call_at(100, lambda: fired.append(("early", clock.now_ms())))
    clock.call_at(100, lambda: fired.append(("early too", clock.now_ms())))
    await clock.advance(ms=299)
    assert fired == [("early", 100), ("early too", 100)]
    await clock.advance(ms=1)
    assert fired[-1] == ("late", 300)


async def test_a_cancelled_timer_never_fires() -> None:
    clock = ManualClock()
    fired: list[bool] = []
    clock.call_at(clock.now_ms() + 10, lambda: fired.append(True)).cancel()
    await clock.advance(ms=10)
    assert not fired


async def test_a_timer_in_the_past_fires_without_moving_time() -> None:
    clock = ManualClock()
    fired = asyncio.Event()
    clock.call_at(clock.now_ms(), fired.set)
    await clock.advance()
    assert fired.is_set()


async def test_a_timer_set_by_a_timer_fires_within_the_same_advance() -> None:
    clock = ManualClock(start_ms=0)
    fired: list[int] = []
    clock.call_at(10, lambda: clock.call_at(20, lambda: fired.append(clock.now_ms())))
    await clock.advance(ms=30)
    assert fired == [20]


async def test_the_next_timer_is_the_earliest_that_still_waits() -> None:
    clock = ManualClock(1_000)
    seen = [clock.next_timer_ms]
    clock.call_at(1_030, lambda: None)
    earlier = clock.call_at(1_010, lambda: None)
    seen.append(clock.next_timer_ms)
    earlier.cancel()
    seen.append(clock.next_timer_ms)
    await clock.advance(ms=30)
    seen.append(clock.next_timer_ms)
    assert seen == [None, 1_010, 1_030, None]


async def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="backwards"):
        await ManualClock().advance(ms=-1)


async def test_sleepers_wake_at_their_instant_fourteen_days_away() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(sleep_until(clock, clock.now_ms() + 14 * 86_400_000))
    await clock.advance(seconds=14 * 86_400 - 0.001)
    assert not sleeper.done()
    await clock.advance(ms=1)
    assert sleeper.done()


async def test_system_time_flows_and_is_not_pinned() -> None:
    clock = SystemClock()
    assert clock.pinned_ms is None
    start_ms = clock.now_ms()
    await sleep_until(clock, start_ms + 2)
    assert clock.now_ms() >= start_ms + 1


@after_any_step
async def test_system_time_goes_on_when_the_wall_clock_is_set(hours: int) -> None:
    machine = Machine()
    clock = machine.clock()
    start_ms = clock.now_ms()
    assert clock.wall_ms() == start_ms
    machine.step(hours=hours)
    await machine.wait(seconds=2)
    assert clock.now_ms() == start_ms + 2_000
    assert clock.wall_ms() == machine.wall_ms == start_ms + 2_000 + hours * 3_600_000
    assert from_wall_ms(clock, machine.wall_ms + 500) == clock.now_ms() + 500


@after_any_step
async def test_system_timers_come_when_the_time_has_passed(hours: int) -> None:
    machine = Machine()
    clock = machine.clock()
    fired: list[int] = []
    timer = clock.call_at(clock.now_ms() + 60_000, lambda: fired.append(machine.wall_ms))
    clock.call_at(clock.now_ms() + 70_000, lambda: fired.append(0)).cancel()
    machine.step(hours=hours)
    due_ms = machine.wall_ms + 60_000
    await machine.wait(seconds=59.999)
    assert fired == []
    await machine.wait(seconds=20)
    assert fired == [due_ms]
    timer.cancel()


async def test_a_system_timer_is_not_late_by_all_the_time_that_the_machine_slept() -> None:
    """The event loop's clock stands still meanwhile, so its timers come as late as that."""
    elapsed_ms = 0
    waits: list[tuple[float, Callable[[], object]]] = []

    class Nothing:
        def cancel(self) -> None: ...

    def call_later(delay_s: float, callback: Callable[[], object]) -> Timer:
        waits.append((delay_s, callback))
        return Nothing()

    clock = SystemClock(wall_ns=lambda: 0, elapsed_ns=lambda: elapsed_ms * 1_000_000, call_later=call_later)
    fired: list[bool] = []
    clock.call_at(3_600_000, lambda: fired.append(True))
    elapsed_ms = 2 * 3_600_000
    [(delay_s, ring)] = waits
    assert delay_s <= 10
    ring()
    assert fired == [True]


async def test_a_system_timer_that_comes_early_waits_on() -> None:
    machine = Machine()
    fired: list[int] = []
    waits: list[Callable[[], object]] = []

    def call_later(_: float, callback: Callable[[], object]) -> Timer:
        waits.append(callback)
        return asyncio.get_running_loop().call_later(60, callback)

    clock = SystemClock(wall_ns=lambda: 0, elapsed_ns=lambda: machine.wall_ms * 1_000_000, call_later=call_later)
    timer = clock.call_at(clock.now_ms() + 2, lambda: fired.append(clock.now_ms()))
    await machine.wait(ms=1)
    waits.pop()()
    assert fired == []
    await machine.wait(ms=1)
    waits.pop()()
    assert fired == [clock.now_ms()]
    timer.cancel()
