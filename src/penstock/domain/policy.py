"""Policies: documents that say who may do what with which queue, and how several of them decide together.

They are written as for Amazon's IAM. What a document asks for is enforced or the document is refused: an element, an
operator or a condition key that would have no effect here is an error, never passed over.
"""

from __future__ import annotations

import enum
import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.domain.errors import PolicyInvalid
from penstock.domain.policy_conditions import Condition, parse_conditions
from penstock.domain.policy_patterns import Patterns, parse_actions, parse_queue_resources, parse_resources

DOCUMENT_CHARACTERS_MAX = 32_768
STATEMENTS_MAX = 100
_PARSED_MAX = 1_024
_VERSIONS = ("2012-10-17", "2008-10-17")
_DOCUMENT_KEYS = frozenset({"Version", "Id", "Statement"})
_STATEMENT_KEYS = frozenset({"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"})
_EFFECTS = ("Allow", "Deny")
_PRINCIPAL_KINDS = frozenset({"AWS", "Service", "Federated", "CanonicalUser"})
_ACCOUNT_DIGITS = 12
EVERYBODY = "*"


class Decision(enum.Enum):
    """What a policy says. Silence allows nothing, but leaves it to others to allow it; a denial is final."""

    SILENT = enum.auto()
    ALLOWED = enum.auto()
    DENIED = enum.auto()


class Principal(msgspec.Struct, frozen=True):
    """Somebody who calls: a user of an account. Nobody in particular has neither."""

    account: str = ""
    user: str = ""

    @property
    def known(self) -> bool:
        """Whether they proved who they are."""
        return bool(self.account)

    @property
    def arn(self) -> str:
        """How policies name this user."""
        return f"arn:aws:iam::{self.account}:user/{self.user}"

    @property
    def account_arn(self) -> str:
        """How policies name the user's whole account."""
        return f"arn:aws:iam::{self.account}:root"


class Asked(msgspec.Struct, frozen=True):
    """One thing that a caller wants to do, and the facts that conditions may ask about."""

    principal: Principal
    action: str
    """Such as `sqs:SendMessage`."""
    resource: str
    """The ARN of a queue."""
    facts: Mapping[str, str] = {}
    """By condition keys in lower case, of those in `policy_conditions.FACTS`."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a policy. `principals` is None in the policy of a user, which is about nobody else."""

    allow: bool
    actions: Patterns
    resources: Patterns
    principals: frozenset[str] | None
    conditions: tuple[Condition, ...]

    def covers(self, asked: Asked) -> bool:
        """Tell whether this rule is about what is asked, whoever asks."""
        return (
            self.actions.match(asked.action.lower())
            and self.resources.match(asked.resource)
            and all(condition.holds(asked.facts) for condition in self.conditions)
        )

    def names(self, principal: Principal, *, own_account: bool) -> bool:
        """Tell whether this rule is about somebody, or about everybody in their account if `own_account` counts."""
        if self.principals is None or EVERYBODY in self.principals:
            return True
        if not principal.known:
            return False
        return principal.arn in self.principals or (own_account and principal.account_arn in self.principals)


class Policy(msgspec.Struct, frozen=True):
    """A document, read."""

    statements: tuple[Statement, ...] = ()

    @property
    def conditional(self) -> bool:
        """Whether what it says depends on the circumstances."""
        return any(statement.conditions for statement in self.statements)

    def decide(self, asked: Asked, *, delegates: bool = True) -> Decision:
        """Say what this policy says. A rule that names a whole account allows its users things only if it `delegates`:
        within its own account it does not, since there it leaves that to the users' policies.
        """
        decision = Decision.SILENT
        for statement in self.statements:
            own_account = delegates or not statement.allow
            if statement.names(asked.principal, own_account=own_account) and statement.covers(asked):
                if not statement.allow:
                    return Decision.DENIED
                decision = Decision.ALLOWED
        return decision


class Verdict(enum.Enum):
    """Whether something may be done, and if not, for want of what. The words are Amazon's."""

    ALLOWED = ""
    DENIED_BY_USER = "with an explicit deny in an identity-based policy"
    DENIED_BY_QUEUE = "with an explicit deny in a resource-based policy"
    NOT_ALLOWED_BY_USER = "because no identity-based policy allows the {action} action"
    NOT_ALLOWED_BY_QUEUE = "because no resource-based policy allows the {action} action"


def judge(asked: Asked, *, owner: str, of_user: Policy, of_queue: Policy) -> Verdict:
    """Decide by the policy of the user who asks and that of the queue, which the account `owner` owns.

    A denial by either is final. Within one account either may allow it; between accounts both have to. Nobody in
    particular has no policy, and so depends on the queue's alone.
    """
    principal = asked.principal
    within = principal.known and principal.account == owner
    by_user = of_user.decide(asked) if principal.known else Decision.SILENT
    by_queue = of_queue.decide(asked, delegates=not within)
    if by_user is Decision.DENIED:
        return Verdict.DENIED_BY_USER
    if by_queue is Decision.DENIED:
        return Verdict.DENIED_BY_QUEUE
    if by_user is not Decision.ALLOWED and principal.known and not (within and by_queue is Decision.ALLOWED):
        return Verdict.NOT_ALLOWED_BY_USER
    if by_queue is not Decision.ALLOWED and not within:
        return Verdict.NOT_ALLOWED_BY_QUEUE
    return Verdict.ALLOWED


