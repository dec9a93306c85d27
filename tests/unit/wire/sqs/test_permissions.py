from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.domain.errors import InvalidParameter, MissingParameter, OverLimit, PenstockError
from penstock.domain.queue import QueueName
from penstock.wire.sqs.permissions import add_permission, remove_permission

ORDERS = QueueName("us-east-1", "000000000000", "orders")
ARN = "arn:aws:sqs:us-east-1:000000000000:orders"


def add(policy: str = "", label: str = "share", **changes: Any) -> str:
    given: dict[str, Any] = {"accounts": ["111122223333"], "actions": ["ReceiveMessage"], **changes}
    return add_permission(policy, ORDERS, label=label, **given)


def test_a_permission_is_a_statement_of_the_policy() -> None:
    assert add() == (
        '{"Version":"2008-10-17","Id":"arn:aws:sqs:us-east-1:000000000000:orders/SQSDefaultPolicy","Statement":['
        '{"Sid":"share","Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111122223333:root"},'
        '"Action":"SQS:ReceiveMessage","Resource":"arn:aws:sqs:us-east-1:000000000000:orders"}]}'
    )


def test_several_accounts_and_actions_are_lists() -> None:
    policy = json.loads(add(accounts=["111122223333", "444455556666"], actions=["SendMessage", "*"]))
    statement = policy["Statement"][0]
    assert statement["Principal"] == {"AWS": ["arn:aws:iam::111122223333:root", "arn:aws:iam::444455556666:root"]}
    assert statement["Action"] == ["SQS:SendMessage", "SQS:*"]


def test_permissions_are_removed_by_their_label_and_the_last_one_takes_the_policy_with_it() -> None:
    both = add(add(), label="another")
    one = remove_permission(both, ORDERS, label="share")
    assert [statement["Sid"] for statement in json.loads(one)["Statement"]] == ["another"]
    assert remove_permission(one, ORDERS, label="another") == ""


def test_what_a_user_wrote_into_the_policy_stays() -> None:
    own = json.dumps({"Version": "2012-10-17", "Statement": {"Sid": "own", "Effect": "Deny", "Action": "sqs:*"}})
    removed = json.loads(remove_permission(add(own), ORDERS, label="share"))
    assert removed == {"Version": "2012-10-17", "Statement": [{"Sid": "own", "Effect": "Deny", "Action": "sqs:*"}]}


def test_a_policy_whose_statements_are_none_is_left_alone() -> None:
    assert json.loads(add('{"Statement":["what?"]}'))["Statement"][0] == "what?"


REFUSED: list[tuple[dict[str, Any], type[PenstockError], str]] = [
    ({"label": "no spaces"}, InvalidParameter, "Value no spaces for parameter Label is invalid."),
    (
        {"accounts": []},
        InvalidParameter,
        "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.",
    ),
    ({"actions": []}, MissingParameter, "The request must contain the parameter Actions."),
    (
        {"accounts": ["me"]},
        InvalidParameter,
        "Value me for parameter PrincipalId is invalid. Reason: Unable to verify.",
    ),
    ({"actions": ["Fly"]}, InvalidParameter, "Value SQS:Fly for parameter ActionName is invalid."),
    (
        {"actions": ["SendMessageBatch"]},
        InvalidParameter,
        "Value SQS:SendMessageBatch for parameter ActionName is invalid. Reason: Please refer to the appropriate WSDL",
    ),
    (
        {"actions": ["SendMessage", "DeleteQueue"]},
        InvalidParameter,
        "Value SQS:DeleteQueue for parameter ActionName is invalid. Reason: Only the queue owner is allowed to invoke",
    ),
    ({"actions": ["SendMessage"] * 8}, OverLimit, "8 Actions were found, maximum allowed is 7."),
    ({"accounts": ["111122223333"] * 51}, OverLimit, "51 Principals were found, maximum allowed is 50."),
]


@pytest.mark.parametrize(("changes", "kind", "reason"), REFUSED)
def test_bad_permissions_are_refused(changes: dict[str, Any], kind: type[PenstockError], reason: str) -> None:
    with pytest.raises(kind) as refused:
        add(**changes)
    assert refused.value.reason.startswith(reason)


def test_a_label_is_used_once() -> None:
    with pytest.raises(InvalidParameter) as refused:
        add(add())
    assert refused.value.reason == "Value share for parameter Label is invalid. Reason: Already exists."


def test_a_label_that_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(InvalidParameter) as refused:
        remove_permission("", ORDERS, label="share")
    assert refused.value.reason == "Value share for parameter Label is invalid. Reason: can't find label."


def test_a_policy_holds_twenty_statements() -> None:
    policy = ""
    for number in range(20):
        policy = add(policy, label=f"l{number}")
    with pytest.raises(OverLimit):
        add(policy)
