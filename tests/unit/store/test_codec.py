"""What is written is read back the same, and takes little room."""

from __future__ import annotations

import pytest

from penstock.domain.message import Attribute, Refused, SendResult, Sent
from penstock.domain.queue import (
    DeduplicationScope,
    QueueAttributes,
    QueueName,
    RedriveAllowPolicy,
    RedrivePermission,
    RedrivePolicy,
)
from penstock.store import codec

DEAD = QueueName("eu-central-1", "000000000000", "dead")


@pytest.mark.parametrize(
    ("attributes", "trace_header"),
    [
        ({}, None),
        ({}, "Root=1-5759e988-bd862e3fe1be46a994272793"),
        ({"Ort": Attribute("String", "Zürich")}, None),
        ({"n": Attribute("Number.int", "7"), "raw": Attribute("Binary", b"\x00\xff")}, "Root=1"),
    ],
)
def test_attributes(attributes: dict[str, Attribute], trace_header: str | None) -> None:
    written = codec.encode_attributes(attributes, trace_header)
    assert codec.decode_attributes(written) == (attributes, trace_header)
    assert (written is None) == (not attributes and trace_header is None)


def test_results() -> None:
    results: list[SendResult] = [Sent("id"), Sent("id", 7), Refused("InvalidParameter", "It is not allowed.")]
    assert codec.decode_results(codec.encode_results(results)) == results
    assert len(codec.encode_results([Sent("00000000-0000-4000-8000-000000000000")])) < 42


def test_outcomes() -> None:
    results: list[SendResult] = [Sent("id", 7), Refused("InvalidParameter", "It is not allowed.")]
    deliveries = [(1 << 62, 1), (3, 4)]
    written = codec.encode_outcomes([(b"sent", codec.result_rows(results)), (b"leased", deliveries)])
    sent, leased = codec.decode_outcomes(written)
    assert sent == (b"sent", codec.encode_results(results))
    assert (leased[0], codec.decode_deliveries(leased[1])) == (b"leased", deliveries)


def test_queue_attributes() -> None:
    attributes = QueueAttributes(
        delay_s=3,
        policy='{"Version": "2012-10-17"}',
        redrive=RedrivePolicy(DEAD, 3),
        redrive_allow=RedriveAllowPolicy(RedrivePermission.BY_QUEUE, (DEAD,)),
        deduplication_scope=DeduplicationScope.MESSAGE_GROUP,
    )
    assert codec.decode_queue_attributes(codec.encode_queue_attributes(attributes)) == attributes
    assert codec.decode_queue_attributes("{}") == QueueAttributes(), (
        "what an older version did not write is the default"
    )


def test_tags() -> None:
    tags = {"team": "Zürich", "empty": ""}
    assert codec.decode_tags(codec.encode_tags(tags)) == tags
