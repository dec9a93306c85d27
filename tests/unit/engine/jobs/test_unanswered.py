"""Offers to polls that nobody has answered: how many are watched, and for whom."""

from __future__ import annotations

import pytest

from penstock.domain.clock import Clock
from penstock.domain.job import Lease, Offer
from penstock.engine.jobs import unanswered
from penstock.engine.jobs.unanswered import Unanswered
from penstock.testing import ManualClock
from tests.support.machine import Machine, after_a_step

OFFER_MS = 10_000


def offers(clock: Clock, count: int, name: str = "job") -> list[Offer]:
    return [
        Offer(
            lease=Lease(f"{name}-{number}", 1, 1),
            queue="q",
            task="t",
            payload=b"",
            tenant="",
            priority=4,
            tags=(),
            enqueued_at_ms=0,
            accept_by_ms=clock.wall_ms() + OFFER_MS,
            accept_in_ms=OFFER_MS,
            lease_ms=30_000,
            timeout_ms=1_000,
            failures=0,
            losses=0,
            trace=None,
            correlation_id="",
        )
        for number in range(count)
    ]


async def test_an_offer_that_lapsed_counts_for_what_was_begun_before(clock: ManualClock) -> None:
    watched = Unanswered(clock)
    began_ms = clock.now_ms()
    watched.offered("w", offers(clock, 1))
    assert not watched.lapsed_since("w", began_ms)
    await clock.advance(ms=OFFER_MS)
    assert watched.lapsed_since("w", began_ms)
    assert not watched.lapsed_since("w", clock.now_ms())
    assert not watched.lapsed_since("another", began_ms)


@after_a_step
async def test_an_offer_lapses_after_its_time_though_the_wall_clock_was_set(hours: int) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.step(hours=hours)
    watched = Unanswered(clock)
    began_ms = clock.now_ms()
    watched.offered("w", offers(clock, 1))
    await machine.wait(ms=OFFER_MS - 1)
    assert not watched.lapsed_since("w", began_ms)
    await machine.wait(ms=1)
    assert watched.lapsed_since("w", began_ms)


async def test_an_offer_that_was_answered_does_not_lapse(clock: ManualClock) -> None:
    watched = Unanswered(clock)
    began_ms = clock.now_ms()
    made = offers(clock, 3)
    watched.offered("w", made)
    watched.forget(offer.lease for offer in made)
    await clock.advance(ms=OFFER_MS)
    assert not watched.lapsed_since("w", began_ms)


async def test_only_so_many_offers_and_workers_are_watched(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unanswered, "OFFERS_MAX", 3)
    monkeypatch.setattr(unanswered, "WORKERS_MAX", 2)
    watched = Unanswered(clock)
    began_ms = clock.now_ms()
    made = offers(clock, 5)
    watched.offered("first", made)
    watched.forget(offer.lease for offer in made[-3:])
    await clock.advance(ms=OFFER_MS)
    assert not watched.lapsed_since("first", began_ms), "the others are not watched"
    for name in ("first", "second", "third"):
        watched.offered(name, offers(clock, 1, name))
    await clock.advance(ms=OFFER_MS)
    assert [watched.lapsed_since(name, began_ms) for name in ("first", "second", "third")] == [False, True, True]
