"""Makes the queues and tables of scenarios where they stay for many runs, and removes them again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.lab.environment import (
    PROJECT,
    QueueSettings,
    dlq_attributes,
    names_of,
    queue_attributes,
    was_deleted_recently,
)
from penstock.lab.knobs import turned
from penstock.lab.scenarios import NAMES, scenario
from penstock.lab.tables.port import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.lab.tables.places import TablePlace


FIFO_KNOB = "fifo"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a scenario: a queue and its dead-letter queue, of one kind, and two tables."""

    scenario: str
    fifo: bool = False


class Provided(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a scenario as they are."""

    scenario: str
    queue_url: str
    dlq_arn: str
    status_table: str
    side_effects_table: str


class Conflict(RuntimeError):
    """Something with the name of a resource is there, but is another thing."""


def wanted(names: Iterable[str] = ()) -> list[Wanted]:
    """Return what scenarios need, all of them if none is named.

    A scenario whose variants differ, or that has the knob `fifo`, has queues of both kinds; the first is that of its
    protected variant.
    """
    found: list[Wanted] = []
    for one in map(scenario, tuple(names) or NAMES):
        knobs = turned(one.knobs, {}, {})
        kinds = [one.queue(knobs, broken=broken).fifo for broken in (False, True)]
        if any(knob.name == FIFO_KNOB for knob in one.knobs):
            kinds.append(not kinds[0])
        found += [Wanted(scenario=one.name, fifo=fifo) for fifo in dict.fromkeys(kinds)]
    return found


def provision(
    sqs: Any,  # noqa: ANN401 - boto3 has no types for its clients
    tables: TablePlace | None,
    resources: Iterable[Wanted],
    *,
    project: str = PROJECT,
    wait: Callable[[], bool] = lambda: False,
) -> list[Provided]:
    """Make what is missing and set right what is there. If anything fails, what was made by this call is removed.

    SQS refuses the name of a queue for 60 seconds after its deletion. `wait` is called then, and returns whether to try
    again.
    """
    with contextlib.ExitStack() as undo:
        provided = [_provide(sqs, tables, one, project, undo, wait) for one in resources]
        undo.pop_all()
    return provided


def _provide(
    sqs: Any,  # noqa: ANN401 - as above
    tables: TablePlace | None,
    one: Wanted,
    project: str,
    undo: contextlib.ExitStack,
    wait: Callable[[], bool],
) -> Provided:
    names = names_of(project, one.scenario, fifo=one.fifo)
    dlq_url = _queue(sqs, names.dlq, dlq_attributes(fifo=one.fifo), undo, wait)
    answer = sqs.get_queue_attributes(QueueUrl=dlq_url, AttributeNames=["QueueArn"])
    arn = str(answer["Attributes"]["QueueArn"])
    url = _queue(sqs, names.queue, queue_attributes(QueueSettings(fifo=one.fifo), arn), undo, wait)
    for table in names.tables:
        if tables is None:
            break
        key = tables.key_of(table.name)
        if key is None:
            undo.callback(tables.remove, table.name)
            tables.create(table)
        elif key != f"HASH {KEY}":
            raise Conflict(f"There is a table {table.name} with the key {key}, not HASH {KEY}.")
    return Provided(
        scenario=one.scenario,
        queue_url=url,
        dlq_arn=arn,
        status_table=names.status_table,
        side_effects_table=names.side_effects_table,
    )


def _queue(
    sqs: Any,  # noqa: ANN401 - as above
    name: str,
    attributes: dict[str, str],
    undo: contextlib.ExitStack,
    wait: Callable[[], bool],
) -> str:
    try:
        url = str(sqs.get_queue_url(QueueName=name)["QueueUrl"])
    except sqs.exceptions.QueueDoesNotExist:
        # Also if the answer never comes: the server may have it all the same.
        undo.callback(_delete_named, sqs, name)
        return _made(sqs, name, attributes, wait)
    changeable = {key: value for key, value in attributes.items() if key != "FifoQueue"}
    if changeable:
        sqs.set_queue_attributes(QueueUrl=url, Attributes=changeable)
    return url


def _delete_named(sqs: Any, name: str) -> None:  # noqa: ANN401 - as above
    with contextlib.suppress(sqs.exceptions.QueueDoesNotExist):
        sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"])


def _made(sqs: Any, name: str, attributes: dict[str, str], wait: Callable[[], bool]) -> str:  # noqa: ANN401 - as above
    while True:
        try:
            return str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])
        except sqs.exceptions.ClientError as error:
            if not (was_deleted_recently(error) and wait()):
                raise


def remove(
    sqs: Any,  # noqa: ANN401 - as above
    tables: TablePlace | None,
    resources: Iterable[Wanted],
    *,
    project: str = PROJECT,
) -> list[str]:
    """Remove the queues and tables that are there, and return their names."""
    removed: list[str] = []
    for one in resources:
        names = names_of(project, one.scenario, fifo=one.fifo)
        for queue in (names.queue, names.dlq):
            with contextlib.suppress(sqs.exceptions.QueueDoesNotExist):
                sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=queue)["QueueUrl"])
                removed.append(queue)
        for table in names.tables:
            if tables is not None and tables.key_of(table.name) is not None:
                tables.remove(table.name)
                removed.append(table.name)
    return removed


def environment_of(provided: Provided) -> dict[str, str]:
    """Return the five variables with which the producer and the consumer find these resources."""
    return {
        "QUEUE_URL": provided.queue_url,
        "DLQ_ARN": provided.dlq_arn,
        "AWS_REGION": provided.dlq_arn.split(":")[3],
        "MESSAGE_STATUS_TABLE": provided.status_table,
        "MESSAGE_SIDE_EFFECTS_TABLE": provided.side_effects_table,
    }
