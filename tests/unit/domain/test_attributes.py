"""Queue attributes: ranges, defaults, and their text form."""

import json

import pytest

from penstock.domain.attributes import SETTABLE_NAMES, parse_attributes, render_attributes
from penstock.domain.errors import InvalidAttributeName, InvalidAttributeValue, InvalidParameter
from penstock.domain.queue import QueueAttributes, QueueName

STANDARD = QueueName("us-east-1", "000000000000", "orders")
FIFO = QueueName("us-east-1", "000000000000", "orders.fifo")
DEFAULTS = QueueAttributes()


def redrive_to(arn: str, count: object = 3) -> str:
    return json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": count})


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("DelaySeconds", 0, 900),
        ("MaximumMessageSize", 1_024, 1_048_576),
        ("MessageRetentionPeriod", 60, 1_209_600),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("VisibilityTimeout", 0, 43_200),
        ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
    ],
)
def test_numbers_are_taken_within_their_range_and_refused_beyond(name: str, low: int, high: int) -> None:
    for text in (str(low), str(high)):
        parsed = parse_attributes(STANDARD, {name: text, "KmsMasterKeyId": "key"}, DEFAULTS)
        assert render_attributes(STANDARD, parsed)[name] == text
    for text in (str(low - 1), str(high + 1), "", "x", "1.5", " 1", "٣"):
        with pytest.raises(InvalidAttributeValue):
            parse_attributes(STANDARD, {name: text}, DEFAULTS)


def test_defaults_are_those_of_sqs() -> None:
    assert render_attributes(STANDARD, DEFAULTS) == {
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "VisibilityTimeout": "30",
        "SqsManagedSseEnabled": "true",
    }
    assert render_attributes(FIFO, DEFAULTS) == {
        **render_attributes(STANDARD, DEFAULTS),
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
    }


def test_what_is_not_given_stays_as_it_was() -> None:
    before = parse_attributes(STANDARD, {"DelaySeconds": "7"}, DEFAULTS)
    after = parse_attributes(STANDARD, {"VisibilityTimeout": "9"}, before)
    assert (after.delay_s, after.visibility_timeout_s) == (7, 9)


@pytest.mark.parametrize("name", ["Nonsense", "QueueArn", "ApproximateNumberOfMessages", ""])
def test_unknown_attributes_are_refused(name: str) -> None:
    with pytest.raises(InvalidAttributeName):
        parse_attributes(FIFO, {name: "1"}, DEFAULTS)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ContentBasedDeduplication", "Unknown Attribute ContentBasedDeduplication."),
        ("DeduplicationScope", "You can specify the DeduplicationScope only when FifoQueue is set to true."),
        ("FifoThroughputLimit", "You can specify the FifoThroughputLimit only when FifoQueue is set to true."),
    ],
)
def test_fifo_attributes_are_refused_on_standard_queues(name: str, reason: str) -> None:
    with pytest.raises(InvalidAttributeName, match=reason):
        parse_attributes(STANDARD, {name: "true"}, DEFAULTS)


def test_a_redrive_policy_is_read_and_written_back() -> None:
    given = redrive_to("arn:aws:sqs:us-east-1:000000000000:dead", "5")
    parsed = parse_attributes(STANDARD, {"RedrivePolicy": given}, DEFAULTS)
    assert parsed.redrive is not None
    assert parsed.redrive.max_receive_count == 5
    assert json.loads(render_attributes(STANDARD, parsed)["RedrivePolicy"]) == {
        "deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead",
        "maxReceiveCount": 5,
    }
    assert parse_attributes(STANDARD, {"RedrivePolicy": ""}, parsed).redrive is None


