"""Patterns with stars and question marks, matched in linear time."""

from __future__ import annotations

import random
import re

import pytest

from penstock.domain.glob import TEXT_CHARACTERS_MAX, matches

CASES = [
    ("", "", True),
    ("", "a", False),
    ("*", "", True),
    ("*", "anything\nat all", True),
    ("?", "", False),
    ("?", "\n", True),
    ("abc", "abc", True),
    ("abc", "abcd", False),
    ("abc", "ABC", False),
    ("a*", "a", True),
    ("*a", "ba", True),
    ("a*a", "a", False),
    ("a*a", "aa", True),
    ("ab*ba", "aba", False),
    ("*b*", "abc", True),
    ("*a*b*", "ba", False),
    ("a?c*?", "abcd", True),
    ("a?c*?", "abc", False),
    ("*??", "a", False),
    ("*?b?*", "ab", False),
    ("*?b?*", "abc", True),
    ("[a]", "a", False),
    ("[a]", "[a]", True),
    ("a.c", "abc", False),
    ("a\\*", "a\\b", True),
    ("**a**", "xay", True),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), CASES)
def test_a_star_is_any_text_and_a_question_mark_any_character(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


def test_matching_agrees_with_regular_expressions() -> None:
    rng = random.Random(4)
    for _ in range(5_000):
        pattern = "".join(rng.choices("ab*?", k=rng.randint(0, 8)))
        text = "".join(rng.choices("ab", k=rng.randint(0, 10)))
        expression = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
        assert matches(pattern, text) is (re.fullmatch(expression, text) is not None), (pattern, text)


def test_many_stars_on_a_long_text_cost_little() -> None:
    """The regular expression that this replaced did not come to an end."""
    for pattern in ("*a" * 100 + "b", "*a?" * 60 + "b", "*" + "?" * 150 + "b*c", "*" + "a" * 100 + "?b*" + "c"):
        assert not matches(pattern, "a" * TEXT_CHARACTERS_MAX)


def test_what_is_too_long_to_be_a_name_is_like_no_pattern_but_the_one_for_everything() -> None:
    too_long = "a" * (TEXT_CHARACTERS_MAX + 1)
    assert not matches("a*", too_long)
    assert matches("*", too_long)
