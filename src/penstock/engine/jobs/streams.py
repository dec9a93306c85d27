"""Streams of offers: long-lived, with credit, and with all that was not accepted given back when they break."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.clock import from_wall_ms
from penstock.domain.errors import OverLimit, PenstockError
from penstock.domain.job import JobState, Offer
from penstock.domain.job_errors import JobDoesNotExist, JobQueueDoesNotExist, LeaseLost, StreamDoesNotExist
from penstock.domain.job_request import check_name, check_range, check_tasks
from penstock.domain.repeats import turn_of
from penstock.domain.worker import Worker, WorkerKind
from penstock.engine.jobs.bell import Bell
from penstock.engine.jobs.offering import Wanted
from penstock.store.job_port import Heartbeat, LeaseState, Publish, Release

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.job import Lease
    from penstock.domain.job_limits import JobLimits
    from penstock.engine.jobs.offering import Offering
    from penstock.engine.jobs.workers import Workers
    from penstock.store.job_port import JobStore, Report, Reported

CREDIT_CALLS_MAX = 1_000
"""How many changes of its credit a stream remembers: the last ones."""

_log = logging.getLogger(__name__)


class _Slot(msgspec.Struct):
    """What takes up credit: an offer, until it lapses; and once accepted the lease, until it ends."""

    offer: Offer
    until_ms: int
    accepted: bool = False


class OfferStream:
    """One worker's stream. It has `credit` slots; an offer takes one until it is over, accepted or not.

    Once an offer or a lease of it lapses, the stream is *held back*: nothing is offered on it until its worker is
    heard from. So a worker that hangs keeps a job from others for one offer's time at most. A heartbeat or an event
    does not show that the worker still takes jobs; after one, a single job is offered at a time until the worker
    accepts.

    A stream with a `turn` is opened again under the same one after it broke. It begins with what is left of its offers.
    """

    def __init__(self, name: str, streams: Streams, queues: Sequence[str], wanted: Wanted, credit: int) -> None:
        self.name = name
        self.listed_id = streams.ids.new_id()
        """By which the list of workers knows it."""
        self.credit = credit
        self.held_back = False
        self.turn = wanted.turn
        self._streams = streams
        self._queues = queues
        self._wanted = wanted
        self._slots: dict[Lease, _Slot] = {}
        self._past: dict[Lease, int] = {}
        """Leases that took up slots, and on which the worker may still report, here or elsewhere: when each ends."""
        self._on_trial = False
        self._closed = False
        self._opened_ms = streams.clock.now_ms()
        self._bell = Bell()
        self._credit_calls: dict[str, None] = {}

    @property
    def taken(self) -> int:
        """How many slots are taken."""
        return len(self._slots)

    def room(self) -> int:
        """Return how many jobs may be offered now: none until it is known what became of those that are overdue."""
        if self._closed or self.held_back or self._overdue():
            return 0
        room = self.credit - len(self._slots)
        if self._on_trial:
            room = min(room, 1 - sum(not slot.accepted for slot in self._slots.values()))
        return max(room, 0)

    def seen(self) -> Worker:
        """Say what is known of its worker now."""
        return Worker(
            id=self.listed_id,
            name=self._wanted.worker,
            kind=WorkerKind.STREAM,
            queues=tuple(self._queues),
            tasks=self._wanted.tasks or None,
            credit=self.credit,
            running=sum(slot.accepted for slot in self._slots.values()),
            since_at_ms=self._opened_ms,
            seen_at_ms=self._streams.clock.now_ms(),
        )

    async def batches(self) -> AsyncGenerator[list[Offer]]:
        """Yield offers as there are jobs and free slots; an empty list is a sign of life, or says `held_back`.

        Ends when the service stops, when a queue is gone, or after `limits.stream_ms_max`.
        """
        clock, limits, offering = self._streams.clock, self._streams.limits, self._streams.offering
        ends_ms = clock.now_ms() + limits.stream_ms_max
        beat_ms = min(clock.now_ms() + limits.keep_alive_ms, ends_ms)
        told = False
        offers = await self._offered_before()
        if offers:
            yield offers
        while not (offering.closed or self._closed) and clock.now_ms() < ends_ms:
            offers = []
            told = told and self.held_back
            await self._settle_overdue()
            if self.held_back == told and clock.now_ms() < beat_ms:
                try:
                    offers = await self._wait(beat_ms)
                except JobQueueDoesNotExist:
                    return
            if self.held_back and clock.now_ms() >= beat_ms and await self._review_past():
                self._note_sign(takes_jobs=False)
            if offers or clock.now_ms() >= beat_ms or (self.held_back and not told):
                beat_ms = min(clock.now_ms() + limits.keep_alive_ms, ends_ms)
                told = self.held_back
                yield offers

    async def _wait(self, until_ms: int) -> list[Offer]:
        """Wait for offers, or until something is overdue or has changed; at most until this instant."""
        until_ms = min([until_ms, *(slot.until_ms for slot in self._slots.values())])
        if self.room() == 0:
            await self._bell.wait(self._streams.clock, until_ms)
            return []
        offering = self._streams.offering
        return self._take(await offering.wait(self._queues, room=self.room, wanted=self._wanted, until_ms=until_ms))

    async def _offered_before(self) -> list[Offer]:
        """Take over what this stream was offered before it broke and was opened again."""
        if self.turn is None:
            return []
        limits, offering = self._streams.limits, self._streams.offering
        try:
            return self._take(await offering.offer_again(self._queues, count=limits.offers_max, turn=self.turn))
        except JobQueueDoesNotExist:
            return []  # The next look ends the stream.

    def add_credit(self, number: int, *, call: str | None = None) -> None:
        """Change the credit, which is a sign of life. Less than is taken means that nothing is offered until enough
        has ended. The same `call` again changes nothing.
        """
        if call in self._credit_calls:
            return
        check_range("credit", self.credit + number, 0, self._streams.limits.offers_max)
        self.credit += number
        if call is not None:
            self._credit_calls[call] = None
            if len(self._credit_calls) > CREDIT_CALLS_MAX:
                del self._credit_calls[next(iter(self._credit_calls))]
        self._note_sign(takes_jobs=True)
        self._bell.ring()

    def heard(self, report: Report, answer: Reported | PenstockError) -> None:
        """Take in a report on one of this stream's leases, and what it led to."""
        lease = report.lease
        self._note_sign(takes_jobs=not isinstance(report, Heartbeat | Publish))
        over = isinstance(answer, LeaseLost | JobDoesNotExist) or (
            not isinstance(answer, PenstockError) and answer.state is not JobState.RUNNING
        )
        slot = self._slots.get(lease)
        if over:
            self._drop(lease)
        elif slot is not None and not isinstance(answer, PenstockError):
            slot.accepted = True
            if answer.until_ms is not None:
                until_ms = from_wall_ms(self._streams.clock, answer.until_ms)
                if until_ms < slot.until_ms:
                    self._bell.ring()  # The wait for what is overdue ends sooner.
                slot.until_ms = until_ms

    def heard_of_end(self, lease: Lease) -> None:
        """Take in that the worker has reported to another node on a lease that is over."""
        self._note_sign(takes_jobs=True)
        self._drop(lease)

    def heard_of_event(self) -> None:
        """Take in that the worker has published an event."""
        self._note_sign(takes_jobs=False)

    def end_waiting(self) -> None:
        """Let the stream notice that the service stops."""
        self._bell.ring()

    def close(self) -> None:
        """End the stream: whatever of it was not accepted is given back, all of it; nothing is offered on it again."""
        self._closed = True
        offers = [slot.offer for slot in self._slots.values() if not slot.accepted]
        for lease in [*self._slots, *self._past]:
            self._drop(lease)
        self._streams.offering.give_back(offers)
        self._streams.forget(self)
        self._bell.ring()

    # -- slots ------------------------------------------------------------------------------------

    def _take(self, offers: list[Offer]) -> list[Offer]:
        """Put offers into slots. Those that there is no room for any more go back."""
        held = {lease.job_id: slot for lease, slot in self._slots.items()}
        for offer in offers:
            if offer.lease.job_id in held:
                # The offer before is over, if not by this node's clock: see first how it ended.
                held[offer.lease.job_id].until_ms = 0
        room = self.room()
        self._streams.offering.give_back(offers[room:])
        for offer in offers[:room]:
            self._slots[offer.lease] = _Slot(offer, from_wall_ms(self._streams.clock, offer.accept_by_ms))
            self._streams.holders[offer.lease] = self
        return offers[:room]

    def _drop(self, lease: Lease) -> None:
        """Free the slot of a lease, and forget the lease."""
        if self._slots.pop(lease, None) is not None:
            self._bell.ring()
        self._past.pop(lease, None)
        self._streams.holders.pop(lease, None)

    def _retire(self, lease: Lease, until_ms: int) -> None:
        """Free the slot of a lease whose worker may still report."""
        del self._slots[lease]
        self._past[lease] = until_ms
        if len(self._past) > self._streams.limits.offers_max:
            self._drop(next(iter(self._past)))

    # -- who is silent ----------------------------------------------------------------------------

    def _overdue(self) -> list[Lease]:
        now_ms = self._streams.clock.now_ms()
        return [lease for lease, slot in self._slots.items() if slot.until_ms <= now_ms]

    async def _settle_overdue(self) -> None:
        """Free the slots of what is overdue. If nothing came from the worker, to any node, hold the stream back."""
        overdue = self._overdue()
        if not overdue:
            return
        statuses = dict(zip(overdue, await self._streams.store.leases(overdue), strict=True))
        lapsed = False
        for lease in self._overdue():
            status = statuses.get(lease)
            if status is None:
                continue  # It has come due meanwhile.
            if status.state is LeaseState.OFFERED:
                # By this node's clock it was over.
                self._slots[lease].until_ms = self._streams.clock.now_ms() + status.left_ms
            elif status.state in (LeaseState.RUNNING, LeaseState.LAPSED):
                self._retire(lease, status.until_ms)
                lapsed = lapsed or status.state is LeaseState.LAPSED
            else:
                self._drop(lease)
            if status.state in (LeaseState.RUNNING, LeaseState.REPORTED):
                # If the stream is held back, this may have been before that.
                self._note_sign(takes_jobs=not self.held_back)
        if lapsed:
            self._hold_back()
            await self._review_past()

    async def _review_past(self) -> bool:
        """Update what is known of past leases; return whether the worker has reported on any since the last time."""
        leases = list(self._past)
        reported = False
        for lease, status in zip(leases, await self._streams.store.leases(leases) if leases else [], strict=True):
            known_ms = self._past.get(lease)
            if known_ms is None:
                continue  # The worker has reported here meanwhile.
            if status.state is LeaseState.RUNNING:
                reported = reported or status.until_ms > known_ms
                self._past[lease] = status.until_ms
            elif status.state is not LeaseState.LAPSED:
                reported = reported or status.state is LeaseState.REPORTED
                self._drop(lease)
        return reported

    def _hold_back(self) -> None:
        self._on_trial = True
        if not self.held_back:
            self.held_back = True
            self._streams.silences += 1
            _log.warning(
                "Worker %r let an offer or a lease lapse. Its stream %s is offered nothing until it is heard from",
                self._wanted.worker,
                self.name,
            )

    def _note_sign(self, *, takes_jobs: bool) -> None:
        """Take in that the worker is alive, and whether this shows that it takes jobs."""
        if self.held_back or (self._on_trial and takes_jobs):
            self._bell.ring()
        self.held_back = False
        self._on_trial = self._on_trial and not takes_jobs


