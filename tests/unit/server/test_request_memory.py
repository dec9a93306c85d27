"""The budget of bytes that unfinished requests may hold."""

from __future__ import annotations

from penstock.server.request_memory import ANONYMOUS_SHARE, OWN_BYTES, ConnectionMemory, RequestMemory

BUDGET = 1_000


def test_small_requests_take_nothing_from_the_budget() -> None:
    shared = RequestMemory(0)
    connection = ConnectionMemory(shared)
    assert connection.hold(OWN_BYTES)
    assert not connection.hold(1, recognised=True)
    connection.free(1)
    assert connection.hold(1)
    assert shared.taken_bytes == 0


def test_what_is_beyond_is_taken_and_given_back() -> None:
    shared = RequestMemory(BUDGET)
    one, other = ConnectionMemory(shared), ConnectionMemory(shared)
    assert one.hold(OWN_BYTES + 600, recognised=True)
    assert not other.hold(OWN_BYTES + 401, recognised=True)
    assert other.hold(OWN_BYTES + 400, recognised=True)
    assert shared.taken_bytes == BUDGET
    one.free(500)
    assert shared.taken_bytes == 500
    one.free(OWN_BYTES)
    assert shared.taken_bytes == 400
    other.close()
    one.close()
    assert shared.taken_bytes == 0


def test_anonymous_callers_get_a_part_of_the_budget() -> None:
    shared = RequestMemory(BUDGET)
    part = BUDGET // ANONYMOUS_SHARE
    anonymous, known = ConnectionMemory(shared), ConnectionMemory(shared)
    assert not anonymous.hold(OWN_BYTES + part + 1)
    assert anonymous.hold(OWN_BYTES + part)
    assert known.hold(OWN_BYTES + BUDGET - part, recognised=True)


def test_a_refused_request_holds_nothing() -> None:
    shared = RequestMemory(BUDGET)
    connection = ConnectionMemory(shared)
    assert not connection.hold(OWN_BYTES + BUDGET + 1, recognised=True)
    assert connection.hold(OWN_BYTES + BUDGET, recognised=True)
