"""Answers kept for retries are found by key, however many there are, until their window is over."""

from __future__ import annotations

from pathlib import Path

import apsw
import msgspec
import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.limits import Limits
from penstock.store.sqlite import outcomes as outcomes_module
from penstock.store.sqlite.connection import connect
from penstock.store.sqlite.migrations import migrate
from penstock.store.sqlite.outcomes import Outcomes
from penstock.store.sqlite.transaction import Transaction
from penstock.testing import ManualClock

WINDOW_MS = Limits().outcome_window_ms


@pytest.fixture
def db(path: Path) -> apsw.Connection:
    db = connect(str(path))
    migrate(db, str(path))
    return db


@pytest.fixture
def transaction(db: apsw.Connection, clock: ManualClock) -> Transaction:
    transaction = Transaction(db, clock)
    transaction.begin()
    return transaction


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "_SLOTS_MIN", 16)
    monkeypatch.setattr(outcomes_module, "_SLOTS_MAX", 128)


def key(number: int) -> bytes:
    return b"a" + number.to_bytes(16, "big")


def found(outcomes: Outcomes, number: int) -> object:
    answer = outcomes.find(key(number))
    return None if answer is None else msgspec.msgpack.decode(answer)


def test_every_key_of_many_generations_is_found(transaction: Transaction) -> None:
    outcomes = Outcomes(transaction, window_ms=WINDOW_MS)
    for number in range(1_000):
        assert outcomes.find(key(number)) is None
        outcomes.keep([(key(number), str(number))])
    assert [found(outcomes, number) for number in range(1_000)] == [str(n) for n in range(1_000)]
    assert outcomes.find(key(1_000)) is None


def test_keys_with_the_same_hash_are_told_apart(transaction: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "hash", lambda _key: 7, raising=False)
    outcomes = Outcomes(transaction, window_ms=WINDOW_MS)
    outcomes.keep([(key(number), str(number)) for number in range(10)])
    assert [found(outcomes, number) for number in range(10)] == [str(n) for n in range(10)]
    assert outcomes.find(key(10)) is None


def test_they_are_found_again_after_a_restart(transaction: Transaction) -> None:
    Outcomes(transaction, window_ms=WINDOW_MS).keep([(key(number), "kept") for number in range(300)])
    again = Outcomes(transaction, window_ms=WINDOW_MS)
    assert all(found(again, number) == "kept" for number in range(300))
    again.keep([(key(300), "new")])
    assert found(again, 300) == "new"


def test_what_earlier_versions_kept_is_found_too(transaction: Transaction) -> None:
    answer = msgspec.msgpack.encode("kept")
    transaction.db.execute("INSERT INTO outcome VALUES (7, ?, ?, ?)", (transaction.now_ms, key(1), answer))
    outcomes = Outcomes(transaction, window_ms=WINDOW_MS)
    assert found(outcomes, 1) == "kept"
    outcomes.forget(key(1))
    assert found(outcomes, 1) is None


def test_no_more_are_kept_than_the_index_has_room_for(
    transaction: Transaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes_module, "OUTCOMES_MAX", 100)
    outcomes = Outcomes(transaction, window_ms=WINDOW_MS)
    outcomes.keep([(key(number), "kept") for number in range(99)])
    outcomes.check_room()
    outcomes.keep([(key(99), "kept")])
    with pytest.raises(StoreUnavailable):
        outcomes.check_room()
    with pytest.raises(StoreUnavailable):
        Outcomes(transaction, window_ms=WINDOW_MS).check_room()


async def test_they_last_for_their_window_and_are_swept_after_it(transaction: Transaction, clock: ManualClock) -> None:
    outcomes = Outcomes(transaction, window_ms=WINDOW_MS)
    for number in range(100):
        outcomes.keep([(key(number), "old")])
    await clock.advance(ms=WINDOW_MS - 1)
    transaction.begin()
    outcomes.keep([(key(number), "new") for number in range(100, 200)])
    assert found(outcomes, 0) == "old"
    assert outcomes.sweep(1_000) == 0
    await clock.advance(ms=1)
    transaction.begin()
    assert outcomes.find(key(0)) is None, "over, swept or not"
    assert [outcomes.sweep(60), outcomes.sweep(60), outcomes.sweep(60)] == [60, 40, 0]
    assert all(found(outcomes, number) == "new" for number in range(100, 200))
    assert transaction.db.execute("SELECT count(*) FROM outcome").get == -(-100 // outcomes_module.TOGETHER_MAX)


def test_an_answer_can_be_replaced(transaction: Transaction) -> None:
    outcomes = Outcomes(transaction, window_ms=WINDOW_MS)
    outcomes.keep([(key(number), "first") for number in range(3)])
    outcomes.forget(key(1))
    assert [found(outcomes, number) for number in range(3)] == ["first", None, "first"]
    outcomes.keep([(key(1), "second")])
    assert [found(outcomes, number) for number in range(3)] == ["first", "second", "first"]
    for number in range(3):
        outcomes.forget(key(number))
    assert transaction.db.execute("SELECT count(*) FROM outcome").get == 0
