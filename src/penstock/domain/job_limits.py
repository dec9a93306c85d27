"""How much of everything there may be in the job service, as values that a test or an operator can change."""

from __future__ import annotations

import msgspec

from penstock.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS


class JobLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the job service."""

    # requests
    payload_bytes_max: int = 1_048_576
    result_bytes_max: int = 1_048_576
    event_bytes_max: int = 65_536
    failure_bytes_max: int = 65_536
    """Of a failure's message and details together; what is beyond that is cut off."""
    request_bytes_max: int = 8 * 1_048_576
    batch_jobs_max: int = 500
    batch_reports_max: int = 500
    batch_events_max: int = 1_000
    """How many events the reports of one batch publish together."""
    offers_max: int = 500
    """How many jobs one call offers, and how much credit one stream may give."""
    offered_bytes_max: int = 16 * 1_048_576
    """How much payload one call offers, but for its last stretch; the rest is for the next call."""
    name_length_max: int = 200
    """Of queues, tasks, tenants, keys, tags and workers."""
    tags_max: int = 20
    tasks_max: int = 500
    """How many tasks a worker may name that it takes."""
    delay_ms_max: int = 365 * DAY_MS
    lane_width_max: int = 10_000
    start_per_second_min: float = 0.000_01
    start_per_second_max: float = 1_000_000
    start_burst_max: int = 1_000_000
    list_page_max: int = 500
    list_rows_max: int = 10_000
    """How many jobs one page of a list looks at for those that it is asked for."""
    groups_rows_max: int = 100_000
    """How many dead jobs a grouping by failure looks at."""
    attempts_shown_max: int = 100
    poll_wait_ms_max: int = 60 * SECOND_MS
    result_wait_ms_max: int = 60 * SECOND_MS
    stream_ms_max: int = HOUR_MS
    """How long a stream of offers or events lasts before the client is asked to open another."""
    keep_alive_ms: int = 15 * SECOND_MS
    streams_max: int = 10_000
    operations_kept_per_queue_max: int = 100
    gather_members_max: int = 100_000
    gather_links_max: int = 50
    """How many jobs follow each other after the members of a gather."""
    gather_expiry_ms_max: int = 365 * DAY_MS
    polls_listed_max: int = 10_000
    """How many workers that poll one node lists; of more, those that came first are dropped."""
    worker_stale_ms: int = 45 * SECOND_MS
    """How long a worker is listed after it was last seen: three times `keep_alive_ms`."""

    # the service's own work
    due_rows_max: int = 500
    """How many jobs that have come due one call takes care of."""
    sweep_rows_max: int = 1_000
    advance_idle_ms: int = SECOND_MS
    """How often a node looks for what has come due when it knows of nothing."""

    # the result cache
    cached_results_max: int = 10_000
    cached_result_bytes_max: int = 65_536
    """Larger results are not cached."""
    cached_ms: int = MINUTE_MS
