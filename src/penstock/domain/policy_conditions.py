"""Conditions in policies: the operators and keys that are enforced; any other is refused when the policy is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from penstock.domain.errors import PolicyInvalid
from penstock.domain.glob import matches

CONDITIONS_MAX = 50
VALUES_MAX = 200

FACTS = frozenset(
    {
        "aws:principalaccount",
        "aws:principalarn",
        "aws:requestedregion",
        "aws:securetransport",
        "aws:username",
    }
)
"""What is known of a request, as far as it is known at all."""

ABSENT = frozenset(
    {
        "aws:principalorgid",
        "aws:principalorgpaths",
        "aws:sourceaccount",
        "aws:sourcearn",
        "aws:sourceorgid",
        "aws:sourceowner",
        "aws:sourcevpc",
        "aws:sourcevpce",
    }
)
"""What only Amazon's services, organisations and networks add to a request. It may be asked about, and is not there."""

_IF_EXISTS = "ifexists"


def _equal(wanted: str, found: str) -> bool:
    return wanted == found


def _equal_in_any_case(wanted: str, found: str) -> bool:
    return wanted.lower() == found.lower()


# By name in lower case: how one value is compared, and whether the operator is negated.
_OPERATORS: dict[str, tuple[Callable[[str, str], bool], bool]] = {
    "stringequals": (_equal, False),
    "stringnotequals": (_equal, True),
    "stringequalsignorecase": (_equal_in_any_case, False),
    "stringnotequalsignorecase": (_equal_in_any_case, True),
    "stringlike": (matches, False),
    "stringnotlike": (matches, True),
    "arnequals": (matches, False),
    "arnlike": (matches, False),
    "arnnotequals": (matches, True),
    "arnnotlike": (matches, True),
    "bool": (_equal_in_any_case, False),
}


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One key under one operator. Without the fact a plain operator fails and a negated one holds, as on AWS."""

    compare: Callable[[str, str], bool]
    negated: bool
    if_exists: bool
    key: str
    values: tuple[str, ...]

    def holds(self, facts: Mapping[str, str]) -> bool:
        """Tell whether it holds."""
        found = facts.get(self.key)
        if found is None:
            return self.negated or self.if_exists
        return any(self.compare(wanted, found) for wanted in self.values) != self.negated


def parse_conditions(given: object) -> tuple[Condition, ...]:
    """Read the `Condition` of a statement. Raises `PolicyInvalid` for what would not be enforced."""
    if not isinstance(given, dict):
        raise PolicyInvalid("A Condition is a JSON object of operators.")
    found: list[Condition] = []
    for operator, tests in given.items():
        if not isinstance(tests, dict):
            raise PolicyInvalid(f"The operator {operator!r} of a Condition holds a JSON object of keys.")
        found.extend(_condition(operator, key, values) for key, values in tests.items())
    if len(found) > CONDITIONS_MAX:
        raise PolicyInvalid(f"A statement holds at most {CONDITIONS_MAX} conditions.")
    return tuple(found)


def _condition(operator: str, key: str, given: object) -> Condition:
    name = operator.lower()
    if_exists = name.endswith(_IF_EXISTS)
    known = _OPERATORS.get(name.removesuffix(_IF_EXISTS))
    if known is None:
        raise PolicyInvalid(f"The condition operator {operator!r} is not supported.")
    if key.lower() not in FACTS | ABSENT:
        raise PolicyInvalid(
            f"The condition key {key!r} is not supported. Supported are {', '.join(sorted(FACTS | ABSENT))}."
        )
    values = [_text(value) for value in (given if isinstance(given, list) else [given])]
    if not 0 < len(values) <= VALUES_MAX:
        raise PolicyInvalid(f"The condition on {key!r} has 1 to {VALUES_MAX} values.")
    if any("${" in value for value in values):
        raise PolicyInvalid(f"The condition on {key!r} holds a policy variable, and those are not supported.")
    compare, negated = known
    return Condition(compare=compare, negated=negated, if_exists=if_exists, key=key.lower(), values=tuple(values))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise PolicyInvalid("The values of a condition are texts.")
