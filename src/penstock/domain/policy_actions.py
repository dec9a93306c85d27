"""The actions that policies speak of: one for each operation of SQS, which a batch shares with its single form."""

from __future__ import annotations

from penstock.domain.errors import PolicyInvalid
from penstock.domain.glob import matches

SINGLES = {
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
    "DeleteMessageBatch": "DeleteMessage",
    "SendMessageBatch": "SendMessage",
}
"""Batches, and the actions that allow or deny them. Policies may name a batch itself, with no effect."""

OWN_ACCOUNT_ONLY = frozenset(
    {
        "AddPermission",
        "CancelMessageMoveTask",
        "CreateQueue",
        "DeleteQueue",
        "ListMessageMoveTasks",
        "ListQueues",
        "ListQueueTags",
        "RemovePermission",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    }
)
"""What no queue policy can allow another account, as on AWS."""

ACTIONS = OWN_ACCOUNT_ONLY | {
    "ChangeMessageVisibility",
    "DeleteMessage",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListDeadLetterSourceQueues",
    "PurgeQueue",
    "ReceiveMessage",
    "SendMessage",
}
"""Every action that is ever checked."""

_SERVICE = "sqs"
_CHECKED = frozenset(f"{_SERVICE}:{action}".lower() for action in ACTIONS)
_NAMED = _CHECKED | {f"{_SERVICE}:{batch}".lower() for batch in SINGLES}


def check_action(pattern: str, *, widens: bool, other_services: bool) -> None:
    """Refuse the pattern, in lower case, of an action that does not exist. Raises `PolicyInvalid`.

    `widens` says that such a pattern would leave more allowed than its author thinks: in a Deny, or in a NotAction.
    There even the name of a batch is refused, since nothing is ever checked by it. Elsewhere a policy may speak of
    other services, if `other_services` says so: that grants nothing here.
    """
    if any(matches(pattern, action) for action in (_CHECKED if widens else _NAMED)):
        return
    if other_services and not widens and not matches(pattern.partition(":")[0], _SERVICE):
        return
    raise PolicyInvalid(f"The action {pattern!r} is not one of SQS, so that a statement about it has no effect.")
