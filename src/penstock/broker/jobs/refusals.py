"""Refusals that hold for a while, so that a flood is turned away without asking the store about each job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job_errors import JobRefused, TooMany
from penstock.domain.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.errors import PenstockError
    from penstock.domain.job import JobDraft
    from penstock.domain.job_queue import JobQueue, Rate
    from penstock.store.job_port import Enqueued

REMEMBERED_MAX = 10_000
_Place = tuple[int, int, str | None]
"""A queue's id, its revision, and the tenant whose rate it is; None: the whole queue's."""


class _Empty(msgspec.Struct, gc=False):
    """A rate that had no token: when the next comes, of those that are not spoken for; and what was said."""

    next_at_ms: float
    why: TooMany
    reason: str


class Refusals:
    """What the store refused lately, and what can be told from that.

    A rate that has no token has none before the instant that the store told, and from then on one at a time, whatever
    other nodes do: so as many jobs are let through to the store as there can be tokens for. The store decides; nothing
    is refused here that it would have taken. Not judged here are a queue that is full, which may have room at any time,
    what has a key, which may be known already, and a strict queue, which is exact.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._empty: dict[_Place, _Empty] = {}

    def check(self, queue: JobQueue, draft: JobDraft) -> None:
        """Raise what the store would say, if that is known; else count on it that it is asked about this draft."""
        if not self._empty or not _judged(queue, draft):
            return
        now_ms = self._clock.now_ms()
        whole, own = _places(queue, draft)
        for place in (whole, own):
            known = self._empty.get(place)
            if known is not None and now_ms < known.next_at_ms:
                raise JobRefused(known.reason, known.why, max(1, round(known.next_at_ms - now_ms)))
        for place, rate in ((whole, queue.settings.rate), (own, queue.settings.rate_per_tenant)):
            known = self._empty.get(place)
            if known is None:
                continue
            if rate is None or now_ms - known.next_at_ms >= rate.burst * _interval_ms(rate):
                del self._empty[place]  # It is full again: the flood is over.
            else:
                known.next_at_ms += _interval_ms(rate)

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

    def _put_back(self, queue: JobQueue, draft: JobDraft, but: TooMany | None = None) -> None:
        """Take it that a draft used up no token, besides that of a rate whose answer says all that there is to know."""
        if not self._empty or not _judged(queue, draft):
            return
        whole, own = _places(queue, draft)
        for place, rate in ((whole, queue.settings.rate), (own, queue.settings.rate_per_tenant)):
            known = self._empty.get(place)
            if known is not None and rate is not None and known.why is not but:
                known.next_at_ms -= _interval_ms(rate)

    def _remember(self, queue: JobQueue, draft: JobDraft, refused: JobRefused) -> None:
        if queue.settings.strict or refused.why is TooMany.QUEUE_FULL:
            return
        now_ms = self._clock.now_ms()
        whole, own = _places(queue, draft)
        # Not the error itself, which would keep the request that it refused.
        place = whole if refused.why is TooMany.RATE_GLOBAL else own
        next_at_ms = now_ms + refused.retry_after_ms
        known = self._empty.get(place)
        if known is None:
            if len(self._empty) >= REMEMBERED_MAX:
                self._empty.clear()
            self._empty[place] = _Empty(next_at_ms, refused.why, refused.reason)
        else:
            known.next_at_ms = max(known.next_at_ms, next_at_ms)


def _judged(queue: JobQueue, draft: JobDraft) -> bool:
    return draft.idempotency_key is None and draft.unique_key is None and not queue.settings.strict


def _places(queue: JobQueue, draft: JobDraft) -> tuple[_Place, _Place]:
    return (queue.id, queue.revision, None), (queue.id, queue.revision, draft.tenant)


def _interval_ms(rate: Rate) -> float:
    return SECOND_MS / rate.per_second
