"""Permissions as SQS keeps them: statements of a policy document, added and removed by their labels."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import InvalidParameter, MissingParameter, OverLimit
from penstock.domain.policy_actions import ACTIONS, OWN_ACCOUNT_ONLY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.queue import QueueName

ACTIONS_MAX = 7
STATEMENTS_MAX = 20
PRINCIPALS_MAX = 50
_VERSION = "2008-10-17"
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile(r"[0-9]{12}")
_ANY_ACTION = "*"


def add_permission(
    policy: str, queue: QueueName, *, label: str, accounts: Sequence[str], actions: Sequence[str]
) -> str:
    """Add a statement that lets the root of each account do these actions on the queue; return the new policy."""
    _check(label, accounts, actions)
    document = _document(policy, queue)
    statements = document["Statement"]
    if any(_label(statement) == label for statement in statements):
        raise InvalidParameter(f"Value {label} for parameter Label is invalid. Reason: Already exists.")
    if len(statements) >= STATEMENTS_MAX:
        raise OverLimit(f"{len(statements) + 1} Statements were found, maximum allowed is {STATEMENTS_MAX}.")
    statements.append(
        {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": _one_or_many([f"arn:aws:iam::{account}:root" for account in accounts])},
            "Action": _one_or_many([f"SQS:{action}" for action in actions]),
            "Resource": queue.arn,
        }
    )
    return _text(document)


def remove_permission(policy: str, queue: QueueName, *, label: str) -> str:
    """Remove the statement with this label; return the new policy, which is empty when no statement is left."""
    document = _document(policy, queue)
    statements = document["Statement"]
    kept = [statement for statement in statements if _label(statement) != label]
    if len(kept) == len(statements):
        raise InvalidParameter(f"Value {label} for parameter Label is invalid. Reason: can't find label.")
    document["Statement"] = kept
    return _text(document) if kept else ""


def _check(label: str, accounts: Sequence[str], actions: Sequence[str]) -> None:
    if not _LABEL.fullmatch(label):
        raise InvalidParameter(
            f"Value {label} for parameter Label is invalid. "
            "Reason: Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
        )
    if not actions:
        raise MissingParameter("The request must contain the parameter Actions.")
    if not accounts:
        raise InvalidParameter("Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.")
    if len(actions) > ACTIONS_MAX:
        raise OverLimit(f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}.")
    if len(accounts) > PRINCIPALS_MAX:
        raise OverLimit(f"{len(accounts)} Principals were found, maximum allowed is {PRINCIPALS_MAX}.")
    for account in accounts:
        if not _ACCOUNT.fullmatch(account):
            raise InvalidParameter(f"Value {account} for parameter PrincipalId is invalid. Reason: Unable to verify.")
    for action in actions:
        if action != _ANY_ACTION:
            _check_action(action)


def _check_action(action: str) -> None:
    if action in ACTIONS - OWN_ACCOUNT_ONLY:
        return
    reason = "Please refer to the appropriate WSDL for a list of valid actions."
    if action in OWN_ACCOUNT_ONLY:
        reason = "Only the queue owner is allowed to invoke this action."
    raise InvalidParameter(f"Value SQS:{action} for parameter ActionName is invalid. Reason: {reason}")


def _document(policy: str, queue: QueueName) -> dict[str, Any]:
    """Read a policy, or begin one; a single statement may stand without its list."""
    document: dict[str, Any] = (
        json.loads(policy) if policy else {"Version": _VERSION, "Id": f"{queue.arn}/SQSDefaultPolicy"}
    )
    statements = document.get("Statement", [])
    document["Statement"] = statements if isinstance(statements, list) else [statements]
    return document


def _label(statement: object) -> object:
    return statement.get("Sid") if isinstance(statement, dict) else None


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _one_or_many(texts: list[str]) -> str | list[str]:
    return texts[0] if len(texts) == 1 else texts
