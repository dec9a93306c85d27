"""Queues: their names, their attributes with the allowed ranges, and what a queue is at rest."""

from __future__ import annotations

import enum
import re

import msgspec

from penstock.domain.errors import InvalidParameter
from penstock.domain.limits import SECOND_MS

FIFO_SUFFIX = ".fifo"
NAME_RULE = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
FIFO_NAME_RULE = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
    "must end with .fifo suffix and be 1 to 80 in length."
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")
_REGION = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ARN_PARTS = 6


class QueueName(msgspec.Struct, frozen=True, order=True, gc=False):
    """What a queue is called: its name is its own within one account of one region."""

    region: str
    account: str
    name: str

    @property
    def fifo(self) -> bool:
        """Whether the name says that this is a FIFO queue."""
        return self.name.endswith(FIFO_SUFFIX)

    @property
    def arn(self) -> str:
        """The name in the form in which redrive policies refer to it."""
        return f"arn:aws:sqs:{self.region}:{self.account}:{self.name}"

    @classmethod
    def from_arn(cls, arn: str) -> QueueName:
        """Read an ARN back."""
        parts = arn.split(":")
        if len(parts) != _ARN_PARTS or parts[0] != "arn" or parts[2] != "sqs" or not all(parts[3:]):
            message = f"Value {arn} for parameter is invalid. Reason: it is not the ARN of a queue."
            raise InvalidParameter(message)
        return cls(region=parts[3], account=parts[4], name=parts[5])

    def check(self) -> None:
        """Refuse a name that no new queue may have. The region is the one that the caller signed for."""
        if not _REGION.fullmatch(self.region):
            raise InvalidParameter("A region can only include alphanumeric characters and ._-. 1 to 64 in length.")
        allowed, rule = (_FIFO_NAME, FIFO_NAME_RULE) if self.fifo else (_NAME, NAME_RULE)
        if not allowed.fullmatch(self.name):
            raise InvalidParameter(rule)


class DeduplicationScope(enum.StrEnum):
    """Within what a deduplication id is unique."""

    QUEUE = "queue"
    MESSAGE_GROUP = "messageGroup"


class ThroughputLimit(enum.StrEnum):
    """What the throughput quota of a FIFO queue applies to. Kept for clients; we impose no quota."""

    PER_QUEUE = "perQueue"
    PER_MESSAGE_GROUP_ID = "perMessageGroupId"


class RedrivePermission(enum.StrEnum):
    """Which queues may name a queue as their dead-letter queue."""

    ALLOW_ALL = "allowAll"
    DENY_ALL = "denyAll"
    BY_QUEUE = "byQueue"


class RedrivePolicy(msgspec.Struct, frozen=True, gc=False):
    """Where a message goes once it was received too often."""

    dead_letter_queue: QueueName
    max_receive_count: int


class RedriveAllowPolicy(msgspec.Struct, frozen=True, gc=False):
    """Which queues may name this one as their dead-letter queue."""

    permission: RedrivePermission = RedrivePermission.ALLOW_ALL
    sources: tuple[QueueName, ...] = ()

    def allows(self, source: QueueName) -> bool:
        """Tell whether `source` may send its dead letters here."""
        if self.permission is RedrivePermission.BY_QUEUE:
            return source in self.sources
        return self.permission is RedrivePermission.ALLOW_ALL


class QueueAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """All that can be set on a queue. Times are whole seconds, as users give them."""

    delay_s: int = 0
    maximum_message_bytes: int = 1_048_576
    retention_s: int = 345_600
    receive_wait_s: int = 0
    visibility_timeout_s: int = 30
    policy: str = ""
    redrive: RedrivePolicy | None = None
    redrive_allow: RedriveAllowPolicy | None = None
    content_based_deduplication: bool = False
    deduplication_scope: DeduplicationScope = DeduplicationScope.QUEUE
    throughput_limit: ThroughputLimit = ThroughputLimit.PER_QUEUE
    kms_key_id: str = ""
    kms_reuse_s: int = 300
    managed_sse: bool = True


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue as the store knows it.

    `id` belongs to this queue alone: a queue deleted and created again under its name has another. `revision` grows
    with every change of the attributes or tags.
    """

    id: int
    name: QueueName
    attributes: QueueAttributes
    tags: dict[str, str]
    created_at_ms: int
    modified_at_ms: int
    revision: int

    @property
    def fifo(self) -> bool:
        """Whether order and deduplication hold."""
        return self.name.fifo

    @property
    def retention_ms(self) -> int:
        """How long a message is kept, counted from when it was sent."""
        return self.attributes.retention_s * SECOND_MS


class Counts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many messages a queue holds, by what hides them. Each message is in exactly one of these."""

    visible: int
    in_flight: int
    delayed: int
