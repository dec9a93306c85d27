"""A consumer is killed at each of the six steps of check-before-doing, and every effect happens once."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Happened, Idempotency
from penstock.client.idempotency.leases import Places
from penstock.client.idempotency.records import Completed, Records
from penstock.domain.failpoints import Failpoints
from penstock.testing import ManualClock
from tests.idempotency.stores import in_a_child, later
from tests.support.campaigns import campaign, trials

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

EFFECT = "effect"
AFTER_EFFECT = "after effect"
ACKNOWLEDGE = "acknowledge"

BETWEEN = [AFTER_EFFECT, Places.RETURNED]
"""Step 4: the effect has happened, and is not recorded."""
ELSEWHERE = [Places.START, Places.STARTED, Places.CHECKED, EFFECT, Places.COMPLETED, ACKNOWLEDGE]
"""Before the record of the start (1), before the check (2), before the effect (3), and after the record (5, 6)."""
UNFINISHED = {Places.STARTED, Places.CHECKED, EFFECT, *BETWEEN}
PLANS = [
    *([place] for place in BETWEEN * 4),
    *([place] for place in ELSEWHERE),
    # A consumer that comes to look after the one that died, dies too.
    *([before, place] for before in BETWEEN for place in (Places.STARTED, Places.CHECKED, Places.RETURNED)),
    [Places.STARTED, EFFECT, AFTER_EFFECT, Places.CHECKED, Places.COMPLETED],
]
"""Where the consumers of one order die, one after the other; the next one lives."""


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Ledger:
    """The other system's record: effects in the order in which they happened. Nothing in it prevents a second one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def append(self, order: str) -> None:
        with self._path.open("a") as ledger:
            ledger.write(f"{order}\n")

    def orders(self) -> list[str]:
        return self._path.read_text().splitlines()


class Shop:
    """A consumer of orders: it charges each, and acknowledges it."""

    def __init__(
        self,
        folder: Path,
        records: Records,
        clock: ManualClock,
        verify: Callable[[str], object] | None,
    ) -> None:
        self.ledger = Ledger(folder / "ledger")
        self.acknowledged = Ledger(folder / "acknowledged")
        self.failpoints = Failpoints()
        self.idem = Idempotency(records, clock=clock, failpoints=self.failpoints, lru=0)
        self.dies_at = ""
        wrap = self.idem(key="{order}", scope="charges", verify=verify)
        self._charge = wrap(self.charge)
        self._charge_async = wrap(self.charge_async)

    def charge(self, order: str) -> str:
        self.reach(EFFECT)
        self.ledger.append(order)
        self.reach(AFTER_EFFECT)
        return f"receipt of {order}"

    async def charge_async(self, order: str) -> str:
        await asyncio.sleep(0)
        return self.charge(order)

    def consume(self, order: str, *, on_a_loop: bool) -> None:
        receipt = asyncio.run(self._charge_async(order)) if on_a_loop else self._charge(order)
        assert receipt == f"receipt of {order}"
        self.reach(ACKNOWLEDGE)
        self.acknowledged.append(order)

    def consume_and_die(self, order: str, place: str, *, on_a_loop: bool) -> None:
        self.dies_at = place
        self.failpoints.arm(place, kill_me)
        self.consume(order, on_a_loop=on_a_loop)

    def reach(self, place: str) -> None:
        if place == self.dies_at:
            kill_me()


def run_campaign(shop: Shop, clock: ManualClock, orders: int) -> Counter[str]:
    """Have the consumers of each order die as planned, until one lives. Return the kills by place."""
    kills: Counter[str] = Counter()
    for number in range(orders):
        order = f"order-{number}"
        on_a_loop = number % 2 == 1  # There is an odd number of plans, so each is run both ways.
        for place in PLANS[number % len(PLANS)]:
            ended = in_a_child(functools.partial(shop.consume_and_die, order, place, on_a_loop=on_a_loop))
            assert ended == -signal.SIGKILL
            kills[place] += 1
            later(clock, 61)
        shop.consume(order, on_a_loop=on_a_loop)
    return kills


