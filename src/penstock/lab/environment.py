"""The queues and tables of a scenario: made before it, or found where somebody else made them, and cleaned up after."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Self

import msgspec

from penstock.client.sqs.problems import code_of
from penstock.lab.endpoints import client, where
from penstock.lab.payloads import queue_name
from penstock.lab.tables.places import Table, table_place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

PROJECT = "sqs-demo"
FIFO = ".fifo"
RETENTION_S_MAX = 1_209_600
DRAIN_S_MAX = 5.0
"""How much longer than a lease it may take to empty a queue."""
DRAIN_PAUSE_S = 0.2
PURGE_S = 60.0
"""How long a purge takes on AWS, at most."""
NAMES_MAX = 20
"""How many names are tried where SQS refuses the usual one."""
_HIDDEN = ["ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"]


class Missing(LookupError):
    """A queue or table that somebody else must make is not there."""


class NotEmptied(RuntimeError):
    """A queue has messages that cannot be removed: somebody else uses it."""


class NotMade(RuntimeError):
    """SQS refuses every name for a queue."""


def was_deleted_recently(error: BaseException) -> bool:
    """Return whether SQS refuses a name because a queue that had it was deleted less than 60 seconds ago."""
    return code_of(error).startswith("QueueDeletedRecently")


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the queues of a scenario are made."""

    visibility_s: int = 10
    receive_wait_s: int = 10
    receives_max: int = 2
    """After how many receives a message is a dead letter; 0 is never."""
    fifo: bool = False
    attributes: dict[str, str] = {}
    """Further attributes, by their names in SQS."""


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """What the resources of a scenario are called."""

    queue: str
    dlq: str
    status_table: str
    side_effects_table: str

    @property
    def tables(self) -> tuple[Table, Table]:
        """Both tables."""
        return Table(self.status_table, "status"), Table(self.side_effects_table, "side-effects")


def names_of(project: str, scenario: str, *, fifo: bool = False) -> Names:
    """Return the names of a scenario's resources."""
    base, end = f"{project}-{scenario}", FIFO if fifo else ""
    return Names(
        queue=f"{base}-queue{end}",
        dlq=f"{base}-dlq{end}",
        status_table=f"{base}-message-status",
        side_effects_table=f"{base}-message-side-effects",
    )


def queue_attributes(settings: QueueSettings, dlq_arn: str | None) -> dict[str, str]:
    """Return the attributes that a scenario's queue is made with."""
    attributes = {
        "VisibilityTimeout": str(settings.visibility_s),
        "ReceiveMessageWaitTimeSeconds": str(settings.receive_wait_s),
        **settings.attributes,
    }
    if settings.fifo:
        attributes["FifoQueue"] = "true"
    if dlq_arn is not None and settings.receives_max:
        policy = {"deadLetterTargetArn": dlq_arn, "maxReceiveCount": settings.receives_max}
        attributes["RedrivePolicy"] = json.dumps(policy)
    return attributes


def dlq_attributes(*, fifo: bool) -> dict[str, str]:
    """Return the attributes that a dead-letter queue is made with: it keeps messages for as long as SQS allows."""
    return {"MessageRetentionPeriod": str(RETENTION_S_MAX)} | ({"FifoQueue": "true"} if fifo else {})


