"""How much of everything there may be, as values that a test or an operator can change."""

from __future__ import annotations

import msgspec

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

REPEAT_WINDOW_MS = 5 * MINUTE_MS
"""For how long after its first try a call of the job API may be repeated and still has one effect."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the service. The defaults are those of Amazon SQS where it has one."""

    # requests
    batch_entries_max: int = 10
    batch_bytes_max: int = 1_048_576
    message_attributes_max: int = 10
    receive_count_max: int = 10
    receive_wait_ms_max: int = 20 * SECOND_MS
    delay_ms_max: int = 15 * MINUTE_MS
    lease_ms_max: int = 12 * HOUR_MS
    list_page_max: int = 1_000
    peek_count_max: int = 100
    peek_rows_max: int = 1_000
    """How many messages one peek looks at for those that it is asked for."""
    peek_bytes_max: int = 4 * 1_048_576
    """How much one peek shows, but for the last message, which is shown whole."""
    tags_max: int = 50

    # messages in flight
    in_flight_standard_max: int = 120_000
    in_flight_fifo_max: int = 120_000

    # windows
    deduplication_window_ms: int = 5 * MINUTE_MS
    outcome_window_ms: int = 5 * MINUTE_MS
    """How long the outcome of a send or receive is kept for a retry of it."""
    purge_interval_ms: int = MINUTE_MS
    """How long after a purge the next one is refused; 0 lets every purge through."""
    name_reuse_ms: int = MINUTE_MS
    """How long after its queue was deleted a name stays taken; 0 frees it at once."""

    # message move tasks
    move_rate_max: int = 500
    moves_listed_max: int = 10
    moves_kept_per_queue_max: int = 10

    # the service's own work
    waiters_per_queue_max: int = 10_000
    sweep_rows_max: int = 1_000
    """How many rows one pass of the sweeper touches, so that it never holds up requests for long."""
    sweep_interval_ms: int = 5 * SECOND_MS
    pending_operations_max: int = 100_000
    """How many operations may wait for the store before further ones are turned away."""
