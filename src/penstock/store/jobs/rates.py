"""Token buckets, as the instant at which each is full again: kept in the store, so that all nodes agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.job_errors import JobRefused, TooMany
from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.domain.job_queue import JobQueueSettings, Rate
    from penstock.store.jobs.script import Script, Tx

_US_PER_S = 1_000_000
US_PER_MS = 1_000

SKEW_US_MAX = 60 * _US_PER_S
"""How far the instant of a transaction that waited for a bucket may be behind that of the one before it."""

Bucket = tuple[int, str]
"""1 and nothing for a whole queue's, 0 and the tenant for a tenant's."""

WHOLE: Bucket = (1, "")


def interval_us_of(per_second: float) -> int:
    """How long a bucket takes for one token."""
    return max(round(_US_PER_S / per_second), 1)


def ahead_us(full_at_us: int, now_us: int, interval_us: int, burst: int) -> int:
    """In how long a bucket is full again that will be at an instant, by the rate that it had before."""
    ahead_us = max(full_at_us - now_us, 0)
    if ahead_us > burst * interval_us + SKEW_US_MAX:
        # Only by a lower rate that held before: who raised it wants jobs to come, and so there is one token.
        return (burst - 1) * interval_us
    return ahead_us


class Buckets:
    """The buckets of one queue within one transaction, whose rows are locked."""

    def __init__(self, settings: JobQueueSettings, now_ms: int, full_at_us: dict[Bucket, int]) -> None:
        self._rates = {1: settings.rate, 0: settings.rate_per_tenant}
        self._now_us = now_ms * US_PER_MS
        self._before = full_at_us
        self._after = dict(full_at_us)

    def refusal(self, tenant: str) -> JobRefused | None:
        """Take a token for a job of a tenant; or say why there is none, and take none."""
        buckets = [bucket for bucket in (WHOLE, (0, tenant)) if self._rates[bucket[0]] is not None]
        for bucket in buckets:
            wait_us = self._wait_us(bucket)
            if wait_us > 0:
                why = TooMany.RATE_GLOBAL if bucket is WHOLE else TooMany.RATE_TENANT
                whose = "The queue takes" if bucket is WHOLE else f"The queue takes from tenant {tenant!r}"
                rate = self._rate(bucket)
                return JobRefused(f"{whose} {rate.per_second:g} jobs a second.", why, max(1, -(-wait_us // US_PER_MS)))
        for bucket in buckets:
            self._after[bucket] = self._now_us + self._ahead_us(bucket) + self._interval_us(bucket)
        return None

    def start_over(self, tenants: Iterable[str]) -> None:
        """Take tokens for these only, who had them before."""
        self._after = dict(self._before)
        for tenant in tenants:
            refused = self.refusal(tenant)
            assert refused is None

    def save(self, queue_id: int) -> Script[None]:
        """Write the buckets that tokens were taken from."""
        rows = [
            (queue_id, whole, tenant, full_at_us)
            for (whole, tenant), full_at_us in self._after.items()
            if full_at_us != self._before.get((whole, tenant))
        ]
        if rows:
            yield "save_bucket", list(rows)

    def _wait_us(self, bucket: Bucket) -> int:
        return self._ahead_us(bucket) - (self._rate(bucket).burst - 1) * self._interval_us(bucket)

    def _ahead_us(self, bucket: Bucket) -> int:
        """In how long it is full."""
        return ahead_us(self._after.get(bucket, 0), self._now_us, self._interval_us(bucket), self._rate(bucket).burst)

    def _interval_us(self, bucket: Bucket) -> int:
        return interval_us_of(self._rate(bucket).per_second)

    def _rate(self, bucket: Bucket) -> Rate:
        rate = self._rates[bucket[0]]
        assert rate is not None
        return rate


def lock_buckets(tx: Tx, queue_id: int, settings: JobQueueSettings, tenants: Iterable[str]) -> Script[Buckets]:
    """Lock the buckets that jobs of these tenants take tokens from; a queue without rates has none."""
    wanted: list[Bucket] = []
    if settings.rate_per_tenant is not None:
        wanted += [(0, tenant) for tenant in sorted(set(tenants))]
    if settings.rate is not None:
        wanted.append(WHOLE)
    if not wanted:
        return Buckets(settings, tx.now_ms, {})
    rows = yield "lock_buckets", (queue_id, listed(wanted))
    return Buckets(settings, tx.now_ms, {(whole, tenant): full_at_us for whole, tenant, full_at_us in rows})
