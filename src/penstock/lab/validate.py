"""Checks that the queues and tables of scenarios are there and as they must be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.lab.environment import PROJECT, QueueSettings, names_of
from penstock.lab.tables.port import KEY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.lab.provisioning import Wanted
    from penstock.lab.tables.places import TablePlace


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is missing or wrong."""

    resource: str
    problem: str
    missing: bool = False
    """Whether it is not there at all."""


def validate(
    sqs: Any,  # noqa: ANN401 - boto3 has no types for its clients
    tables: TablePlace | None,
    wanted: Iterable[Wanted],
    *,
    project: str = PROJECT,
) -> list[Fault]:
    """Return all that is wrong with the resources of these scenarios; tables are left out without a place."""
    faults: list[Fault] = []
    scenarios: set[str] = set()
    for one in wanted:
        names = names_of(project, one.scenario, fifo=one.fifo)
        dlq = _attributes(sqs, names.dlq)
        queue = _attributes(sqs, names.queue)
        if dlq is None:
            faults.append(Fault(resource=names.dlq, problem="there is no such queue", missing=True))
        if queue is None:
            faults.append(Fault(resource=names.queue, problem="there is no such queue", missing=True))
        else:
            faults += _queue_faults(names.queue, queue, None if dlq is None else dlq["QueueArn"])
        if tables is not None and one.scenario not in scenarios:
            for table in names.tables:
                faults += _table_faults(tables, table.name)
        scenarios.add(one.scenario)
    return faults


def _attributes(sqs: Any, name: str) -> dict[str, str] | None:  # noqa: ANN401 - as above
    try:
        url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    except sqs.exceptions.QueueDoesNotExist:
        return None
    attributes: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return attributes


def _queue_faults(name: str, attributes: dict[str, str], dlq_arn: str | None) -> Iterable[Fault]:
    usual = QueueSettings()
    written = attributes.get("RedrivePolicy")
    if not written:
        yield Fault(resource=name, problem="it has no RedrivePolicy: poison messages would return for ever")
    else:
        policy = json.loads(written)
        target = policy.get("deadLetterTargetArn")
        if dlq_arn is not None and target != dlq_arn:
            yield Fault(resource=name, problem=f"its dead letters go to {target}, not to {dlq_arn}")
        receives = int(policy.get("maxReceiveCount", 0))
        if receives != usual.receives_max:
            yield Fault(resource=name, problem=f"maxReceiveCount is {receives}, not {usual.receives_max}")
    for attribute, value in (
        ("VisibilityTimeout", usual.visibility_s),
        ("ReceiveMessageWaitTimeSeconds", usual.receive_wait_s),
    ):
        if int(attributes.get(attribute, -1)) != value:
            yield Fault(resource=name, problem=f"{attribute} is {attributes.get(attribute)}, not {value}")


def _table_faults(tables: TablePlace, name: str) -> Iterable[Fault]:
    key = tables.key_of(name)
    if key is None:
        yield Fault(resource=name, problem="there is no such table", missing=True)
    elif key != f"HASH {KEY}":
        yield Fault(resource=name, problem=f"its key must be HASH {KEY} alone, not {key}")