class Environment:
    """The resources of one variant of a scenario, for the length of a block.

    What is there is emptied before and after, and its attributes are set back. With `make`, what is missing is made and
    removed again, also if something fails half-way; without it, it raises `Missing`.

    SQS refuses the name of a queue for 60 seconds after its deletion. A queue that is made meanwhile has a number in
    its name, which `names` then has, too.
    """

    def __init__(
        self,
        names: Names,
        settings: QueueSettings,
        *,
        endpoint: str | None,
        region: str,
        tables_url: str,
        make: bool,
        profile: str = "",
    ) -> None:
        self.names = names
        self.settings = settings
        self.endpoint = endpoint
        self.region = region
        self.profile = profile
        self.tables_url = tables_url
        self.queue_url = ""
        self.dlq_url = ""
        self._make = make
        self.empty_wait_s = 1
        """How long an empty queue is looked at: a short poll may miss messages on AWS."""
        self.purge_wait_s = PURGE_S
        self.sqs = client("sqs", endpoint=endpoint, region=region, profile=profile or None)
        self._tables = table_place(tables_url, region=region, profile=profile or None)
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._undo.callback(self.close)
        try:
            if self._make:
                self._open_queues()
                self._open_tables()
            else:
                # Nothing is changed until all of it has been found.
                self.queue_url, self.dlq_url = (self._url_of(name) for name in (self.names.queue, self.names.dlq))
                self._open_tables()
                self._open_queues()
        except BaseException:
            # What was made before it failed, or before Ctrl+C, is removed.
            self._undo.close()
            raise
        self.names = msgspec.structs.replace(self.names, queue=queue_name(self.queue_url), dlq=queue_name(self.dlq_url))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def close(self) -> None:
        """Close the clients."""
        self.sqs.close()
        self._tables.close()

    # -- queues ---------------------------------------------------------------------------------------

    def _open_queues(self) -> None:
        self.dlq_url = self._found(self.names.dlq) or self._create_queue(
            self.names.dlq, dlq_attributes(fifo=self.settings.fifo)
        )
        wanted = queue_attributes(self.settings, self.dlq_arn)
        found = self._found(self.names.queue)
        if found is None:
            self.queue_url = self._create_queue(self.names.queue, wanted)
            return
        self.queue_url = found
        # The scenario may want another visibility timeout, or none of the dead letters, in its broken variant.
        usual = queue_attributes(QueueSettings(fifo=self.settings.fifo), self.dlq_arn)
        self._undo.callback(self._set, found, usual)
        self._set(found, {"RedrivePolicy": "", **wanted})

    def _found(self, name: str) -> str | None:
        """Return the URL of a queue that is there, and empty it now and at the end."""
        try:
            url = self._url_of(name)
        except Missing:
            if not self._make:
                raise
            return None
        self._undo.callback(self._drained, url)
        self._empty(url)
        return url

    def _create_queue(self, name: str, attributes: dict[str, str]) -> str:
        for one in _numbered(name):
            if one != name and self._is_there(one):
                continue  # It is another run's.
            try:
                url = str(self.sqs.create_queue(QueueName=one, Attributes=attributes)["QueueUrl"])
            except self.sqs.exceptions.ClientError as error:
                if not was_deleted_recently(error):
                    raise
            except BaseException:
                # Stopped, or without an answer: the server may have it all the same.
                self._undo.callback(self._delete_named, one)
                raise
            else:
                self._undo.callback(self._delete_queue, url)
                return url
        raise NotMade(f"{NAMES_MAX} queues named like {name} are there or were deleted less than 60 s ago.")

    def _is_there(self, name: str) -> bool:
        try:
            self._url_of(name)
        except Missing:
            return False
        return True

    def _delete_queue(self, url: str) -> None:
        with contextlib.suppress(self.sqs.exceptions.QueueDoesNotExist):
            self.sqs.delete_queue(QueueUrl=url)

    def _delete_named(self, name: str) -> None:
        with contextlib.suppress(Missing):
            self._delete_queue(self._url_of(name))

    def _set(self, url: str, attributes: dict[str, str]) -> None:
        fixed = {name: value for name, value in attributes.items() if name != "FifoQueue"}
        self.sqs.set_queue_attributes(QueueUrl=url, Attributes=fixed)

    def _url_of(self, name: str) -> str:
        try:
            return str(self.sqs.get_queue_url(QueueName=name)["QueueUrl"])
        except self.sqs.exceptions.QueueDoesNotExist:
            raise Missing(f"There is no queue {name} {where(self.region, self.endpoint)}.") from None

    def _empty(self, url: str) -> None:
        """Delete all messages before the run; those that stay hidden for long are purged."""
        if self._drained(url):
            return
        try:
            self.sqs.purge_queue(QueueUrl=url)
        except self.sqs.exceptions.PurgeQueueInProgress:
            raise NotEmptied(f"{url.rpartition('/')[2]} has messages that somebody else holds.") from None
        # Until then a purge may take messages that were sent after it.
        time.sleep(self.purge_wait_s)

    def _drained(self, url: str) -> bool:
        """Delete all messages, also those whose lease ends soon; False if some are hidden for longer."""
        until_s = time.monotonic() + self.settings.visibility_s + DRAIN_S_MAX
        while True:
            messages = self.sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=self.empty_wait_s
            ).get("Messages", [])
            for message in messages:
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            if messages:
                continue
            hidden = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=_HIDDEN)["Attributes"]
            if not any(int(hidden[name]) for name in _HIDDEN):
                return True
            if time.monotonic() >= until_s:
                return False
            time.sleep(DRAIN_PAUSE_S)

    @property
    def dlq_arn(self) -> str:
        """The ARN of the dead-letter queue."""
        answer = self.sqs.get_queue_attributes(QueueUrl=self.dlq_url, AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])

    # -- tables ---------------------------------------------------------------------------------------

    def _open_tables(self) -> None:
        for table in self.names.tables:
            if self._tables.key_of(table.name) is not None:
                self._undo.callback(self._tables.empty, table.name)
                self._tables.empty(table.name)
            elif self._make or self.tables_url.startswith("sqlite:"):
                self._undo.callback(self._tables.remove, table.name)
                self._tables.create(table)
            else:
                raise Missing(f"There is no table {table.name}.")


def _numbered(name: str) -> Iterator[str]:
    """Return a queue's name, and then others that begin with the same: `a-queue`, `a-queue-2`, `a-queue-3`."""
    base = name.removesuffix(FIFO)
    end = FIFO if base != name else ""
    yield name
    yield from (f"{base}-{number}{end}" for number in range(2, NAMES_MAX + 1))
