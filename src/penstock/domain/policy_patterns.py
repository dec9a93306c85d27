"""Patterns of actions and resources in policies, in which `*` stands for any text and `?` for any character."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.domain.errors import PolicyInvalid
from penstock.domain.glob import ANYTHING, matches
from penstock.domain.policy_actions import check_action

PATTERNS_MAX = 200
_ARN_PARTS = 6


class Patterns(msgspec.Struct, frozen=True):
    """Matches what is like any of its patterns; or, `negated`, what is like none of them."""

    texts: tuple[str, ...]
    negated: bool = False

    def match(self, text: str) -> bool:
        """Tell whether `text` matches."""
        return any(matches(pattern, text) for pattern in self.texts) != self.negated


def parse_actions(statement: dict[str, Any], *, allow: bool, other_services: bool) -> Patterns:
    """Read the actions of a statement that allows or denies them. Raises `PolicyInvalid`."""
    name, texts = _texts(statement, "Action")
    negated = name != "Action"
    patterns = tuple(text.lower() for text in texts)
    for pattern in patterns:
        if pattern != ANYTHING and (pattern.count(":") != 1 or not all(pattern.split(":"))):
            raise PolicyInvalid(f"The {name} {pattern!r} is neither * nor of the form sqs:ACTION.")
        check_action(pattern, widens=negated or not allow, other_services=other_services)
    return Patterns(patterns, negated=negated)


def parse_resources(statement: dict[str, Any]) -> Patterns:
    """Read the queues that a statement of a user's policy is about. Raises `PolicyInvalid`."""
    name, texts = _texts(statement, "Resource")
    for text in texts:
        # With as many colons as a queue's ARN has, no star can stand for more than its own part.
        if text != ANYTHING and (len(text.split(":", _ARN_PARTS - 1)) != _ARN_PARTS or not text.startswith("arn:")):
            raise PolicyInvalid(f"The {name} {text!r} is neither * nor of the form arn:aws:sqs:REGION:ACCOUNT:NAME.")
    return Patterns(tuple(texts), negated=name != "Resource")


def parse_queue_resources(statement: dict[str, Any], *, allow: bool) -> Patterns:
    """Read what a statement of a queue's policy is about: any text, or none, as on AWS. Raises `PolicyInvalid`.

    What does not match the queue's ARN grants nothing. Without a Resource, too, a statement grants nothing; but what
    it denies is denied, because its author can mean no other queue.
    """
    if "Resource" not in statement and "NotResource" not in statement:
        return Patterns(() if allow else (ANYTHING,))
    name, texts = _texts(statement, "Resource")
    return Patterns(tuple(texts), negated=name != "Resource")


def _texts(statement: dict[str, Any], element: str) -> tuple[str, list[str]]:
    """Return the patterns of `element`, or of what stands instead of it with `Not` before its name, and that name."""
    negation = f"Not{element}"
    if (element in statement) == (negation in statement):
        raise PolicyInvalid(f"A statement has either {element} or {negation}.")
    name = element if element in statement else negation
    given = statement[name]
    texts = given if isinstance(given, list) else [given]
    if not 0 < len(texts) <= PATTERNS_MAX or not all(isinstance(text, str) for text in texts):
        raise PolicyInvalid(f"The {name} of a statement is text, or a list of 1 to {PATTERNS_MAX} texts.")
    for text in texts:
        if "${" in text:
            raise PolicyInvalid(f"The {name} {text!r} holds a policy variable, and those are not supported.")
    return name, texts
