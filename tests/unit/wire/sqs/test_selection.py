from __future__ import annotations

import pytest

from penstock.wire.sqs.selection import Selection

ATTRIBUTES = {"Hello": 1, "General": 2, "Help.Me": 3}

# What Amazon SQS answered for the same attributes and filters.
CHOSEN: list[tuple[list[str], list[str]]] = [
    ([], []),
    (["All"], ["Hello", "General", "Help.Me"]),
    (["*"], ["Hello", "General", "Help.Me"]),
    ([".*"], ["Hello", "General", "Help.Me"]),
    (["Hello", "General"], ["Hello", "General"]),
    (["Hello", "Foo"], ["Hello"]),
    (["Foo", "Bar"], []),
    (["Hel.*"], ["Hello", "Help.Me"]),
    (["Help.*"], ["Help.Me"]),
    (["AWS.Foo"], []),
    (["foo bar", ""], []),
]


@pytest.mark.parametrize(("asked", "chosen"), CHOSEN)
def test_attributes_are_chosen_as_amazon_chooses_them(asked: list[str], chosen: list[str]) -> None:
    assert list(Selection.of(asked).choose(ATTRIBUTES)) == chosen


def test_asking_for_nothing_selects_nothing() -> None:
    assert not Selection.of([])
    assert Selection.of(["a"])
    assert Selection.of(["All"])
