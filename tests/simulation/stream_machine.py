"""A state machine of streams and polls: workers that hang, come back, break off, and give back late what they had."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import JobState, Lease, Offer
from penstock.domain.job_errors import JobError
from penstock.domain.job_request import JobRequest
from penstock.domain.limits import Limits
from penstock.domain.retry import RetryPolicy
from penstock.engine.engine import Engine
from penstock.engine.jobs.jobs import Jobs
from penstock.store.job_port import Accept, Complete, Heartbeat, Release, Report
from penstock.store.jobs.store import ScriptedJobs
from penstock.testing import CountedIds, ManualClock
from tests.simulation.calls import Call, weighted
from tests.support.job_service import QUEUE, Pause, make_queue
from tests.support.job_streams import Reader

if TYPE_CHECKING:
    from penstock.store.port import Store
    from tests.support.stores import Opener

T = TypeVar("T")

OFFER_MS = 5_000
LEASE_MS = 12_000
STREAMS_MAX = 4
TURNS = 20
"""Turns of the event loop without a call to the store after which nothing more is going to happen by itself."""
ROUNDS_MAX = 300
WAIT_MS = 1_000

REPORTS: dict[str, Callable[[Lease], Report]] = {
    "accept": Accept,
    "heartbeat": Heartbeat,
    "complete": Complete,
    "release": Release,
}

picks = st.integers(0, 1_000)
few = st.integers(1, 3)
calls = weighted(
    {
        "enqueue": (3, {"count": st.integers(1, 6)}),
        "open_stream": (3, {"credit": st.sampled_from((1, 2, 5))}),
        "break_stream": (2, {"pick": picks, "late": st.booleans()}),
        "lose_an_answer": (1, {"count": few}),
        "let_go": (1, {}),
        "give_back_late": (
            2,
            {"count": few, "accepted": st.sampled_from(("in time", "by others", "by nobody"))},
        ),
        "report": (5, {"how": st.sampled_from(sorted(REPORTS)), "pick": picks}),
        "give_credit": (1, {"pick": picks}),
        "work": (2, {"count": few}),
        "time_passes": (5, {"ms": st.sampled_from((1, 1_000, 2_500, OFFER_MS, LEASE_MS))}),
        "everything_is_done": (1, {}),
    }
)


@dataclass(eq=False)
class Held:
    """What is known of one offer: who got it, and until when it is theirs."""

    lease: Lease
    until_ms: int
    offered_ms: int
    stream: Streaming | None = field(default=None, repr=False)
    accepted: bool = False
    answered: bool = False
    """Whether its worker has said anything about it."""


@dataclass(eq=False)
class Streaming:
    """One stream, and what its worker has heard and said."""

    reader: Reader
    reading: asyncio.Task[list[Offer]] | None = None
    offers: list[Held] = field(default_factory=list)
    sign_ms: int = 0
    """When its worker was last heard from."""

    def silent_since(self, now_ms: int) -> int | None:
        """When the first of its offers or leases lapsed of which nothing was heard since; None if none did."""
        lapsed = [
            held.until_ms
            for held in self.offers
            if held.until_ms <= now_ms and held.until_ms > self.sign_ms and (held.accepted or not held.answered)
        ]
        return min(lapsed, default=None)


class StreamMachine(RuleBasedStateMachine):
    """Whatever happens, a job has one holder, and a stream is offered nothing while its worker is silent."""

    place: ClassVar[Callable[[], tuple[Opener, Callable[[], None]]]]
    """Makes an empty place for a store, and what removes it again."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.opener, self.remove = type(self).place()
        self.clock = ManualClock()
        self.failpoints = Failpoints()
        self.streams: list[Streaming] = []
        self.leases: list[Held] = []
        self.holders: dict[str, Held] = {}
        """By job, whose it is now, as far as anybody knows."""
        self.late: Pause | None = None
        """Holds up what goes back late."""
        self.returning: list[Held] = []
        self.under_way = 0
        """How many calls of the store are."""
        self.store: Store | None = None

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(call, timeout=20))

    def teardown(self) -> None:
        try:
            if self.store is not None:
                self.let_go()
                for stream in list(self.streams):
                    self.run(stream.reader.close())
                self.run(self.jobs.settle())
                self.run(self.store.close())
        finally:
            self.loop.close()
            self.remove()

    @initialize()
    def begin(self) -> None:
        ids, limits = CountedIds(), Limits()
        opened = self.opener(clock=self.clock, ids=ids, limits=limits, failpoints=self.failpoints)
        self.store = self.run(opened)

        assert isinstance(self.store.jobs, ScriptedJobs)
        runner = self.store.jobs._runner  # noqa: SLF001 - nobody else knows what is under way
        ran = runner.run

        async def run(verb: str, body: Any) -> Any:
            self.under_way += 1
            try:
                return await ran(verb, body)
            finally:
                self.under_way -= 1

        runner.run = run  # type: ignore[method-assign] # Counted from now on.

        async def prepare() -> Jobs:
            assert self.store is not None
            jobs = Engine(self.store, clock=self.clock, ids=ids, limits=limits).jobs
            retry = RetryPolicy(attempts_max=1_000, losses_max=1_000, backoff_ms=0)
            await make_queue(jobs, offer_ms=OFFER_MS, lease_ms=LEASE_MS, retry=retry)
            return jobs

        self.jobs = self.run(prepare())

    # -- rules ------------------------------------------------------------------------------------

    @rule(call=calls)
    def happen(self, call: Call) -> None:
        name, arguments = call
        getattr(self, name)(**arguments)
        self.rest()

    def enqueue(self, count: int) -> None:
        self.run(self.jobs.enqueueing.enqueue_batch([(QUEUE, JobRequest(task="t"))] * count))
        self.rest()

    def open_stream(self, credit: int) -> None:
        if len(self.streams) == STREAMS_MAX:
            return
        stream = Streaming(Reader(self.jobs.streams.open([QUEUE], credit=credit, worker="streaming")))
        self.streams.append(stream)
        self.rest()

    def break_stream(self, pick: int, late: bool) -> None:
        """A connection breaks; what its worker had not accepted goes back, at once or after a while."""
        if not self.streams or self.late is not None:
            return
        stream = self.streams.pop(pick % len(self.streams))
        self.collect(stream)
        self.returning = [held for held in stream.offers if not held.accepted and self.is_current(held)]
        if self.returning:
            self.late = Pause(self.failpoints, "jobs.report.begun")
        self.run(stream.reader.close())
        if self.late is not None:
            self.run(self.late.reached.wait())
        if not late:
            self.let_go()

    def lose_an_answer(self, count: int) -> list[Offer]:
        """Poll, and give back what is offered, as for a client that went away; it is held up on its way."""
        if self.late is not None:
            return []
        offers = self.poll(count)
        if offers:
            self.returning = [self.holders[offer.lease.job_id] for offer in offers]
            self.late = Pause(self.failpoints, "jobs.report.begun")
            self.run(self.give_back(offers, self.late))
        return offers

    async def give_back(self, offers: list[Offer], pause: Pause) -> None:
        self.jobs.offering.give_back(offers)
        await pause.reached.wait()

    def let_go(self) -> None:
        """What was held up goes back after all, but for what was accepted."""
        if self.late is None:
            return
        for held in self.returning:
            if not held.accepted:
                self.drop(held)
        self.returning = []
        self.late.go_on.set()
        self.late = None
        self.run(self.jobs.settle())
        self.rest()

    def give_back_late(self, count: int, accepted: str) -> None:
        """An answer is lost, and its offers go back late: they were accepted after all, or are others' by now."""
        self.let_go()
        self.enqueue(count)
        holders = [self.holders[offer.lease.job_id] for offer in self.lose_an_answer(5)]
        if accepted != "in time":
            self.time_passes(OFFER_MS)
            holders = [self.holders[offer.lease.job_id] for offer in self.poll(5)]
        if accepted != "by nobody":
            for held in holders:
                self.say(held, Accept(held.lease))
        self.let_go()
        self.poll(5)

    def report(self, how: str, pick: int) -> None:
        """A worker says something, in time or late."""
        if not self.leases:
            return
        among = self.leases[-4:] if pick % 2 else self.leases
        held = among[pick // 2 % len(among)]
        self.say(held, REPORTS[how](held.lease))
        self.rest()

    def give_credit(self, pick: int) -> None:
        if not self.streams:
            return
        stream = self.streams[pick % len(self.streams)]
        stream.reader.stream.add_credit(0)
        stream.sign_ms = self.clock.now_ms()
        self.rest()

    def work(self, count: int) -> None:
        """A worker that is well takes what there is, and does it."""
        self.do(self.poll(count))
        self.rest()

    def time_passes(self, ms: int) -> None:
        self.run(self.clock.advance(ms=ms))
        self.rest()

    def everything_is_done(self) -> None:
        """However much credit silent streams have, what they hold comes back when one offer or lease is over."""
        self.let_go()
        self.time_passes(LEASE_MS)
        for _ in range(ROUNDS_MAX):
            offers = self.poll(10, wait_ms=WAIT_MS)
            if not offers:
                break
            self.do(offers)
        counts = self.run(self.jobs.queues.counts(self.run(self.jobs.queues.find(QUEUE)))).by_state
        waiting = {state: number for state, number in counts.items() if state in (JobState.QUEUED, JobState.RETRYING)}
        assert sum(waiting.values()) == 0, "a job waits although somebody is there to do it"

    # -- what everybody knows ---------------------------------------------------------------------

    def poll(self, count: int, wait_ms: int = 0) -> list[Offer]:
        async def polled() -> list[Offer]:
            polling = asyncio.create_task(self.jobs.offering.poll([QUEUE], count=count, worker="well", wait_ms=wait_ms))
            await self.quiet()
            if not polling.done() and wait_ms:
                await self.clock.advance(ms=wait_ms)
            return await polling

        offers = self.run(polled())
        for offer in offers:
            self.note(Held(offer.lease, offer.accept_by_ms, offer.accept_by_ms - OFFER_MS), offer)
        return offers

    def do(self, offers: list[Offer]) -> None:
        for offer in offers:
            held = self.holders[offer.lease.job_id]
            self.say(held, Accept(offer.lease))
            assert held.accepted or held.until_ms <= self.clock.now_ms()
            self.say(held, Complete(offer.lease))

    def say(self, held: Held, report: Report) -> None:
        current = self.is_current(held)
        held.answered = True
        if held.stream is not None:
            held.stream.sign_ms = self.clock.now_ms()
        try:
            answer = self.run(self.jobs.reports.report(report))
        except JobError:
            assert not (current and isinstance(report, Accept | Release)), f"{held} was refused"
            return
        if isinstance(report, Accept | Heartbeat):
            assert current, f"{held} was believed, but it is {self.holders.get(held.lease.job_id)}'s"
            held.accepted = True
            assert answer.until_ms is not None
            held.until_ms = answer.until_ms
        else:
            self.drop(held)

    def is_current(self, held: Held) -> bool:
        return self.holders.get(held.lease.job_id) is held and held.until_ms > self.clock.now_ms()

    def drop(self, held: Held) -> None:
        """What a job's holder had is over."""
        if self.holders.get(held.lease.job_id) is held:
            del self.holders[held.lease.job_id]

    def note(self, held: Held, offer: Offer) -> None:
        """A job was offered: it must have been nobody's."""
        self.leases.append(held)
        earlier, later = self.holders.get(offer.lease.job_id), held
        if earlier is not None and earlier.lease.fence > held.lease.fence:
            # It was read late.
            earlier, later = held, earlier
        if earlier is not None:
            assert earlier.until_ms <= later.offered_ms, f"it was offered as {later} while it was {earlier}'s"
        self.holders[offer.lease.job_id] = later

    def rest(self) -> None:
        """Let everything happen that happens by itself, and read all streams."""
        self.run(self.quiet())
        for stream in self.streams:
            self.collect(stream)

    async def quiet(self) -> None:
        """Let the event loop run until nobody has called the store for a while."""
        for stream in self.streams:
            if stream.reading is None:
                stream.reading = stream.reader.reading()
        turns = 0
        while turns < TURNS:
            await asyncio.sleep(0)
            # What is held up is under way, too.
            turns = 0 if self.under_way > (self.late is not None) else turns + 1

    def collect(self, stream: Streaming) -> None:
        """Take in what a stream was offered: nothing, if its worker was silent by then."""
        if stream.reading is None or not stream.reading.done():
            return
        reading, stream.reading = stream.reading, None
        for offer in reading.result():
            offered_ms = offer.accept_by_ms - OFFER_MS
            silent_ms = stream.silent_since(offered_ms)
            assert silent_ms is None, f"silent since {offered_ms - silent_ms} ms, it was offered {offer.lease}"
            held = Held(offer.lease, offer.accept_by_ms, offered_ms, stream)
            self.note(held, offer)
            stream.offers.append(held)
