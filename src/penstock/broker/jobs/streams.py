"""Streams of offers: long-lived, with credit, and with all that was not accepted given back when they break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.broker.jobs.bell import Bell
from penstock.domain.errors import OverLimit, PenstockError
from penstock.domain.job import JobState, Offer
from penstock.domain.job_errors import JobDoesNotExist, JobQueueDoesNotExist, LeaseLost, StreamDoesNotExist
from penstock.domain.job_request import check_name, check_range

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from penstock.broker.jobs.offering import Offering
    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.job import Lease
    from penstock.domain.job_limits import JobLimits
    from penstock.store.job_port import Reported


class _Slot(msgspec.Struct):
    """What takes up credit: an offer, until it lapses; and once accepted the lease, until it ends."""

    offer: Offer
    until_ms: int
    accepted: bool = False


class OfferStream:
    """One worker's stream. It has `credit` slots; an offer takes one until it is over, accepted or not."""

    def __init__(self, name: str, streams: Streams, queues: Sequence[str], worker: str, credit: int) -> None:
        self.name = name
        self.credit = credit
        self._streams = streams
        self._queues = queues
        self._worker = worker
        self._slots: dict[Lease, _Slot] = {}
        self._bell = Bell()

    @property
    def taken(self) -> int:
        """How many slots are taken."""
        return len(self._slots)

    async def batches(self) -> AsyncGenerator[list[Offer]]:
        """Yield offers as there are jobs and free slots; an empty list is a sign of life.

        Ends when the service stops, when a queue is gone, or after `limits.stream_ms_max`.
        """
        clock, limits, offering = self._streams.clock, self._streams.limits, self._streams.offering
        ends_ms = clock.now_ms() + limits.stream_ms_max
        beat_ms = min(clock.now_ms() + limits.keep_alive_ms, ends_ms)
        while not offering.closed and (now_ms := clock.now_ms()) < ends_ms:
            offers: list[Offer] = []
            next_lapse_ms = self._reap(now_ms)
            free = self.credit - len(self._slots)
            if free > 0 and now_ms < beat_ms:
                try:
                    offers = await offering.poll(
                        self._queues, count=free, worker=self._worker, wait_ms=beat_ms - now_ms
                    )
                except JobQueueDoesNotExist:
                    return
                offers = self._take(offers)
            elif now_ms < beat_ms:
                await self._bell.wait(clock, min(beat_ms, next_lapse_ms))
            if offers or clock.now_ms() >= beat_ms:
                beat_ms = min(clock.now_ms() + limits.keep_alive_ms, ends_ms)
                yield offers

    def add_credit(self, number: int) -> None:
        """Change the credit. Less than is taken means that nothing is offered until enough has ended."""
        check_range("credit", self.credit + number, 0, self._streams.limits.offers_max)
        self.credit += number
        self._bell.ring()

    def heard(self, lease: Lease, answer: Reported | PenstockError) -> None:
        """Take in what a report on one of this stream's leases led to."""
        slot = self._slots.get(lease)
        if slot is None:
            return
        if isinstance(answer, LeaseLost | JobDoesNotExist):
            self._free(lease)
        elif isinstance(answer, PenstockError):
            return  # What it said was wrong, but its lease goes on.
        elif answer.state is not JobState.RUNNING:
            self._free(lease)
        else:
            slot.accepted = True
            slot.until_ms = answer.until_ms or slot.until_ms

    def end_waiting(self) -> None:
        """Let the stream notice that the service stops."""
        self._bell.ring()

    def close(self) -> None:
        """End the stream: whatever of it was not accepted is given back, all of it."""
        offers = [slot.offer for slot in self._slots.values() if not slot.accepted]
        for lease in list(self._slots):
            self._free(lease)
        self._streams.offering.give_back(offers)
        self._streams.forget(self)

    def _take(self, offers: list[Offer]) -> list[Offer]:
        """Put offers into slots; should there be fewer than when they were asked for, the others go back."""
        free = max(self.credit - len(self._slots), 0)
        self._streams.offering.give_back(offers[free:])
        for offer in offers[:free]:
            self._slots[offer.lease] = _Slot(offer, offer.accept_by_ms)
            self._streams.holders[offer.lease] = self
        return offers[:free]

    def _free(self, lease: Lease) -> None:
        del self._slots[lease]
        self._streams.holders.pop(lease, None)
        self._bell.ring()

    def _reap(self, now_ms: int) -> int:
        """Free the slots of what has lapsed, and tell when the next does."""
        next_ms = now_ms + self._streams.limits.keep_alive_ms
        for lease, slot in list(self._slots.items()):
            if slot.until_ms <= now_ms:
                self._free(lease)
            else:
                next_ms = min(next_ms, slot.until_ms)
        return next_ms


class Streams:
    """All streams of this node, and which of them each lease came by."""

    def __init__(self, offering: Offering, clock: Clock, ids: IdSource, limits: JobLimits) -> None:
        self.offering = offering
        self.clock = clock
        self.limits = limits
        self.holders: dict[Lease, OfferStream] = {}
        self._ids = ids
        self._streams: dict[str, OfferStream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, queues: Sequence[str], *, credit: int, worker: str = "") -> OfferStream:
        """Begin a stream. Whoever opens it closes it, however it ends."""
        check_range("count", credit, 0, self.limits.offers_max)
        if worker:
            check_name("worker", worker, self.limits)
        if len(self._streams) >= self.limits.streams_max:
            raise OverLimit(f"There are {self.limits.streams_max} streams already, and no more may be opened here.")
        stream = OfferStream(self._ids.new_id(), self, list(queues), worker, credit)
        self._streams[stream.name] = stream
        return stream

    def find(self, name: str) -> OfferStream:
        """Return a stream of this node or raise `StreamDoesNotExist`."""
        stream = self._streams.get(name)
        if stream is None:
            raise StreamDoesNotExist("No stream of this server has this name; it may have ended.")
        return stream

    def forget(self, stream: OfferStream) -> None:
        """Take in that a stream has ended."""
        self._streams.pop(stream.name, None)

    def heard(self, lease: Lease, answer: Reported | PenstockError) -> None:
        """Take in what a report led to."""
        holder = self.holders.get(lease)
        if holder is not None:
            holder.heard(lease, answer)

    def end_waits(self) -> None:
        """Let every stream end."""
        for stream in list(self._streams.values()):
            stream.end_waiting()
