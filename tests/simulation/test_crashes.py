"""kill -9 at random instants: what was acknowledged is there, what was deleted stays away, no retry doubles a send."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pytest

from penstock.domain.clock import SystemClock
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import OrderedIds
from penstock.domain.limits import DAY_MS, Limits
from penstock.domain.message import Receipt
from penstock.domain.queue import QueueName
from penstock.store.port import Store
from penstock.store.sqlite import SqliteStore
from penstock.testing import ManualClock
from tests.simulation.crash_victim import NAMES
from tests.simulation.ledger import Ledger
from tests.simulation.processes import Lines, Process, taken
from tests.support.campaigns import campaign, trials

KILLS = trials(50, share=5)
LINES_MAX = 1_500
"""How much a victim tells before it is killed."""
PHASE_S_MAX = 0.02
"""Within this time after its last line it is killed, at any point between two commits."""
READY_TIMEOUT_S = 30.0


@campaign
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_nothing_acknowledged_is_undone_by_kill_9(tmp_path: Path) -> None:
    chance = random.Random(9)
    home = tmp_path / "home"
    home.mkdir()
    ledger, lines = Ledger(), Lines()
    url = f"sqlite:{home / 'penstock.db'}"
    for kill in range(KILLS):
        victim = Process(url, str(kill), batches_max=sys.maxsize, lines=lines, retries=ledger.retries)
        assert victim.ready.wait(READY_TIMEOUT_S)
        for _ in range(chance.randrange(LINES_MAX)):
            ledger.note(lines.get(timeout=READY_TIMEOUT_S))
        victim.ended.wait(chance.uniform(0, PHASE_S_MAX))
        assert not victim.ended.is_set(), "the victim ended by itself"
        victim.kill()
        for line in taken(lines):
            ledger.note(line)
        await check_a_copy(home, tmp_path / "copy", ledger)
    ledger.check_deliveries()
    assert len(ledger.sent_at_ms) > 100 * KILLS, "too little happened between the kills to tell anything"
    assert len(ledger.deleted_at_ms) > 50 * KILLS


async def check_a_copy(home: Path, copy: Path, ledger: Ledger) -> None:
    """Open what the kill left, after all leases are over; a copy, so that the stream goes on undisturbed."""
    shutil.copytree(home, copy)
    clock = ManualClock(SystemClock().now_ms() + DAY_MS)
    store = await SqliteStore.open(
        str(copy / "penstock.db"), clock=clock, ids=OrderedIds(), limits=Limits(), failpoints=Failpoints()
    )
    try:
        for name in NAMES:
            await check_queue(store, name, ledger)
    finally:
        await store.close()
        shutil.rmtree(copy)


async def check_queue(store: Store, name: QueueName, ledger: Ledger) -> None:
    queue = await store.find_queue(name)
    counts = await store.count_messages(queue)
    found: list[str] = []
    newest: dict[str, int] = {}
    while messages := (await store.lease(queue, count=100, lease_ms=60_000)).messages:
        found += [message.body for message in messages]
        newest |= {message.body: message.receipt for message in messages}
        receipts = [Receipt(queue.id, message.position, message.receipt) for message in messages]
        assert await store.delete(queue, receipts) == [None] * len(messages)
    assert (counts.visible, counts.in_flight, counts.delayed) == (len(found), 0, 0)
    ledger.check_survivors(name.name, found)
    for body, receipt in newest.items():
        assert receipt > ledger.receipt_max.get(body, 0), "receipts grow"
