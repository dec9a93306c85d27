"""Refusals that hold for a while, so that a flood is turned away without asking the store about each job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job_errors import JobRefused, TooMany
from penstock.domain.limits import SECOND_MS
from penstock.store.job_port import Enqueued

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.errors import PenstockError
    from penstock.domain.job import JobDraft
    from penstock.domain.job_queue import JobQueue, Rate

REMEMBERED_MAX = 10_000

FULL_TIMES = 10
FULL_MS = 20
"""How often a queue has to be found full until it is taken to be full without a look, and for how long."""

FLOOD_MS = SECOND_MS
"""How long a queue has not to be found full until that flood is over."""

_Queue = tuple[int, int]
"""A queue's id and its revision."""
_Place = tuple[int, int, str | None]
"""A queue's id, its revision, and the tenant whose rate it is; None: the whole queue's."""


class _Empty(msgspec.Struct, gc=False):
    """A rate that had no token: when the next comes, of those that are not spoken for; and what was said."""

    next_at_ms: float
    why: TooMany
    reason: str


class _Full(msgspec.Struct, gc=False):
    """A queue that had no room: how often in this flood and when last, and whether it took a job since."""

    reason: str
    retry_after_ms: int
    times: int = 0
    found_at_ms: int = 0
    looked_at_ms: int = 0
    """When somebody was let through to find out whether it has room again."""
    open: bool = False