@campaign
@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_every_effect_happens_once_whenever_its_consumer_is_killed(
    records: Records,
    clock: ManualClock,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    asked: list[str] = []

    def find_charge(order: str) -> str | None:
        asked.append(order)
        return f"receipt of {order}" if order in shop.ledger.orders() else None

    # 21 plans with 31 deaths, 17 of them between effect and record.
    orders = trials(len(PLANS) * 64, share=64)
    shop = Shop(tmp_path, records, clock, find_charge)
    records.check()
    kills = run_campaign(shop, clock, orders)
    between = sum(kills[place] for place in BETWEEN)
    assert set(kills) == {*BETWEEN, *ELSEWHERE}
    expected = [f"order-{number}" for number in range(orders)]
    assert shop.ledger.orders() == expected
    assert set(shop.acknowledged.orders()) == set(expected)
    # Who lives asks about each start that was not completed.
    assert asked == [order for number, order in enumerate(expected) if PLANS[number % len(PLANS)][-1] in UNFINISHED]
    for order in expected:
        taken = records.start(f"charges:{order}", "somebody", lease_ms=1_000, ttl_ms=1_000, fingerprint="")
        assert isinstance(taken, Completed)
        assert taken.result == f'"receipt of {order}"'.encode()
    record_property(
        "evidence",
        f"{sum(kills.values())} kills, {between} of them between effect and record; {orders} effects, each once",
    )


@campaign
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_effect_happens_once_when_consumers_are_killed_at_any_instant(
    records: Records, clock: ManualClock, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """In the middle of a statement, too. Each consumer goes on where the one before it was killed."""
    chance = random.Random(4)
    shop = Shop(
        tmp_path, records, clock, lambda order: f"receipt of {order}" if order in shop.ledger.orders() else None
    )
    records.check()
    kills = trials(500, share=50)

    def consume_on(progress: int) -> None:
        # Orders never run out, so that each consumer is at work when it is killed.
        for number in itertools.count(len(shop.acknowledged.orders())):
            shop.consume(f"order-{number}", on_a_loop=False)
            os.write(progress, b".")

    for _ in range(kills):
        seen, progress = os.pipe()
        child = os.fork()
        if not child:
            try:
                consume_on(progress)
            finally:
                os._exit(1)
        os.close(progress)
        os.read(seen, 1)
        time.sleep(chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        os.close(seen)
        later(clock, 61)
    orders = [f"order-{number}" for number in range(len(shop.acknowledged.orders()) + 1)]
    for order in orders:
        shop.consume(order, on_a_loop=False)
    assert shop.ledger.orders() == orders
    record_property("evidence", f"{kills} kills at any instant; {len(orders)} effects, each once")


def test_without_verify_a_kill_between_effect_and_record_doubles_the_effect(
    records: Records, clock: ManualClock, tmp_path: Path
) -> None:
    """The ledger can show it: this is what `verify` prevents."""
    shop = Shop(tmp_path, records, clock, None)
    assert in_a_child(lambda: shop.consume_and_die("order-1", AFTER_EFFECT, on_a_loop=False)) == -signal.SIGKILL
    later(clock, 61)
    shop.consume("order-1", on_a_loop=False)
    assert shop.ledger.orders() == ["order-1", "order-1"]


def test_a_function_without_a_result_is_verified_by_yes_or_no(
    records: Records, clock: ManualClock, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger")
    idem = Idempotency(records, clock=clock)

    @idem(key="{order}", scope="mail", verify=lambda order: order in ledger.orders())
    def send(order: str) -> None:
        ledger.append(order)
        if order in dying:
            kill_me()

    dying = {"a"}
    assert in_a_child(lambda: send("a")) == -signal.SIGKILL
    dying.clear()
    later(clock, 61)
    send("a")
    send("b")
    assert ledger.orders() == ["a", "b"]


def test_a_result_of_none_is_told_from_nothing_found(records: Records, clock: ManualClock) -> None:
    idem = Idempotency(records, clock=clock)

    @idem(key="{order}", scope="odd", verify=lambda order: Happened(None))
    def look(order: str) -> str | None:
        raise OSError("the connection broke")

    with pytest.raises(OSError, match="broke"):
        look("a")
    assert look("a") is None
