"""`@idem(…)` around functions, sync and async, on every store."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, assert_type, cast

import msgspec
import pytest

from penstock import Happened, Idempotency, SQLiteRecords, errors
from penstock.client.idempotency.leases import Lease
from penstock.client.idempotency.records import Records
from penstock.testing import ManualClock
from tests.idempotency.stores import Opener, later

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


class Receipt(msgspec.Struct):
    order: int
    on: date


@dataclass
class Line:
    name: str


class Counted:
    """A function that counts its calls, wrapped as sync code or as async code, and called the same way."""

    def __init__(self, idem: Idempotency, how: str, **options: Any) -> None:
        self.calls: list[int] = []
        self.fails = 0
        options = {"key": "{order}", "scope": "counted", **options}
        if how == "sync":
            self._run: Callable[[int, str], Any] = idem(**options)(self.charge)
        else:
            wrapped = idem(**options)(self.charge_async)
            self._run = lambda order, text: asyncio.run(cast("Any", wrapped(order, text)))

    def __call__(self, order: int, text: str = "") -> Receipt:
        found: Receipt = self._run(order, text)
        return found

    def charge(self, order: int, text: str = "") -> Receipt:
        self.calls.append(order)
        if self.fails:
            self.fails -= 1
            raise ConnectionError("no answer")
        return Receipt(order, date(2024, 2, 29))

    async def charge_async(self, order: int, text: str = "") -> Receipt:
        await asyncio.sleep(0)
        return self.charge(order, text)


@pytest.fixture(params=["sync", "async"])
def how(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def plain(tmp_path: Any, clock: ManualClock) -> Iterator[Idempotency]:
    """One on SQLite, for what does not depend on the store."""
    with Idempotency(SQLiteRecords(tmp_path / "plain.db", clock=clock), clock=clock, scope="test") as made:
        yield made


def test_a_repeat_returns_the_recorded_result_in_its_type(idem: Idempotency, how: str) -> None:
    charge = Counted(idem, how)
    first, again, other = charge(17), charge(17), charge(18)
    assert first == again == Receipt(17, date(2024, 2, 29))
    assert other.order == 18
    assert charge.calls == [17, 18]


def test_a_repeat_in_another_process_asks_the_store(opener: Opener, clock: ManualClock, how: str) -> None:
    first, second = (Counted(Idempotency(opener(clock=clock), clock=clock), how) for _ in range(2))
    assert first(17) == second(17)
    assert (first.calls, second.calls) == ([17], [])


def test_a_failure_gives_the_key_up_at_once(idem: Idempotency, how: str) -> None:
    charge = Counted(idem, how)
    charge.fails = 2
    for _ in range(2):
        with pytest.raises(ConnectionError):
            charge(17)
    assert charge(17).order == 17
    with idem.lease(17, scope="counted", returns=Receipt) as lease:
        assert (lease.done, lease.attempts) == (True, 3)
        assert lease.result == Receipt(17, date(2024, 2, 29))


def test_verify_is_asked_after_a_failure_and_its_answer_is_recorded(idem: Idempotency, how: str) -> None:
    asked: list[tuple[int, str]] = []

    def verify(order: int, text: str = "") -> Receipt | None:
        asked.append((order, text))
        return Receipt(order, date(2020, 1, 1)) if len(asked) == 2 else None

    charge = Counted(idem, how, verify=verify)
    charge.fails = 2
    for _ in range(2):
        with pytest.raises(ConnectionError):
            charge(17, "x")
    assert charge(17, "x") == charge(17, "x") == Receipt(17, date(2020, 1, 1))
    assert charge.calls == [17, 17]
    assert asked == [(17, "x"), (17, "x")]


def test_verify_may_be_async_for_an_async_function(idem: Idempotency) -> None:
    async def verify(order: int, text: str = "") -> Receipt:
        await asyncio.sleep(0)
        return Receipt(order, date(2020, 1, 1))

    charge = Counted(idem, "async", verify=verify)
    charge.fails = 1
    with pytest.raises(ConnectionError):
        charge(17)
    assert charge(17).on == date(2020, 1, 1)


def test_nothing_runs_when_verify_cannot_answer(idem: Idempotency, how: str) -> None:
    def verify(order: int, text: str = "") -> Receipt:
        raise TimeoutError("the ledger does not answer")

    charge = Counted(idem, how, verify=verify)
    charge.fails = 1
    with pytest.raises(ConnectionError):
        charge(17)
    for _ in range(2):
        with pytest.raises(TimeoutError, match="ledger"):
            charge(17)
    assert charge.calls == [17]


@pytest.mark.parametrize("answer", [None, False])
def test_no_from_verify_runs_the_function(plain: Idempotency, answer: object) -> None:
    charge = Counted(plain, "sync", verify=lambda order, text: answer)
    charge.fails = 1
    with pytest.raises(ConnectionError):
        charge(17)
    assert charge(17).order == 17


def test_a_yes_from_verify_must_be_of_the_functions_type(plain: Idempotency) -> None:
    charge = Counted(plain, "sync", verify=lambda order, text: True)
    charge.fails = 1
    with pytest.raises(ConnectionError):
        charge(17)
    with pytest.raises(errors.ResultInvalid, match="does not fit its type"):
        charge(17)
    assert charge.calls == [17]


def test_false_can_be_a_result(plain: Idempotency) -> None:
    calls = []

    @plain(key="{order}", scope="flags", verify=lambda order: Happened(result=False))
    def flag(order: int) -> bool:
        calls.append(order)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        flag(1)
    assert flag(1) is False
    assert calls == [1]


def test_a_result_that_is_too_large_is_said_and_the_effect_stays_once(
    records: Records, clock: ManualClock, how: str
) -> None:
    charge = Counted(Idempotency(records, clock=clock, result_bytes_max=10), how)
    with pytest.raises(errors.ResultTooLarge, match=r"has 30 bytes as JSON, and at most 10 are kept"):
        charge(17)
    for idem in (Idempotency(records, clock=clock, result_bytes_max=10), Idempotency(records, clock=clock)):
        again = Counted(idem, how)
        with pytest.raises(errors.ResultInvalid, match="could not be stored"):
            again(17)
        assert again.calls == []


def test_a_result_that_is_no_json_is_said_and_the_effect_stays_once(plain: Idempotency) -> None:
    calls = []

    @plain(key="{order}")
    def charge(order: int) -> Any:
        calls.append(order)
        return object()

    for _ in range(2):
        with pytest.raises(errors.ResultInvalid):
            charge(1)
    assert calls == [1]


def test_results_without_a_type_come_back_as_json_has_them(plain: Idempotency) -> None:
    @plain(key="{order}")
    def untyped(order):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return {"lines": [Line("a")], "order": (order,)}

    untyped(1)
    assert untyped(1) == {"lines": [{"name": "a"}], "order": [1]}


def test_types_of_parameters_need_not_exist_at_run_time(plain: Idempotency) -> None:
    @plain(key=lambda message: message["id"])
    def handle(message: Unknown) -> list[Line]:
        return [Line(message["id"])]

    assert handle({"id": "a"}) == handle({"id": "a"}) == [Line("a")]


def test_a_return_type_must_exist_at_run_time(plain: Idempotency) -> None:
    @plain(key="{order}")
    def charge(order: int) -> Unknown:
        raise AssertionError("it must not run")

    with pytest.raises(errors.IdempotencyInvalid, match=r"return type of .*charge means nothing"):
        charge(1)


def test_a_return_type_must_fit_into_json(plain: Idempotency) -> None:
    @plain(key="{order}")
    def charge(order: int) -> Idempotency:
        raise AssertionError("it must not run")

    with pytest.raises(errors.IdempotencyInvalid, match="returns the type Idempotency, which JSON cannot hold"):
        charge(1)


def test_the_wrapped_function_looks_as_it_was(plain: Idempotency) -> None:
    async def charge(order: int) -> Receipt:
        """Charge."""
        return Receipt(order, date(2020, 1, 1))

    wrapped = plain(key="{order}")(charge)
    assert inspect.iscoroutinefunction(wrapped)
    assert wrapped.__name__ == "charge"
    assert wrapped.__doc__ == "Charge."
    assert inspect.signature(wrapped) == inspect.signature(charge)


def test_methods_and_callable_objects_can_be_wrapped(plain: Idempotency) -> None:
    calls = []

    class Till:
        @plain(key=lambda self, order: order)
        def charge(self, order: int) -> int:
            calls.append(order)
            return order

        async def __call__(self, order: int) -> int:
            calls.append(order)
            return order

    assert [Till().charge(1), Till().charge(1)] == [1, 1]
    wrapped = plain(key=lambda order: order, scope="objects")(Till())
    assert asyncio.run(cast("Any", wrapped(2))) == asyncio.run(cast("Any", wrapped(2))) == 2
    assert calls == [1, 2]


def test_types_are_kept(plain: Idempotency) -> None:
    """mypy reads this, and finds an ignored error that is none."""

    @plain(key="{order}", verify=lambda order, text: None)
    def sync(order: int, *, text: str) -> Receipt:
        return Receipt(order, date(2020, 1, 1))

    @plain(key=lambda order: order)
    async def on_a_loop(order: int) -> list[str]:
        return [str(order)]

    assert_type(sync(1, text="a"), Receipt)
    assert_type(asyncio.run(on_a_loop(1)), list[str])
    with plain.lease("a", returns=Receipt) as lease:
        assert_type(lease, Lease[Receipt])
        lease.complete(sync(1, text="a"))
    with pytest.raises(TypeError):
        sync(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        sync(1, text="a", more=1)  # type: ignore[call-arg]
    with pytest.raises(errors.IdempotencyKeyInvalid):
        on_a_loop(None).send(None)  # type: ignore[arg-type]


def test_generators_are_refused(plain: Idempotency) -> None:
    def lines() -> Iterator[int]:
        yield 1

    async def more() -> AsyncIterator[int]:
        yield 1

    for function in (lines, more):
        with pytest.raises(errors.IdempotencyInvalid, match="is a generator"):
            plain(key=lambda: "k")(function)


def test_a_sync_function_that_returns_an_awaitable_is_refused(plain: Idempotency) -> None:
    async def inner() -> int:
        return 1

    @plain(key=lambda: "k")
    def charge() -> Awaitable[int]:
        return inner()

    untyped = plain(key=lambda: "k2", scope="untyped")(_calling(inner))
    with pytest.raises(errors.IdempotencyInvalid, match="JSON"):
        charge()
    with pytest.raises(errors.IdempotencyInvalid, match="returned an awaitable"):
        untyped()


def test_an_async_verify_needs_an_async_function(plain: Idempotency) -> None:
    async def verify(order: int) -> int:
        return 1

    with pytest.raises(errors.IdempotencyInvalid, match="verify is async"):
        plain(key="{order}", verify=verify)(_failing)
    hidden = plain(key="{order}", scope="s", verify=lambda order, again=verify: again(order))(_failing)
    with pytest.raises(ConnectionError):
        hidden(1)
    with pytest.raises(errors.IdempotencyInvalid, match="verify is async"):
        hidden(1)


def _calling(function: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: function()  # noqa: PLW0108 - a function that is not async itself


def _failing(order: int) -> int:
    raise ConnectionError


def test_scopes_keep_functions_apart_unless_they_share_one(plain: Idempotency) -> None:
    def one(order: int) -> str:
        return "one"

    def two(order: int) -> str:
        return "two"

    assert [plain(key="{order}")(function)(1) for function in (one, two)] == ["one", "two"]
    assert [plain(key="{order}", scope="both")(function)(1) for function in (one, two)] == ["one", "one"]


def test_a_function_without_a_name_of_its_own_needs_a_scope(plain: Idempotency) -> None:
    with pytest.raises(errors.IdempotencyInvalid, match="give it a scope="):
        plain(key=lambda order: order)(lambda order: order)

    def main(order: int) -> int:
        return order

    main.__module__ = "__main__"
    unscoped = Idempotency(plain.records)
    with pytest.raises(errors.IdempotencyInvalid, match="is in __main__"):
        unscoped(key="{order}")(main)
    assert plain(key="{order}")(main)(1) == 1


@pytest.mark.parametrize("fingerprint", [True, lambda order, text="": text])
def test_a_key_with_another_payload_can_be_refused(
    records: Records, clock: ManualClock, how: str, fingerprint: Any
) -> None:
    for lru in (0, 10):
        charge = Counted(Idempotency(records, clock=clock, lru=lru), how, fingerprint=fingerprint)
        charge(17, "a")
        charge(17, "a")
        with pytest.raises(errors.FingerprintMismatch, match="counted:17 was used with another payload"):
            charge(17, "b")


def test_a_record_is_kept_for_its_time_to_live(records: Records, clock: ManualClock, how: str) -> None:
    charge = Counted(Idempotency(records, clock=clock, ttl="1h"), how)
    charge(17)
    later(clock, 3_599)
    charge(17)
    assert charge.calls == [17]
    later(clock, 1)
    charge(17)
    assert charge.calls == [17, 17]


def test_what_is_forgotten_runs_again(idem: Idempotency, how: str) -> None:
    charge = Counted(idem, how)
    charge(17)
    idem.forget(17, scope="counted")
    charge(17)
    assert charge.calls == [17, 17]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lease": 0.01}, "lease is at least 0.1 seconds"),
        ({"lease": 60, "ttl": 59}, "ttl is at least as long as the lease"),
        ({"ttl": "a week"}, "ttl is written like"),
        ({"lru": -1}, "lru is a whole number"),
        ({"lru": True}, "lru is a whole number"),
        ({"wait": -1}, "wait cannot be negative"),
    ],
)
def test_options_that_make_no_sense_are_refused(plain: Idempotency, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Idempotency(plain.records, **options)
    if "lru" not in options:
        with pytest.raises(ValueError, match=message):
            plain(key="{order}", **options)
