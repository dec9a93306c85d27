"""Attempts of jobs as tasks see them, without a worker."""

from __future__ import annotations

import msgspec

from penstock import Context


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job when its attempt begins."""

    id: str
    attempt: int
    queue: str = "orders"
    failures: int = 0
    losses: int = 0
    tenant: str = ""
    tags: tuple[str, ...] = ()
    correlation_id: str = ""
    enqueued_at_ms: int = 0


def attempt_of(job_id: str, number: int) -> Context:
    """Return the context of an attempt. It can publish nothing."""

    def no_records() -> None:
        raise AssertionError("no events here")

    return Context(Info(id=job_id, attempt=number), "charge", no_records, deadline=0.0)  # type: ignore[arg-type] # see above
