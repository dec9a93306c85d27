"""Circuit breakers: when what jobs need is down, they are not offered for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.store.jobs.lanes import name_of
from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.domain.job import Lane
    from penstock.domain.job_queue import BreakerPolicy
    from penstock.store.jobs.rows import JobRecord
    from penstock.store.jobs.script import Row, Script, Tx

BreakerName = tuple[int, str, str]
"""By what a breaker is found within its queue: whether tenants share it, the tenant, and the concurrency key."""

WHOLE_QUEUE: BreakerName = (1, "", "")
"""The breaker that is a queue's own; the others are those of concurrency keys."""

WOKEN_MAX = 1_000
"""How many of those who wait for jobs are told when a breaker closes."""


class BreakerRecord:
    """A breaker within one transaction.

    It is closed unless it has been opened at some instant. An open one lets `probes` jobs pass from `retry_at` on, and
    then none for as long again, so that it never hangs on a probe of which nobody hears.
    """

    __slots__ = ("changed", "failures", "name", "opened_at", "probes", "retry_at")

    failures: int
    opened_at: int | None
    retry_at: int | None
    probes: int

    def __init__(self, row: Row) -> None:
        *name, self.failures, self.opened_at, self.retry_at, self.probes = row
        self.name: BreakerName = tuple(name)
        self.changed = False

    def allowance(self, policy: BreakerPolicy, now_ms: int) -> int | None:
        """How many jobs may pass now; None if it does not limit them."""
        if self.retry_at is None:
            return None
        # There may have been more probes in the policy when those before were let pass: one more, and it waits again.
        return max(1, policy.probes - self.probes) if now_ms >= self.retry_at else 0

    def let_pass(self, policy: BreakerPolicy, now_ms: int, count: int) -> None:
        """So many are offered as probes."""
        self.changed = True
        self.probes += count
        if self.probes >= policy.probes:
            self._wait(policy, now_ms)

    def succeeded(self) -> bool:
        """A job succeeded; tell whether that closed it."""
        was_open = self.retry_at is not None
        if was_open or self.failures:
            self.changed = True
            self.failures = self.probes = 0
            self.opened_at = self.retry_at = None
        return was_open

    def failed(self, policy: BreakerPolicy, now_ms: int) -> None:
        """A job failed, and might not have at another time."""
        self.changed = True
        self.failures += 1
        if self.retry_at is None and self.failures >= policy.failures_max:
            self.opened_at = now_ms
        if self.opened_at is not None:
            self._wait(policy, now_ms)

    def _wait(self, policy: BreakerPolicy, now_ms: int) -> None:
        self.retry_at, self.probes = now_ms + policy.open_ms, 0


class News(NamedTuple):
    """How one attempt ended, for one breaker."""

    name: BreakerName
    lane_id: int | None
    policy: BreakerPolicy
    succeeded: bool


class Breakers:
    """What one transaction learns for the breakers of queues that have them."""

    def __init__(self) -> None:
        self._news: dict[int, list[News]] = {}

    def note(self, job: JobRecord, *, succeeded: bool) -> None:
        """An attempt succeeded, or failed in a way that may pass."""
        policy = job.settings.breaker
        if policy is None:
            return
        news = self._news.setdefault(job.queue_id, [])
        news.append(News(WHOLE_QUEUE, None, policy, succeeded))
        name = breaker_of(job.options.lane, job.tenant)
        if name is not None:
            news.append(News(name, job.lane_id, policy, succeeded))

    def save(self, tx: Tx) -> Script[None]:
        """Write it. The lanes of the jobs are locked, and the jobs are written."""
        for queue_id, news in sorted(self._news.items()):
            names = {one.name for one in news}
            if all(one.succeeded for one in news):
                # Mostly there is nothing to forget, and then completions do not wait for each other.
                known = yield from read_breakers(queue_id, names)
                names = {name for name, breaker in known.items() if breaker.failures}
            if not names:
                continue
            breakers = yield from lock_breakers(queue_id, names)
            for name, lane_id, policy, succeeded in news:
                if name not in breakers:
                    continue
                if not succeeded:
                    breakers[name].failed(policy, tx.now_ms)
                elif breakers[name].succeeded():
                    tx.wake(queue_id, WOKEN_MAX)
                    if lane_id is not None:
                        unparked = yield "unpark_lane", (lane_id,)
                        tx.gates.update((queue_id, gate) for (gate,) in unparked if gate is not None)
            yield from save_breakers(queue_id, breakers.values())


def breaker_of(lane: Lane | None, tenant: str) -> BreakerName | None:
    """The breaker of a job's lane: concurrency keys stand for what their jobs need, groups do not."""
    if lane is None or lane.ordered:
        return None
    shared, tenant, key, _ = name_of(lane, tenant)
    return shared, tenant, key


def read_breakers(queue_id: int, names: Iterable[BreakerName]) -> Script[dict[BreakerName, BreakerRecord]]:
    """Read those breakers of a queue that there are."""
    rows = yield "breakers", (queue_id, listed(sorted(names)))
    return {record.name: record for record in map(BreakerRecord, rows)}


def lock_breakers(queue_id: int, names: Iterable[BreakerName]) -> Script[dict[BreakerName, BreakerRecord]]:
    """Lock breakers of a queue, making those that are not there."""
    rows = yield "lock_breakers", (queue_id, listed(sorted(names)))
    return {record.name: record for record in map(BreakerRecord, rows)}


def save_breakers(queue_id: int, breakers: Iterable[BreakerRecord]) -> Script[None]:
    """Write breakers that are locked."""
    rows: list[Sequence[object]] = [
        (queue_id, *breaker.name, breaker.failures, breaker.opened_at, breaker.retry_at, breaker.probes)
        for breaker in breakers
        if breaker.changed
    ]
    if rows:
        yield "save_breaker", rows