ARN = "arn:aws:sqs:us-east-1:000000000000:"


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("no json", "Redrive policy is not a valid JSON map."),
        ("[]", "Redrive policy is not a valid JSON map."),
        ("{}", "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        ('{"maxReceiveCount":3}', "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        (f'{{"deadLetterTargetArn":"{ARN}dead","maxReceiveCount":3,"more":1}}', "Redrive policy holds more than"),
        (redrive_to(f"{ARN}dead", 0), "Invalid value for maxReceiveCount: 0, valid values are from 1 to 1000"),
        (redrive_to(f"{ARN}dead", 1_001), "Invalid value for maxReceiveCount: 1001, valid values are from 1 to 1000"),
        (redrive_to(f"{ARN}dead", True), "Invalid value for maxReceiveCount"),
        (redrive_to(f"{ARN}dead", 1.5), "Invalid value for maxReceiveCount"),
        (redrive_to(f"{ARN}dead", "many"), "Invalid value for maxReceiveCount"),
        (redrive_to("dead"), "Invalid value for deadLetterTargetArn."),
        (redrive_to(f"{ARN}dead.fifo"), "The dead-letter queue must be of the same type"),
        (redrive_to("arn:aws:sqs:eu-west-1:000000000000:dead"), "The dead-letter queue must be in the same region"),
        (redrive_to("arn:aws:sqs:us-east-1:111111111111:dead"), "Dead-letter target owner should be same"),
    ],
)
def test_a_redrive_policy_that_cannot_work_is_refused(policy: str, reason: str) -> None:
    """As a parameter, not as an attribute: so does SQS."""
    with pytest.raises(InvalidParameter) as refused:
        parse_attributes(STANDARD, {"RedrivePolicy": policy}, DEFAULTS)
    assert refused.value.reason.startswith(f"Value {policy} for parameter RedrivePolicy is invalid. Reason: {reason}")


def test_a_redrive_allow_policy_says_who_may() -> None:
    other = QueueName("us-east-1", "000000000000", "other")
    by_queue = {"redrivePermission": "byQueue", "sourceQueueArns": [STANDARD.arn]}
    for policy, allowed in (
        ({"redrivePermission": "allowAll"}, {STANDARD, other}),
        ({"redrivePermission": "denyAll"}, set()),
        (by_queue, {STANDARD}),
    ):
        parsed = parse_attributes(other, {"RedriveAllowPolicy": json.dumps(policy)}, DEFAULTS)
        assert parsed.redrive_allow is not None
        assert {name for name in (STANDARD, other) if parsed.redrive_allow.allows(name)} == allowed
        assert json.loads(render_attributes(other, parsed)["RedriveAllowPolicy"]) == policy


@pytest.mark.parametrize(
    "policy",
    [
        {"redrivePermission": "perhaps"},
        {"redrivePermission": "byQueue"},
        {"redrivePermission": "denyAll", "sourceQueueArns": [STANDARD.arn]},
        {"redrivePermission": "byQueue", "sourceQueueArns": [STANDARD.arn] * 11},
        {"redrivePermission": "byQueue", "sourceQueueArns": "orders"},
    ],
)
def test_a_redrive_allow_policy_that_makes_no_sense_is_refused(policy: dict[str, object]) -> None:
    with pytest.raises(InvalidAttributeValue):
        parse_attributes(STANDARD, {"RedriveAllowPolicy": json.dumps(policy)}, DEFAULTS)


def test_a_kms_key_turns_managed_encryption_off() -> None:
    assert not parse_attributes(STANDARD, {"KmsMasterKeyId": "alias/mine"}, DEFAULTS).managed_sse
    with pytest.raises(InvalidAttributeName, match="You can use one type of server-side encryption"):
        parse_attributes(STANDARD, {"KmsMasterKeyId": "alias/mine", "SqsManagedSseEnabled": "true"}, DEFAULTS)


def test_throughput_per_group_needs_deduplication_per_group() -> None:
    per_group = {"FifoThroughputLimit": "perMessageGroupId"}
    with pytest.raises(InvalidAttributeValue):
        parse_attributes(FIFO, per_group, DEFAULTS)
    parse_attributes(FIFO, {**per_group, "DeduplicationScope": "messageGroup"}, DEFAULTS)


def test_every_settable_attribute_has_its_test_value() -> None:
    values = {
        "DelaySeconds": "1",
        "MaximumMessageSize": "2048",
        "MessageRetentionPeriod": "61",
        "ReceiveMessageWaitTimeSeconds": "2",
        "VisibilityTimeout": "3",
        "Policy": '{"Version":"2012-10-17","Statement":[]}',
        "RedrivePolicy": '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead.fifo","maxReceiveCount":4}',
        "RedriveAllowPolicy": '{"redrivePermission":"denyAll"}',
        "ContentBasedDeduplication": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
        "KmsMasterKeyId": "key",
        "KmsDataKeyReusePeriodSeconds": "61",
        "SqsManagedSseEnabled": "false",
    }
    assert set(values) == SETTABLE_NAMES
    rendered = render_attributes(FIFO, parse_attributes(FIFO, values, DEFAULTS))
    assert rendered == {**values, "FifoQueue": "true"}
