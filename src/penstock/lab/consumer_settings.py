"""What a consumer is told by its environment: the queue, the tables, and every way in which it is to fail."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, Self, get_args

import msgspec

from penstock.lab.variables import BadValue, Variables

if TYPE_CHECKING:
    from collections.abc import Mapping

Flaw = Literal[
    "never-delete",
    "delete-on-receive",
    "unconditional-write",
    "skip-check",
    "whole-batch",
    "exit-at-once",
    "last-write-wins",
    "retry-at-once",
]
"""What a broken variant leaves out or does wrong.

| flaw | the consumer |
|---|---|
| never-delete | does the work and never deletes |
| delete-on-receive | deletes before it works |
| unconditional-write | records and makes the call even if it is on record |
| skip-check | does not look whether the call is on record |
| whole-batch | keeps a whole batch if one message of it is bad |
| exit-at-once | ends in the middle of its work at SIGTERM |
| last-write-wins | applies every version that it sees |
| retry-at-once | makes a failed message visible again without a pause |
"""
FLAWS = frozenset(get_args(Flaw))
STEPS = 6
HOURS_12_S = 43_200


class QueueUrlMissing(BadValue):
    """There is no queue to consume."""


class Versioning(msgspec.Struct, frozen=True, kw_only=True):
    """How versions in payloads are reconciled, and where state and logs are kept."""

    version_key: str
    entity_key: str
    state_path: str
    log_path: str
    seen_log_path: str


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one consumer. The variables are these names in capitals."""

    queue_url: str
    aws_region: str = ""
    wait_time_seconds: int = 10
    max_messages: int = 1
    """How many a receive asks for. A receive takes at most 10, and a consumer says so if this is more."""
    crash_rate: float = 0.0
    crash_after_receive: bool = False
    idempotency_cache_size: int = 1_000
    message_limit: int = 0
    idle_timeout_seconds: float = 0.0
    reject_payload_marker: str = ""
    message_status_table: str = ""
    message_side_effects_table: str = ""
    tables_url: str = ""
    """`sqlite:PATH`, `dynamodb:` or `dynamodb:ENDPOINT`. Unset: DynamoDB for a queue on AWS, else a SQLite file."""
    side_effect_delay_seconds: float = 0.0
    crash_after_side_effect: bool = False
    side_effect_log_path: str = ""
    side_effect_log_field: str = "sequence"
    business_idempotency_field: tuple[str, ...] = ()
    log_level: str = "INFO"
    versioning: Versioning | None = None
    crash_at_steps: tuple[int, ...] = ()
    """Before which of the six steps the first, second, … receive of a message crashes."""
    heartbeat_seconds: float = 0.0
    """How often the lease is extended during a delay; 0 is never."""
    stale_after_seconds: float = 0.0
    """Older messages are counted and deleted without an effect; 0 is never."""
    fail_receives: int = 0
    """How many receives of each message fail, as if the service outside were down."""
    retry_base_seconds: float = 0.0
    """How long a failed message is hidden, doubled at every receive; 0 leaves it to the visibility timeout."""
    retry_max_seconds: float = 900.0
    retry_jitter: bool = False
    flaws: tuple[str, ...] = ()

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Read an environment; raises `BadValue`, and `QueueUrlMissing` without a queue."""
        given = Variables(environment)
        queue_url = given.text("QUEUE_URL")
        if not queue_url:
            raise QueueUrlMissing("QUEUE_URL is not set: it names the queue to consume.")
        if not queue_url.startswith(("http://", "https://")):
            raise BadValue(f"QUEUE_URL must begin with http:// or https://, not {queue_url!r}.")
        level = given.text("LOG_LEVEL", "INFO").upper()
        if level not in logging.getLevelNamesMapping():
            raise BadValue(f"LOG_LEVEL must be DEBUG, INFO, WARNING or ERROR, not {level!r}.")
        steps = given.names("CRASH_AT_STEPS", frozenset(str(step) for step in range(1, STEPS + 1)))
        return cls(
            queue_url=queue_url,
            aws_region=given.text("AWS_REGION"),
            wait_time_seconds=given.whole("WAIT_TIME_SECONDS", 10, most=20),
            max_messages=given.whole("MAX_MESSAGES", 1, least=1),
            crash_rate=given.real("CRASH_RATE", 0.0, most=1.0),
            crash_after_receive=given.switch("CRASH_AFTER_RECEIVE"),
            idempotency_cache_size=given.whole("IDEMPOTENCY_CACHE_SIZE", 1_000, most=10_000_000),
            message_limit=given.whole("MESSAGE_LIMIT", 0),
            idle_timeout_seconds=given.real("IDLE_TIMEOUT_SECONDS", 0.0),
            reject_payload_marker=given.text("REJECT_PAYLOAD_MARKER"),
            message_status_table=given.text("MESSAGE_STATUS_TABLE"),
            message_side_effects_table=given.text("MESSAGE_SIDE_EFFECTS_TABLE"),
            tables_url=_tables_url(given.text("TABLES_URL")),
            side_effect_delay_seconds=given.real("SIDE_EFFECT_DELAY_SECONDS", 0.0),
            crash_after_side_effect=given.switch("CRASH_AFTER_SIDE_EFFECT"),
            side_effect_log_path=given.text("SIDE_EFFECT_LOG_PATH"),
            side_effect_log_field=given.text("SIDE_EFFECT_LOG_FIELD", "sequence"),
            business_idempotency_field=given.names("BUSINESS_IDEMPOTENCY_FIELD"),
            log_level=level,
            versioning=_versioning(given),
            crash_at_steps=tuple(int(step) for step in steps),
            heartbeat_seconds=given.real("HEARTBEAT_SECONDS", 0.0, most=HOURS_12_S),
            stale_after_seconds=given.real("STALE_AFTER_SECONDS", 0.0),
            fail_receives=given.whole("FAIL_RECEIVES", 0),
            retry_base_seconds=given.real("RETRY_BASE_SECONDS", 0.0, most=HOURS_12_S),
            retry_max_seconds=given.real("RETRY_MAX_SECONDS", 900.0, most=HOURS_12_S),
            retry_jitter=given.switch("RETRY_JITTER"),
            flaws=given.names("FLAWS", FLAWS),
        )

    def has(self, flaw: Flaw) -> bool:
        """Return whether the consumer is broken in this way."""
        return flaw in self.flaws


def _tables_url(url: str) -> str:
    if url and not (url.startswith("sqlite:") and url != "sqlite:") and not url.startswith("dynamodb:"):
        raise BadValue(f"TABLES_URL must be sqlite:PATH, dynamodb: or dynamodb:ENDPOINT, not {url!r}.")
    return url


def _versioning(given: Variables) -> Versioning | None:
    if not given.switch("VERSIONING_ENABLED"):
        return None
    state_path = given.text("VERSION_STATE_PATH")
    if not state_path:
        raise BadValue("VERSION_STATE_PATH is not set: VERSIONING_ENABLED needs a file for the state.")
    return Versioning(
        version_key=given.text("VERSION_KEY", "version"),
        entity_key=given.text("ENTITY_KEY", "entity_id"),
        state_path=state_path,
        log_path=given.text("VERSION_LOG_PATH"),
        seen_log_path=given.text("VERSION_SEEN_LOG_PATH"),
    )


VARIABLES = frozenset(
    {
        *(name.upper() for name in ConsumerSettings.__struct_fields__ if name != "versioning"),
        "VERSIONING_ENABLED",
        "VERSION_KEY",
        "ENTITY_KEY",
        "VERSION_STATE_PATH",
        "VERSION_LOG_PATH",
        "VERSION_SEEN_LOG_PATH",
    }
)
"""Every variable that a consumer reads."""
