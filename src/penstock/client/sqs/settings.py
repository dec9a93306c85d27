"""Settings of a consumer, checked before anything is received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from penstock.client.durations import Duration, milliseconds, seconds
from penstock.client.errors import ConsumerInvalid
from penstock.client.sqs.api import BATCH_MAX, check_client, read_timeout_s
from penstock.client.sqs.backoff import Backoff
from penstock.client.sqs.delivery import HIDDEN_S_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S_MAX = 20
CONCURRENCY_MAX = 1_000


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings:
    """What a consumer was asked to do, in the units of SQS."""

    concurrency: int
    batch_size: int
    wait_s: int
    visibility_s: int
    beat_ms: int
    backoff: Backoff
    grace_ms: int
    fifo: bool
    poison_after: int | None

    @classmethod
    def check(  # noqa: PLR0913 - each is a setting
        cls,
        client: Any,  # noqa: ANN401 - boto3 has no types for its clients
        queue_url: str,
        handler: Callable[..., object],
        *,
        concurrency: int,
        batch_size: int,
        wait: Duration,
        visibility: Duration,
        heartbeat: Duration | None,
        backoff: Duration,
        max_backoff: Duration,
        grace: Duration,
        poison_after: int | None,
    ) -> Self:
        """Return the settings; raises `ConsumerInvalid`."""
        check_client(client)
        if type(queue_url) is not str or not queue_url:
            raise ConsumerInvalid(f"A queue URL is needed, not {queue_url!r}.")
        if not callable(handler):
            raise ConsumerInvalid(f"A handler is a function of a message, not {handler!r}.")
        wait_s = whole_seconds(wait, "wait", 0, WAIT_S_MAX)
        answered_s = read_timeout_s(client)
        if answered_s is not None and answered_s <= wait_s:
            raise ConsumerInvalid(
                f"The client gives up after {answered_s:g} s (read_timeout), so it cannot wait for {wait_s} s."
            )
        visibility_s = whole_seconds(visibility, "visibility", 1, HIDDEN_S_MAX)
        try:
            beat_ms = visibility_s * 1_000 // 3 if heartbeat is None else milliseconds(heartbeat, "heartbeat")
            grace_ms = milliseconds(grace, "grace")
            waits = Backoff(backoff, max_backoff)
        except ConsumerInvalid:
            raise
        except ValueError as error:
            raise ConsumerInvalid(str(error)) from None
        if not 0 < beat_ms < visibility_s * 1_000:
            raise ConsumerInvalid(f"heartbeat is more than 0 and less than visibility, not {heartbeat!r}.")
        return cls(
            concurrency=_count(concurrency, "concurrency", CONCURRENCY_MAX),
            batch_size=_count(batch_size, "batch_size", BATCH_MAX),
            wait_s=wait_s,
            visibility_s=visibility_s,
            beat_ms=beat_ms,
            backoff=waits,
            grace_ms=grace_ms,
            fifo=queue_url.endswith(".fifo"),
            poison_after=None if poison_after is None else _count(poison_after, "poison_after", 1_000_000),
        )


def whole_seconds(given: Duration, name: str, least: int, most: int) -> int:
    """Return a duration that SQS takes; raises `ConsumerInvalid`."""
    try:
        value = seconds(given, name)
    except ValueError as error:
        raise ConsumerInvalid(str(error)) from None
    if value != int(value) or not least <= value <= most:
        raise ConsumerInvalid(f"{name} is a whole number of seconds from {least} to {most:,}, not {given!r}.")
    return int(value)


def _count(given: int, name: str, most: int) -> int:
    if type(given) is not int or not 1 <= given <= most:
        raise ConsumerInvalid(f"{name} is a whole number from 1 to {most:,}, not {given!r}.")
    return given
