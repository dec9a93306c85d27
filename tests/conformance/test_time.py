"""Time: it is the injected clock's where that is moved by hand, and never goes back."""

from __future__ import annotations

from penstock.store.port import Store
from penstock.testing import ManualClock
from tests.support.queues import lease, make_queue, send
from tests.support.stores import Home


class TurnedBackClock(ManualClock):
    """A clock that someone can set back, as an administrator or a time server may."""

    behind_ms = 0

    @property
    def pinned_ms(self) -> int:
        return self.now_ms()

    def now_ms(self) -> int:
        return super().now_ms() - self.behind_ms


async def test_instants_are_the_clocks(store: Store, clock: ManualClock) -> None:
    queue = await make_queue(store)
    await clock.advance(ms=1)
    await send(store, queue, "a")
    sent_at_ms = clock.now_ms()
    await clock.advance(ms=1)
    [message] = await lease(store, queue)
    assert queue.created_at_ms == sent_at_ms - 1
    assert (message.sent_at_ms, message.first_received_at_ms) == (sent_at_ms, sent_at_ms + 1)


async def test_the_time_never_goes_back(home: Home) -> None:
    clock = TurnedBackClock()
    store = await home.open(clock=clock)
    queue = await make_queue(store)
    await send(store, queue, "a")
    clock.behind_ms = 10_000
    await send(store, queue, "b")
    a, b = await lease(store, queue)
    assert (a.body, b.body) == ("a", "b")
    assert b.sent_at_ms >= a.sent_at_ms
    assert b.first_received_at_ms >= b.sent_at_ms
