"""Answers kept for retries are found by key, however many there are, until their window is over."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

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


def test_every_key_of_many_generations_is_found(transaction: Transaction) -> None:
    outcomes = Outcomes(transaction, window_ms=WINDOW_MS)
    for number in range(1_000):
        assert outcomes.find(key(number)) is None
        outcomes.keep([(key(number), str(number).encode())])
    assert [outcomes.find(key(number)) for number in range(1_000)] == [str(n).encode() for n in range(1_000)]
    assert outcomes.find(key(1_000)) is None


def test_keys_with_the_same_hash_are_told_apart(transaction: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "hash", lambda _key: 7, raising=False)
    outcomes = Outcomes(transaction, window_ms=WINDOW_MS)
    outcomes.keep([(key(number), str(number).encode()) for number in range(10)])
    assert [outcomes.find(key(number)) for number in range(10)] == [str(n).encode() for n in range(10)]
    assert outcomes.find(key(10)) is None


def test_they_are_found_again_after_a_restart(transaction: Transaction) -> None:
    Outcomes(transaction, window_ms=WINDOW_MS).keep([(key(number), b"kept") for number in range(300)])
    again = Outcomes(transaction, window_ms=WINDOW_MS)
    assert all(again.find(key(number)) == b"kept" for number in range(300))
    again.keep([(key(300), b"new")])
    assert again.find(key(300)) == b"new"


async def test_they_last_for_their_window_and_are_swept_after_it(transaction: Transaction, clock: ManualClock) -> None:
    outcomes = Outcomes(transaction, window_ms=WINDOW_MS)
    outcomes.keep([(key(number), b"old") for number in range(100)])
    await clock.advance(ms=WINDOW_MS - 1)
    transaction.begin()
    outcomes.keep([(key(number), b"new") for number in range(100, 200)])
    assert outcomes.find(key(0)) == b"old"
    assert outcomes.sweep(1_000) == 0
    await clock.advance(ms=1)
    transaction.begin()
    assert outcomes.find(key(0)) is None, "over, swept or not"
    assert [outcomes.sweep(60), outcomes.sweep(60), outcomes.sweep(60)] == [60, 40, 0]
    assert all(outcomes.find(key(number)) == b"new" for number in range(100, 200))
    assert transaction.db.execute("SELECT count(*) FROM outcome").get == 100


def test_an_answer_can_be_replaced(transaction: Transaction) -> None:
    outcomes = Outcomes(transaction, window_ms=WINDOW_MS)
    outcomes.keep([(key(1), b"first")])
    outcomes.forget(key(1))
    assert outcomes.find(key(1)) is None
    outcomes.keep([(key(1), b"second")])
    assert outcomes.find(key(1)) == b"second"