class Refusals:
    """What the store refused lately, and what can be told from that.

    - A rate that has no token has none before the instant that the store told, and from then on one at a time, whatever
      other nodes do: so as many jobs are let through to the store as there can be tokens for. Nothing is refused here
      that it would have taken.
    - A queue that is found full again and again is looked at once in `FULL_MS`, and taken to be full in between, until
      it takes a job. It may have room sooner.

    Not judged here are what has a key, or an id that its caller chose, since it may be known already, unless this is
    its first try; and a strict queue, which is exact.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._empty: dict[_Place, _Empty] = {}
        self._full: dict[_Queue, _Full] = {}
        self._seen_ms = 0
        self._over_ms: float = 0
        """From when on nothing that is remembered tells anything."""

    def __bool__(self) -> bool:
        """Whether there is anything that `foresee` could tell."""
        return self._over_ms > 0 and self._now_ms() < self._over_ms

    def _now_ms(self) -> int:
        now_ms = self._clock.now_ms()
        if now_ms < self._seen_ms:
            # The clock was set back, and what was remembered would last for as long as that.
            self._empty.clear()
            self._full.clear()
            self._over_ms = 0
        self._seen_ms = now_ms
        return now_ms

    def foresee(self, queue: JobQueue, tenant: str) -> JobRefused | None:
        """Tell what the store would say about a job without keys, if that is known."""
        if queue.settings.strict:
            return None
        now_ms = self._now_ms()
        full = self._full.get((queue.id, queue.revision))
        if full is not None and full.times >= FULL_TIMES and not full.open and now_ms < full.looked_at_ms + FULL_MS:
            return JobRefused(full.reason, TooMany.QUEUE_FULL, full.retry_after_ms)
        for place in _places(queue, tenant):
            known = self._empty.get(place)
            if known is not None and now_ms < known.next_at_ms:
                return JobRefused(known.reason, known.why, max(1, round(known.next_at_ms - now_ms)))
        return None

    def check(self, queue: JobQueue, draft: JobDraft) -> None:
        """Raise what the store would say, if that is known; else count on it that it is asked about this draft."""
        if not (self._empty or self._full) or not _judged(queue, draft):
            return
        refused = self.foresee(queue, draft.tenant)
        if refused is not None:
            raise refused
        now_ms = self._now_ms()
        full = self._full.get((queue.id, queue.revision))
        if full is not None and not full.open:
            full.looked_at_ms = now_ms  # This one looks for all who come until it is answered, or for as long as that.
        whole, own = _places(queue, draft.tenant)
        for place, rate in ((whole, queue.settings.rate), (own, queue.settings.rate_per_tenant)):
            known = self._empty.get(place)
            if known is None:
                continue
            if rate is None or now_ms - known.next_at_ms >= rate.burst * _interval_ms(rate):
                del self._empty[place]  # It is full again: the flood is over.
            else:
                known.next_at_ms += _interval_ms(rate)
                self._over_ms = max(self._over_ms, known.next_at_ms)

    def learn(self, queue: JobQueue, drafts: Sequence[JobDraft], answers: Sequence[Enqueued | PenstockError]) -> None:
        """Take in what the store said about drafts; or, with no answers, that it said nothing."""
        if not answers:
            for draft in drafts:
                self._put_back(queue, draft)
            return
        for draft, answer in zip(drafts, answers, strict=True):
            if isinstance(answer, JobRefused):
                self._remember(queue, draft, answer)
                self._put_back(queue, draft, but=answer.why)
            elif isinstance(answer, Enqueued) and answer.new:
                self._take_for_open(queue)

    def _put_back(self, queue: JobQueue, draft: JobDraft, but: TooMany | None = None) -> None:
        """Take it that a draft used up no token, besides that of a rate whose answer says all that there is to know."""
        if not self._empty or not _judged(queue, draft):
            return
        whole, own = _places(queue, draft.tenant)
        for place, rate in ((whole, queue.settings.rate), (own, queue.settings.rate_per_tenant)):
            known = self._empty.get(place)
            if known is not None and rate is not None and known.why is not but:
                known.next_at_ms -= _interval_ms(rate)

    def _remember(self, queue: JobQueue, draft: JobDraft, refused: JobRefused) -> None:
        if queue.settings.strict:
            return
        if refused.why is TooMany.QUEUE_FULL:
            self._remember_full(queue, refused)
            return
        now_ms = self._now_ms()
        whole, own = _places(queue, draft.tenant)
        # Not the error itself, which would keep the request that it refused.
        place = whole if refused.why is TooMany.RATE_GLOBAL else own
        next_at_ms = now_ms + refused.retry_after_ms
        self._over_ms = max(self._over_ms, next_at_ms)
        known = self._empty.get(place)
        if known is None:
            if len(self._empty) >= REMEMBERED_MAX:
                self._empty.clear()
            self._empty[place] = _Empty(next_at_ms, refused.why, refused.reason)
        else:
            known.next_at_ms = max(known.next_at_ms, next_at_ms)

    def _remember_full(self, queue: JobQueue, refused: JobRefused) -> None:
        now_ms = self._now_ms()
        self._over_ms = max(self._over_ms, now_ms + FLOOD_MS)
        place = (queue.id, queue.revision)
        known = self._full.get(place)
        if known is None or now_ms >= known.found_at_ms + FLOOD_MS:
            if len(self._full) >= REMEMBERED_MAX:
                self._full.clear()
            known = self._full[place] = _Full(reason=refused.reason, retry_after_ms=refused.retry_after_ms)
        known.times += 1
        known.found_at_ms = known.looked_at_ms = now_ms
        known.open = False

    def _take_for_open(self, queue: JobQueue) -> None:
        place = (queue.id, queue.revision)
        known = self._full.get(place)
        if known is not None:
            known.open = True
            if self._now_ms() >= known.found_at_ms + FLOOD_MS:
                del self._full[place]


def _judged(queue: JobQueue, draft: JobDraft) -> bool:
    known = draft.idempotency_key is not None or draft.unique_key is not None or draft.chosen
    return not (known or queue.settings.strict)


def _places(queue: JobQueue, tenant: str) -> tuple[_Place, _Place]:
    return (queue.id, queue.revision, None), (queue.id, queue.revision, tenant)


def _interval_ms(rate: Rate) -> float:
    return SECOND_MS / rate.per_second
