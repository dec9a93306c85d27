"""Whose turn it is and when time may move: every way in which processes wait beside each other."""

from __future__ import annotations

import pytest

from penstock.lab.control import ControlBroken, Line, Lines, decode, encode
from penstock.lab.turns import Advance, Decision, Grant, Listen, Return, Settle, Stuck, Turns

A, B = "A", "B"


def turns_of(**said: list[Line]) -> Turns:
    """Processes that have said this, each line in a turn of its own."""
    turns = Turns()
    for name, lines in said.items():
        turns.start(name)
        for line in lines:
            if line[0] in {"sleep", "poll"}:
                turns.grant(name)
            turns.hear(name, line)
    return turns


HELLO: Line = ["hello"]
CASES: list[tuple[str, Turns, dict[str, int | None], Decision]] = [
    ("nobody waits for anything", turns_of(), {}, Stuck()),
    ("only the scenario waits", turns_of(), {"until_ms": 500}, Advance(500)),
    ("the scenario's instant has come", turns_of(), {"until_ms": 0}, Return()),
    ("one has not said hello", turns_of(A=[]), {"until_ms": 500}, Listen()),
    ("one has just started", turns_of(A=[HELLO]), {}, Grant(A)),
    ("the first of two that started", turns_of(A=[HELLO], B=[HELLO]), {}, Grant(A)),
    ("one starts while another sleeps", turns_of(A=[HELLO, ["sleep", 100]], B=[]), {}, Listen()),
    ("both sleep: to the earlier", turns_of(A=[HELLO, ["sleep", 200]], B=[HELLO, ["sleep", 100]]), {}, Advance(100)),
    ("a sleep that is over", turns_of(A=[HELLO, ["sleep", 200]], B=[HELLO, ["sleep", 0]]), {}, Grant(B)),
    ("the earlier of two that are over", turns_of(A=[HELLO, ["sleep", -1]], B=[HELLO, ["sleep", -2]]), {}, Grant(B)),
    ("a process before the scenario", turns_of(A=[HELLO, ["sleep", 0]]), {"until_ms": 0}, Grant(A)),
    ("a poll that the server has not got", turns_of(A=[HELLO, ["poll", 100]]), {"polls_parked": 0}, Settle()),
    ("a poll that the server holds", turns_of(A=[HELLO, ["poll", 100]]), {"polls_parked": 1}, Advance(100)),
    (
        "an answer on its way to one of two",
        turns_of(A=[HELLO, ["poll", 100]], B=[HELLO, ["poll", 100]]),
        {"polls_parked": 1},
        Settle(),
    ),
    (
        "no turn for others while an answer is on its way",
        turns_of(A=[HELLO, ["poll", 100]], B=[HELLO, ["sleep", 0]]),
        {"polls_parked": 0},
        Settle(),
    ),
    ("a poll of one who was killed", turns_of(), {"polls_parked": 1, "until_ms": 500}, Settle()),
    ("the answer is there", turns_of(A=[HELLO, ["poll", 100], ["turn"]]), {"polls_parked": 0}, Grant(A)),
    (
        "a lease that ends before the poll does",
        turns_of(A=[HELLO, ["poll", 100]]),
        {"polls_parked": 1, "server_next_ms": 40},
        Advance(40),
    ),
    (
        "a timer of the server after all else",
        turns_of(A=[HELLO, ["sleep", 100]]),
        {"server_next_ms": 3_600_000},
        Advance(100),
    ),
    ("time does not go back", turns_of(A=[HELLO, ["poll", -5]]), {"polls_parked": 1}, Advance(0)),
]


@pytest.mark.parametrize(("turns", "seen", "decision"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_comes_next(turns: Turns, seen: dict[str, int | None], decision: Decision) -> None:
    known = {"now_ms": 0, "polls_parked": 0, **seen}
    assert turns.decide(**known) == decision  # type: ignore[arg-type]


def test_nobody_else_goes_on_during_a_turn() -> None:
    turns = turns_of(A=[HELLO], B=[HELLO])
    turns.grant(A)
    assert turns.decide(now_ms=0, polls_parked=0, until_ms=0) == Listen()
    turns.hear(A, ["sleep", 10])
    assert turns.decide(now_ms=0, polls_parked=0) == Grant(B)


def test_a_process_that_ended_in_its_turn_holds_nobody_up() -> None:
    turns = turns_of(A=[HELLO], B=[HELLO, ["sleep", 50]])
    turns.grant(A)
    turns.end(A)
    assert turns.decide(now_ms=0, polls_parked=0) == Advance(50)
    turns.hear(A, ["sleep", 10])  # Read late.
    assert turns.decide(now_ms=0, polls_parked=0) == Advance(50)


def test_time_stands_still_until_a_signal_is_heard_or_ends_the_process() -> None:
    turns = turns_of(A=[HELLO, ["sleep", 50]], B=[HELLO, ["sleep", 90]])
    turns.signal(A)
    turns.signal(B)
    assert turns.decide(now_ms=0, polls_parked=0) == Listen()
    turns.hear(A, ["heard"])
    assert turns.decide(now_ms=0, polls_parked=0) == Listen()
    turns.end(B)
    assert turns.decide(now_ms=0, polls_parked=0) == Advance(50)


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ([], ["sleep", 1]),
        ([HELLO], ["poll", 1]),
        ([HELLO], ["hello"]),
        ([HELLO, ["sleep", 5]], ["turn"]),
        ([HELLO, ["poll", 5]], ["sleep", 1]),
        ([HELLO, ["poll", 5]], ["poll", 1]),
        ([HELLO, ["sleep", 5]], ["dance"]),
    ],
)
def test_what_a_process_cannot_say_now_is_refused(before: list[Line], line: Line) -> None:
    turns = turns_of(A=before)
    with pytest.raises(ControlBroken, match="A says"):
        turns.hear(A, line)


def test_lines_are_read_however_they_are_cut() -> None:
    written = encode(["sleep", 12]) + encode(["note", "send", "ok"])
    for place in range(len(written)):
        lines = Lines()
        assert lines.feed(written[:place]) + lines.feed(written[place:]) == [["sleep", 12], ["note", "send", "ok"]]


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"[1.5]", b"nonsense"])
def test_what_is_no_line_is_refused(line: bytes) -> None:
    with pytest.raises(ControlBroken):
        decode(line)


def test_a_line_without_an_end_is_refused() -> None:
    lines = Lines()
    with pytest.raises(ControlBroken, match="more than"):
        lines.feed(b"x" * 100_000)