# -- reading --------------------------------------------------------------------------------------


def parse_user_policy(document: object) -> Policy:
    """Read the policy of a user: JSON text, or what was read from it. Raises `PolicyInvalid`."""
    return _parse(document, _user_statement)


@functools.lru_cache(maxsize=_PARSED_MAX)
def parse_queue_policy(text: str) -> Policy:
    """Read the policy of a queue, whose rules name those whom they are about. Raises `PolicyInvalid`."""
    return _parse(text, _queue_statement) if text else Policy()


def _parse(document: object, statement_of: Callable[[object], Statement]) -> Policy:
    if isinstance(document, str):
        document = _from_json(document)
    if not isinstance(document, dict):
        raise PolicyInvalid("A policy is a JSON object.")
    _check_keys(document, _DOCUMENT_KEYS, "A policy")
    if document.get("Version", _VERSIONS[0]) not in _VERSIONS:
        raise PolicyInvalid(f"The Version of a policy is {_VERSIONS[0]} or {_VERSIONS[1]}.")
    if "Statement" not in document:
        raise PolicyInvalid("A policy has a Statement.")
    statements = document["Statement"]
    statements = statements if isinstance(statements, list) else [statements]
    if len(statements) > STATEMENTS_MAX:
        raise PolicyInvalid(f"A policy holds at most {STATEMENTS_MAX} statements.")
    return Policy(tuple(statement_of(statement) for statement in statements))


def _from_json(text: str) -> object:
    if len(text) > DOCUMENT_CHARACTERS_MAX:
        raise PolicyInvalid(f"A policy has at most {DOCUMENT_CHARACTERS_MAX} characters.")
    try:
        return json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError):
        raise PolicyInvalid("The policy is not JSON.") from None


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object of its members. Readers disagree about which of two members of one name counts."""
    members = dict(pairs)
    if len(members) < len(pairs):
        [(repeated, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise PolicyInvalid(f"The policy has two members {repeated!r} in one object.")
    return members


def _user_statement(given: object) -> Statement:
    statement, allow = _checked(given, _STATEMENT_KEYS)
    return Statement(
        allow=allow,
        actions=parse_actions(statement, allow=allow, other_services=True),
        resources=parse_resources(statement),
        principals=None,
        conditions=parse_conditions(statement.get("Condition", {})),
    )


def _queue_statement(given: object) -> Statement:
    statement, allow = _checked(given, _STATEMENT_KEYS | {"Principal"})
    return Statement(
        allow=allow,
        actions=parse_actions(statement, allow=allow, other_services=False),
        resources=parse_queue_resources(statement, allow=allow),
        principals=_principals(statement),
        conditions=parse_conditions(statement.get("Condition", {})),
    )


def _checked(given: object, allowed: frozenset[str]) -> tuple[dict[str, Any], bool]:
    """Return a statement that has no other members than these, and whether it allows or denies."""
    if not isinstance(given, dict):
        raise PolicyInvalid("A statement is a JSON object.")
    _check_keys(given, allowed, "A statement")
    effect = given.get("Effect")
    if effect not in _EFFECTS:
        raise PolicyInvalid("The Effect of a statement is Allow or Deny.")
    return given, effect == _EFFECTS[0]


def _check_keys(given: dict[str, Any], allowed: frozenset[str], what: str) -> None:
    unknown = sorted(set(given) - allowed)
    if unknown:
        raise PolicyInvalid(f"{what} cannot hold {unknown[0]!r} here, only {', '.join(sorted(allowed))}.")


def _principals(statement: dict[str, Any]) -> frozenset[str]:
    """Read those whom a rule is about: `*`, and ARNs of users and accounts. Amazon's services never call here."""
    given = statement.get("Principal")
    if given == EVERYBODY:
        return frozenset({EVERYBODY})
    if not isinstance(given, dict) or not given or not set(given) <= _PRINCIPAL_KINDS:
        raise PolicyInvalid(
            'The Principal of a statement is "*", or an object with AWS, Service, Federated or CanonicalUser.'
        )
    found: set[str] = set()
    for kind, named in given.items():
        names = named if isinstance(named, list) else [named]
        if not names or not all(isinstance(name, str) and name for name in names):
            raise PolicyInvalid("A Principal is named by text, or by a list of texts.")
        if kind == "AWS":
            found.update(_principal(name) for name in names)
    return frozenset(found)


def _principal(name: str) -> str:
    if name == EVERYBODY:
        return name
    if len(name) == _ACCOUNT_DIGITS and name.isascii() and name.isdigit():
        return Principal(account=name).account_arn
    parts = name.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn" or parts[2] not in {"iam", "sts"} or "*" in name or "?" in name:
        raise PolicyInvalid(f'The principal {name!r} is neither "*", an account of 12 digits, nor the ARN of a user.')
    return name
