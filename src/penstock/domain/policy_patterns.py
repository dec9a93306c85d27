"""Patterns of actions and resources in policies, in which `*` stands for any text and `?` for any character."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.domain.errors import PolicyInvalid
from penstock.domain.glob import ANYTHING, matches

PATTERNS_MAX = 200
_ARN_PARTS = 6


class Patterns(msgspec.Struct, frozen=True):
    """Matches what is like any of its patterns; or, `negated`, what is like none of them."""

    texts: tuple[str, ...]
    negated: bool = False

    def match(self, text: str) -> bool:
        """Tell whether `text` matches."""
        return any(matches(pattern, text) for pattern in self.texts) != self.negated


def parse_patterns(statement: dict[str, Any], element: str, *, lower: bool = False) -> Patterns:
    """Read `element`, or what stands instead of it with `Not` before its name. Raises `PolicyInvalid`."""
    negation = f"Not{element}"
    if (element in statement) == (negation in statement):
        raise PolicyInvalid(f"A statement has either {element} or {negation}.")
    name = element if element in statement else negation
    given = statement[name]
    texts = given if isinstance(given, list) else [given]
    if not 0 < len(texts) <= PATTERNS_MAX or not all(isinstance(text, str) for text in texts):
        raise PolicyInvalid(f"The {name} of a statement is text, or a list of 1 to {PATTERNS_MAX} texts.")
    for text in texts:
        _check(name, text, is_arn=not lower)
    return Patterns(tuple(text.lower() if lower else text for text in texts), negated=name == negation)


def _check(name: str, text: str, *, is_arn: bool) -> None:
    if text == ANYTHING:
        return
    if "${" in text:
        raise PolicyInvalid(f"The {name} {text!r} holds a policy variable, and those are not supported.")
    # With as many colons as a queue's ARN has, no star can stand for more than its own part.
    if is_arn and (len(text.split(":", _ARN_PARTS - 1)) != _ARN_PARTS or not text.startswith("arn:")):
        raise PolicyInvalid(f"The {name} {text!r} is neither * nor of the form arn:aws:sqs:REGION:ACCOUNT:NAME.")
    if not is_arn and (text.count(":") != 1 or not all(text.split(":"))):
        raise PolicyInvalid(f"The {name} {text!r} is neither * nor of the form sqs:ACTION.")
