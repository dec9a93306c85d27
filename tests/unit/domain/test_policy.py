"""Who may do what: documents, and how they decide together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.domain.errors import PolicyInvalid
from penstock.domain.policy import (
    Asked,
    Decision,
    Policy,
    Principal,
    Verdict,
    judge,
    parse_queue_policy,
    parse_user_policy,
)
from penstock.domain.policy_actions import ACTIONS, SINGLES
from penstock.wire.sqs.operations import OPERATIONS

OWN, OTHER = "111122223333", "444455556666"
ANN = Principal(account=OWN, user="ann")
BOB = Principal(account=OTHER, user="bob")
NOBODY = Principal()
ORDERS = f"arn:aws:sqs:eu-west-1:{OWN}:orders"
TASKS = f"arn:aws:sqs:eu-west-1:{OWN}:tasks.fifo"

# As it stands in the description of a service's role, with the name pattern filled in and not.
SERVICE_ROLE = """
{
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": [
                "sqs:SendMessage",
                "sqs:ReceiveMessage",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
                "sqs:GetQueueUrl"
            ],
            "Resource": [
                "arn:aws:sqs:*:*:{queue-name-pattern}.fifo"
            ]
        }
    ]
}
"""


def rule(effect: Any = "Allow", action: Any = "sqs:*", resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": action, "Resource": resource, **more}


def user(*rules: dict[str, Any]) -> Policy:
    return parse_user_policy({"Version": "2012-10-17", "Statement": list(rules)})


def queue(*rules: dict[str, Any]) -> Policy:
    return parse_queue_policy(json.dumps({"Version": "2012-10-17", "Statement": list(rules)}))


def asked(
    action: str = "SendMessage", resource: str = ORDERS, who: Principal = ANN, facts: dict[str, str] | None = None
) -> Asked:
    return Asked(who, f"sqs:{action}", resource, facts or {})


# -- one policy -----------------------------------------------------------------------------------


def test_the_service_roles_policy_works_as_written() -> None:
    policy = parse_user_policy(SERVICE_ROLE.replace("{queue-name-pattern}", "task*"))
    allowed = ["SendMessage", "ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl"]
    for action in allowed:
        assert policy.decide(asked(action, TASKS)) is Decision.ALLOWED
        assert policy.decide(asked(action, ORDERS)) is Decision.SILENT
    assert policy.decide(asked("DeleteQueue", TASKS)) is Decision.SILENT
    assert policy.decide(asked("SendMessage", TASKS.replace("tasks", "other"))) is Decision.SILENT


def test_braces_are_no_wildcards() -> None:
    policy = parse_user_policy(SERVICE_ROLE)
    literally = "arn:aws:sqs:eu-west-1:1:{queue-name-pattern}.fifo"
    assert policy.decide(asked("SendMessage", literally)) is Decision.ALLOWED
    assert policy.decide(asked("SendMessage", TASKS)) is Decision.SILENT


ALLOW, SILENT = Decision.ALLOWED, Decision.SILENT
PATTERNS = [
    ("sqs:*", "*", ALLOW),
    ("*", "*", ALLOW),
    ("SQS:sendmessage", "*", ALLOW),
    ("sqs:Send*", "*", ALLOW),
    ("sqs:SendMessag?", "*", ALLOW),
    ("sqs:DeleteMessag?", "*", SILENT),
    ("sqs:Receive*", "*", SILENT),
    ("s3:*", "*", SILENT),
    (["s3:GetObject", "sqs:SendMessage"], "*", ALLOW),
    ("sqs:*", ORDERS, ALLOW),
    ("sqs:*", ORDERS.upper().replace("ARN:AWS:SQS", "arn:aws:sqs"), SILENT),
    ("sqs:*", f"arn:aws:sqs:*:{OWN}:*", ALLOW),
    ("sqs:*", f"arn:aws:sqs:*:{OTHER}:*", SILENT),
    ("sqs:*", "arn:aws:sqs:eu-*-1:*:ord?rs", ALLOW),
    ("sqs:*", "arn:aws:sqs:*:*:[o]rders", SILENT),
    ("sqs:*", "arn:aws:sqs:*:*:order", SILENT),
    ("sqs:*", "arn:*:*:*:*:*", ALLOW),
    ("sqs:*", ["arn:aws:s3:::bucket/*", "arn:aws:sqs:*:*:orders*"], ALLOW),
]


@pytest.mark.parametrize(("action", "resource", "decision"), PATTERNS)
def test_actions_and_resources_have_wildcards(action: Any, resource: Any, decision: Decision) -> None:
    assert user(rule("Allow", action, resource)).decide(asked()) is decision


def test_what_a_pattern_is_not() -> None:
    policy = user(
        {"Effect": "Allow", "NotAction": ["sqs:Delete*", "sqs:Purge*"], "NotResource": "arn:aws:sqs:*:*:secret*"}
    )
    assert policy.decide(asked("SendMessage")) is Decision.ALLOWED
    assert policy.decide(asked("DeleteQueue")) is Decision.SILENT
    assert policy.decide(asked("SendMessage", ORDERS.replace("orders", "secrets"))) is Decision.SILENT


def test_a_denial_wins_whatever_comes_before_or_after() -> None:
    allow, deny = rule(), rule("Deny", "sqs:DeleteQueue")
    for policy in (user(allow, deny), user(deny, allow)):
        assert policy.decide(asked("DeleteQueue")) is Decision.DENIED
        assert policy.decide(asked("SendMessage")) is Decision.ALLOWED


def test_many_stars_cost_no_more_than_few() -> None:
    pattern = "arn:aws:sqs:*:*:" + "*a" * 200 + "b"
    assert user(rule("Allow", "sqs:*", pattern)).decide(asked(resource=ORDERS + "a" * 300)) is Decision.SILENT


CONDITIONS: list[tuple[dict[str, Any], dict[str, str], bool]] = [
    ({"Bool": {"aws:SecureTransport": "true"}}, {"aws:securetransport": "true"}, True),
    ({"Bool": {"aws:SecureTransport": True}}, {"aws:securetransport": "false"}, False),
    ({"StringEquals": {"aws:PrincipalAccount": [OTHER, OWN]}}, {"aws:principalaccount": OWN}, True),
    ({"StringEquals": {"aws:PrincipalAccount": OTHER}}, {"aws:principalaccount": OWN}, False),
    ({"StringEquals": {"aws:PrincipalAccount": OTHER}}, {}, False),
    ({"StringNotEquals": {"aws:PrincipalAccount": [OTHER]}}, {"aws:principalaccount": OWN}, True),
    ({"StringNotEquals": {"aws:PrincipalAccount": [OTHER, OWN]}}, {"aws:principalaccount": OWN}, False),
    ({"StringNotEquals": {"aws:PrincipalAccount": OTHER}}, {}, True),
    ({"StringEqualsIfExists": {"aws:PrincipalAccount": OTHER}}, {}, True),
    ({"StringEqualsIfExists": {"aws:PrincipalAccount": OTHER}}, {"aws:principalaccount": OWN}, False),
    ({"StringEqualsIgnoreCase": {"aws:username": "ANN"}}, {"aws:username": "ann"}, True),
    ({"StringLike": {"aws:username": ["b*", "a*"]}}, {"aws:username": "ann"}, True),
    ({"StringNotLike": {"aws:username": "a*"}}, {"aws:username": "ann"}, False),
    ({"ArnLike": {"aws:PrincipalArn": f"arn:aws:iam::{OWN}:user/*"}}, {"aws:principalarn": ANN.arn}, True),
    ({"ArnNotEquals": {"aws:PrincipalArn": ANN.arn}}, {"aws:principalarn": ANN.arn}, False),
    ({"ArnEquals": {"aws:SourceArn": "arn:aws:sns:*:*:topic"}}, {}, False),
    (
        {"StringEquals": {"aws:username": "ann"}, "Bool": {"aws:SecureTransport": "true"}},
        {"aws:username": "ann", "aws:securetransport": "false"},
        False,
    ),
]


@pytest.mark.parametrize(("condition", "facts", "holds"), CONDITIONS)
def test_conditions(condition: dict[str, Any], facts: dict[str, str], holds: bool) -> None:
    decision = user(rule(Condition=condition)).decide(asked(facts=facts))
    assert decision is (Decision.ALLOWED if holds else Decision.SILENT)


REFUSED: list[tuple[Any, str]] = [
    ("{", "not JSON"),
    ("[" * 30_000, "not JSON"),
    ("[]", "a JSON object"),
    ("{}", "has a Statement"),
    ({"Version": "2020-01-01", "Statement": []}, "2012-10-17"),
    ({"Statement": [], "Statements": []}, "'Statements'"),
    ({"Statement": ["what?"]}, "A statement is a JSON object"),
    ({"Statement": rule("Permit")}, "Allow or Deny"),
    ({"Statement": rule(Principle="*")}, "'Principle'"),
    ({"Statement": {"Effect": "Allow", "Resource": "*"}}, "either Action or NotAction"),
    ({"Statement": rule(NotAction="sqs:*")}, "either Action or NotAction"),
    ({"Statement": rule(action=[])}, "a list of 1 to"),
    ({"Statement": rule(action=7)}, "text, or a list"),
    ({"Statement": rule(action="SendMessage")}, "sqs:ACTION"),
    ({"Statement": rule("Permit", action=[])}, "Allow or Deny"),
    ({"Statement": rule([])}, "Allow or Deny"),
    ({"Statement": rule({})}, "Allow or Deny"),
    ({"Version": [], "Statement": []}, "2012-10-17"),
    ({"Statement": rule(action="sqs:SendMesage")}, "'sqs:sendmesage' is not one of SQS"),
    ({"Statement": rule(action="sqs:SendMessage?")}, "'sqs:sendmessage?' is not one of SQS"),
    ({"Statement": rule(action="s*:SendMesage")}, "'s*:sendmesage' is not one of SQS"),
    ({"Statement": rule("Deny", "sqs:DeletQueue")}, "'sqs:deletqueue' is not one of SQS"),
    ({"Statement": rule("Deny", "sq:DeleteQueue")}, "'sq:deletequeue' is not one of SQS"),
    ({"Statement": rule("Deny", "sqs:SendMessageBatch")}, "'sqs:sendmessagebatch' is not one of SQS"),
    ({"Statement": {"Effect": "Allow", "NotAction": "s3:*", "Resource": "*"}}, "'s3:*' is not one of SQS"),
    ('{"Statement": [], "Statement": []}', "two members 'Statement'"),
    ('{"Statement": {"Effect": "Deny", "Effect": "Allow", "Action": "*", "Resource": "*"}}', "two members 'Effect'"),
    ('{"Statement": {"Condition": {"Bool": {"a": 1, "b": 2, "b": 3}}}}', "two members 'b'"),
    ({"Statement": rule(resource="orders")}, "arn:aws:sqs:REGION:ACCOUNT:NAME"),
    ({"Statement": rule(resource="arn:aws:sqs:*")}, "arn:aws:sqs:REGION:ACCOUNT:NAME"),
    ({"Statement": rule(resource="arn:aws:sqs:*:*:${aws:username}")}, "policy variable"),
    ({"Statement": rule(Condition=[])}, "JSON object of operators"),
    ({"Statement": rule(Condition={"Bool": "yes"})}, "JSON object of keys"),
    ({"Statement": rule(Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}})}, "'IpAddress' is not supported"),
    ({"Statement": rule(Condition={"StringEquals": {"aws:SourceIp": "10.0.0.1"}})}, "'aws:SourceIp' is not supported"),
    ({"Statement": rule(Condition={"ForAllValues:StringLike": {"aws:username": "a"}})}, "ForAllValues"),
    ({"Statement": rule(Condition={"Bool": {"aws:SecureTransport": [{}]}})}, "are texts"),
    ({"Statement": rule(Condition={"StringLike": {"aws:username": "${x}"}})}, "policy variable"),
    ({"Statement": [rule()] * 101}, "at most 100 statements"),
    (" " * 40_000, "characters"),
]


@pytest.mark.parametrize(("document", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_would_not_be_enforced_is_refused(document: Any, reason: str) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        parse_user_policy(document)
    assert reason in refused.value.reason


# -- whom a queue's policy names ------------------------------------------------------------------

PRINCIPALS = [
    ("*", ANN, True),
    ("*", NOBODY, True),
    ({"AWS": "*"}, NOBODY, True),
    ({"AWS": OTHER}, BOB, True),
    ({"AWS": [OWN, f"arn:aws:iam::{OTHER}:root"]}, BOB, True),
    ({"AWS": BOB.arn}, BOB, True),
    ({"AWS": ANN.arn}, BOB, False),
    ({"AWS": OTHER}, NOBODY, False),
    ({"AWS": f"arn:aws:iam::{OTHER}:role/worker"}, BOB, False),
    ({"Service": "sns.amazonaws.com"}, BOB, False),
    ({"Service": "sns.amazonaws.com", "AWS": OTHER}, BOB, True),
]


@pytest.mark.parametrize(("principal", "who", "named"), PRINCIPALS)
def test_a_queues_policy_names_whom_it_is_about(principal: Any, who: Principal, named: bool) -> None:
    decision = queue(rule(Principal=principal)).decide(asked(who=who))
    assert decision is (Decision.ALLOWED if named else Decision.SILENT)


@pytest.mark.parametrize(
    "principal", [None, "everybody", {}, [], {"Somebody": "x"}, {"AWS": []}, {"AWS": 7}, {"AWS": "ann"}, {"AWS": "12"}]
)
def test_a_principal_that_names_nobody_is_refused(principal: Any) -> None:
    with pytest.raises(PolicyInvalid):
        queue(rule(Principal=principal))


def test_a_queues_policy_needs_a_principal_and_a_users_has_none() -> None:
    with pytest.raises(PolicyInvalid, match="Principal"):
        queue(rule())
    with pytest.raises(PolicyInvalid, match="'Principal'"):
        user(rule(Principal="*"))
    with pytest.raises(PolicyInvalid, match="'NotPrincipal'"):
        queue(rule(NotPrincipal="*"))


RESOURCES = [
    ({"Resource": "*"}, True),
    ({"Resource": ORDERS}, True),
    ({"Resource": "arn:aws:sqs:*"}, True),
    ({"Resource": "orders"}, False),
    ({"Resource": "any text at all"}, False),
    ({"Resource": ""}, False),
    ({"Resource": ["", TASKS]}, False),
    ({"Resource": ["", ORDERS]}, True),
    ({"NotResource": "any text at all"}, True),
]


@pytest.mark.parametrize(("resource", "about_orders"), RESOURCES)
def test_the_resource_of_a_queues_policy_is_any_text(resource: dict[str, Any], about_orders: bool) -> None:
    """As on AWS, which keeps what it is given: what does not match the queue has no effect."""
    allow, deny = {"Principal": "*", "Action": "sqs:*"}, {"Principal": "*", "Action": "sqs:SendMessage"}
    policy = queue({"Effect": "Allow", **allow, **resource})
    assert policy.decide(asked()) is (Decision.ALLOWED if about_orders else Decision.SILENT)
    policy = queue({"Effect": "Deny", **deny, **resource}, rule(Principal="*"))
    assert policy.decide(asked()) is (Decision.DENIED if about_orders else Decision.ALLOWED)


def test_a_statement_of_a_queues_policy_without_a_resource_grants_nothing_and_denies() -> None:
    without = {"Principal": "*", "Action": "sqs:SendMessage"}
    assert queue({"Effect": "Allow", **without}).decide(asked()) is Decision.SILENT
    assert queue({"Effect": "Deny", **without}, rule(Principal="*")).decide(asked()) is Decision.DENIED


def test_actions_of_other_services_grant_nothing_in_a_users_policy_and_are_refused_in_a_queues() -> None:
    assert user(rule(action="s3:GetObject")).decide(asked()) is Decision.SILENT
    with pytest.raises(PolicyInvalid, match="'s3:getobject' is not one of SQS"):
        queue(rule(action="s3:GetObject", Principal="*"))


def test_the_name_of_a_batch_grants_nothing() -> None:
    """Policies that were written for AWS name them beside the single actions."""
    policy = user(rule(action=["sqs:SendMessageBatch", "sqs:DeleteMessage"]))
    assert policy.decide(asked("SendMessage")) is Decision.SILENT
    assert policy.decide(asked("DeleteMessage")) is Decision.ALLOWED


def test_every_operation_has_an_action() -> None:
    assert ACTIONS | set(SINGLES) == set(OPERATIONS)
    assert set(SINGLES.values()) <= ACTIONS


def test_no_policy_says_nothing() -> None:
    assert parse_queue_policy("").decide(asked()) is Decision.SILENT


# -- together -------------------------------------------------------------------------------------

YES, NO, NONE = user(rule()), user(rule("Deny")), Policy()
FOR_ALL = queue(rule(Principal="*"))
FOR_OTHER = queue(rule(Principal={"AWS": OTHER}))
FOR_OWN = queue(rule(Principal={"AWS": OWN}))
FOR_ANN = queue(rule(Principal={"AWS": ANN.arn}))
AGAINST_ALL = queue(rule("Deny", Principal="*"))
AGAINST_OWN = queue(rule("Deny", Principal={"AWS": OWN}))

TOGETHER = [
    # within the account: either allows, either denies
    (ANN, YES, NONE, Verdict.ALLOWED),
    (ANN, NONE, NONE, Verdict.NOT_ALLOWED_BY_USER),
    (ANN, NONE, FOR_ALL, Verdict.ALLOWED),
    (ANN, NONE, FOR_ANN, Verdict.ALLOWED),
    (ANN, NONE, FOR_OWN, Verdict.NOT_ALLOWED_BY_USER),
    (ANN, YES, FOR_OWN, Verdict.ALLOWED),
    (ANN, NO, FOR_ALL, Verdict.DENIED_BY_USER),
    (ANN, YES, AGAINST_ALL, Verdict.DENIED_BY_QUEUE),
    (ANN, YES, AGAINST_OWN, Verdict.DENIED_BY_QUEUE),
    # between accounts: both allow
    (BOB, YES, NONE, Verdict.NOT_ALLOWED_BY_QUEUE),
    (BOB, NONE, FOR_OTHER, Verdict.NOT_ALLOWED_BY_USER),
    (BOB, YES, FOR_OTHER, Verdict.ALLOWED),
    (BOB, YES, FOR_ALL, Verdict.ALLOWED),
    (BOB, YES, FOR_OWN, Verdict.NOT_ALLOWED_BY_QUEUE),
    (BOB, YES, AGAINST_ALL, Verdict.DENIED_BY_QUEUE),
    (BOB, YES, AGAINST_OWN, Verdict.NOT_ALLOWED_BY_QUEUE),
    (BOB, NO, FOR_OTHER, Verdict.DENIED_BY_USER),
    # nobody: the queue alone
    (NOBODY, NONE, NONE, Verdict.NOT_ALLOWED_BY_QUEUE),
    (NOBODY, NONE, FOR_ALL, Verdict.ALLOWED),
    (NOBODY, YES, FOR_OWN, Verdict.NOT_ALLOWED_BY_QUEUE),
    (NOBODY, NONE, AGAINST_ALL, Verdict.DENIED_BY_QUEUE),
]


@pytest.mark.parametrize(("who", "of_user", "of_queue", "verdict"), TOGETHER)
def test_user_and_queue_decide_together(who: Principal, of_user: Policy, of_queue: Policy, verdict: Verdict) -> None:
    assert judge(asked(who=who), owner=OWN, of_user=of_user, of_queue=of_queue) is verdict


def test_nobody_owns_nothing() -> None:
    """A queue that is named without an account is not the own one of those who have none."""
    assert judge(asked(who=NOBODY), owner="", of_user=YES, of_queue=NONE) is Verdict.NOT_ALLOWED_BY_QUEUE