class Streams:
    """All streams of this node, and which of them each lease came by."""

    def __init__(
        self,
        store: JobStore,
        offering: Offering,
        workers: Workers,
        clock: Clock,
        ids: IdSource,
        limits: JobLimits,
    ) -> None:
        self.store = store
        self.offering = offering
        self.clock = clock
        self.ids = ids
        self.limits = limits
        self.holders: dict[Lease, OfferStream] = {}
        self.silences = 0
        """How often a stream was held back."""
        self._workers = workers
        self._streams: dict[str, OfferStream] = {}
        self._by_turn: dict[int, OfferStream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def held_back(self) -> int:
        """How many streams are held back."""
        return sum(stream.held_back for stream in self._streams.values())

    def open(
        self,
        queues: Sequence[str],
        *,
        credit: int,
        worker: str = "",
        tasks: Sequence[str] = (),
        call: str | None = None,
    ) -> OfferStream:
        """Begin a stream, of jobs of these tasks if any are named. Whoever opens it closes it, however it ends.

        The same `call` again is the same stream, which broke: one that is still open here is closed.
        """
        check_range("count", credit, 0, self.limits.offers_max)
        if worker:
            check_name("worker", worker, self.limits)
        turn = None if call is None else turn_of(call)
        wanted = Wanted(worker, check_tasks(tasks, self.limits), turn)
        before = None if turn is None else self._by_turn.get(turn)
        if before is not None:
            before.close()
        if len(self._streams) >= self.limits.streams_max:
            raise OverLimit(f"There are {self.limits.streams_max} streams already, and no more may be opened here.")
        stream = OfferStream(self.ids.new_id(), self, list(queues), wanted, credit)
        self._streams[stream.name] = stream
        if turn is not None:
            self._by_turn[turn] = stream
        self._workers.enter(stream.seen, stream.listed_id)
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
        if stream.turn is not None and self._by_turn.get(stream.turn) is stream:
            del self._by_turn[stream.turn]
        self._workers.leave(stream.listed_id)

    def heard(self, report: Report, answer: Reported | PenstockError) -> None:
        """Take in a report, and what it led to."""
        holder = self.holders.get(report.lease)
        if holder is not None:
            holder.heard(report, answer)
        elif isinstance(report, Release) or isinstance(answer, LeaseLost | JobDoesNotExist):
            # The stream may be another node's, which would take the offer for lapsed.
            self.store.tell_heard(report.lease)

    def heard_elsewhere(self, lease: Lease) -> None:
        """Note that a worker has reported a lease that is over to another node."""
        holder = self.holders.get(lease)
        if holder is not None:
            holder.heard_of_end(lease)

    def heard_of_event(self, lease: Lease) -> None:
        """Take in that a worker has published an event."""
        holder = self.holders.get(lease)
        if holder is not None:
            holder.heard_of_event()

    def end_waits(self) -> None:
        """Let every stream end."""
        for stream in list(self._streams.values()):
            stream.end_waiting()
