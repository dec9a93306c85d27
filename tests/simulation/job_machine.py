"""A state machine that lives the lives of jobs at random, in a store and in the model at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.domain.failpoints import Failpoints
from penstock.domain.job import IN_FLIGHT, TERMINAL, Failure, JobDraft, JobState, Lane, Lease, Offer, OnDuplicate
from penstock.domain.job_errors import JobStateConflict
from penstock.domain.job_queue import JobQueue, JobQueueSettings, LaneSettings
from penstock.domain.limits import Limits
from penstock.domain.operation import JobFilter
from penstock.domain.retry import RetryPolicy
from penstock.store.job_port import (
    Accept,
    Complete,
    Enqueued,
    Fail,
    Heartbeat,
    JobStore,
    Release,
    Report,
    Reported,
    Snooze,
)
from penstock.store.jobs.due import HELD_MS
from penstock.testing import CountedIds, ManualClock
from tests.simulation.job_model import JobModel, ModelJob

if TYPE_CHECKING:
    from penstock.store.port import Store
    from tests.support.stores import Opener

T = TypeVar("T")
Wishes = list[tuple[dict[str, Any], bytes | None, bool]]
"""What each draft is to have, its key, and whether it may say something else under that key."""

RETRY = RetryPolicy(attempts_max=3, losses_max=2, backoff_ms=1_000, jitter=False)
SETTINGS = JobQueueSettings(
    retry=RETRY,
    aging_ms=1_000,
    offer_ms=5_000,
    lease_ms=8_000,
    timeout_ms=20_000,
    retention_ms=0,
    dead_retention_ms=400_000,
)
QUEUES = {
    "plain": msgspec.structs.replace(SETTINGS, depth_max=12, lanes={"k": LaneSettings(width=2, shared=True)}),
    "strict": msgspec.structs.replace(SETTINGS, strict=True, key_ttl_ms=60_000),
}
LANES = (
    None,
    None,
    Lane(key="g", ordered=True),
    Lane(key="h", ordered=True),
    Lane(key="g", width=1),
    Lane(key="k", width=2),
)
ROUNDS_MAX = 200
LISTED_MAX = 500

drafts = st.fixed_dictionaries(
    {
        "lane": st.sampled_from(LANES),
        "tenant": st.sampled_from(("", "", "a", "b")),
        "priority": st.sampled_from((4, 4, 4, 9, 0)),
        "delay_ms": st.sampled_from((0, 0, 0, 3_000)),
        "expires_in_ms": st.sampled_from((None, None, None, 3_500, 9_000, 41_000)),
        "retention_ms": st.sampled_from((None, None, 0, 350_000)),
        "unique_key": st.sampled_from((None, None, None, "u")),
        "on_duplicate": st.sampled_from(OnDuplicate),
        "timeout_ms": st.sampled_from((None, None, 6_000)),
        "retry": st.sampled_from((None, None, RetryPolicy(attempts_max=1, losses_max=1))),
    }
)
keys = st.sampled_from((None, None, b"1" * 32, b"2" * 32))
wishes = st.lists(st.tuples(drafts, keys, st.booleans()), min_size=1, max_size=6)
names = st.sampled_from(("plain", "plain", "plain", "strict"))
picks = st.integers(0, 1_000)

REPORTS: dict[str, Callable[[Lease], Report]] = {
    "accept": Accept,
    "heartbeat": Heartbeat,
    "complete": Complete,
    "fail": lambda lease: Fail(lease, Failure(kind="x")),
    "fail for good": lambda lease: Fail(lease, Failure(kind="x", permanent=True)),
    "fail for long": lambda lease: Fail(lease, Failure(kind="x", retry_after_ms=9_000)),
    "release": Release,
    "return": lambda lease: Release(lease, unaccepted=True),
    "snooze": lambda lease: Snooze(lease, 4_000),
}


class JobMachine(RuleBasedStateMachine):
    """Every rule calls the store, shows the answer to the model, and asserts that the two still agree."""

    place: ClassVar[Callable[[], tuple[Opener, Callable[[], None]]]]
    """Makes an empty place for a store, and what removes it again."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.opener, self.remove = type(self).place()
        self.clock = ManualClock()
        self.ids = CountedIds()
        self.model = JobModel()
        self.queues: dict[str, JobQueue] = {}
        self.leases: list[Lease] = []
        self.drafted = 0
        self.store: Store | None = None

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(call, timeout=20))

    @property
    def jobs(self) -> JobStore:
        assert self.store is not None
        return self.store.jobs

    def open(self) -> None:
        opened = self.opener(clock=self.clock, ids=self.ids, limits=Limits(), failpoints=Failpoints())
        self.store = self.run(opened)

    def teardown(self) -> None:
        try:
            if self.store is not None:
                self.run(self.store.close())
        finally:
            self.loop.close()
            self.remove()

    @initialize(wanted=wishes)
    def begin(self, wanted: Wishes) -> None:
        """Make the queues, and something to do."""
        self.open()
        self.model.now_ms = self.clock.now_ms()
        for name, settings in QUEUES.items():
            self.queues[name], _ = self.run(self.jobs.create_queue(name, settings))
        self.enqueue("plain", wanted)

    # -- rules ------------------------------------------------------------------------------------

    @rule(name=names, wanted=wishes)
    def enqueue(self, name: str, wanted: Wishes) -> None:
        made = []
        for fields, key, other in wanted:
            self.drafted += 1
            made.append(
                JobDraft(
                    id=f"job-{self.drafted:04}",
                    task="t" if self.drafted % 3 else "u",
                    payload=b"{}",
                    idempotency_key=key,
                    fingerprint=b"other" if other and self.drafted % 4 == 0 else b"one",
                    **fields,
                )
            )
        answers = self.run(self.jobs.enqueue(self.queues[name], made))
        got = [answer if isinstance(answer, Enqueued) else type(answer) for answer in answers]
        assert got == self.model.enqueue(self.queues[name], made)

    @precondition(lambda self: self.model.jobs or self.model.purged)
    @rule(pick=picks)
    def enqueue_again(self, pick: int) -> None:
        """Repeat an enqueueing whose answer was lost."""
        remembered = [job for job in self.model.purged if job.known_until_ms > self.model.now_ms]
        among = self.model.jobs + remembered
        if among:
            job = among[pick % len(among)]
            [answer] = self.run(self.jobs.enqueue(job.queue, [job.draft]))
            assert answer == Enqueued(job.draft.id, job.state, new=False)

    @rule(name=names, count=st.integers(1, 6), tasks=st.sampled_from(((), (), ("t",), ("t", "x"), ("u",))))
    def offer(self, name: str, count: int, tasks: tuple[str, ...]) -> None:
        self.take(name, count, tasks)

    @rule(name=names, ends=st.lists(st.sampled_from(sorted(REPORTS)), min_size=1, max_size=5))
    def work(self, name: str, ends: list[str]) -> None:
        """Take jobs, and come to an end with each."""
        for offer, how in zip(self.take(name, len(ends)), ends, strict=False):
            self.say_now(Accept(offer.lease))
            self.say_now(REPORTS[how](offer.lease))

    def take(self, name: str, count: int, tasks: tuple[str, ...] = ()) -> list[Offer]:
        queue = self.queues[name]
        answer = self.run(self.jobs.offer(queue, count=count, worker="w", tasks=tasks))
        self.model.lapse_all(queue)
        self.model.offered(queue, count, answer.offers, tasks)
        self.leases += [offer.lease for offer in answer.offers]
        if len(answer.offers) < count:
            due = [job.due_at_ms for job in self.model.jobs if job.queue.id == queue.id and job.due_at_ms is not None]
            expected = min(due) - self.model.now_ms if due else None
            # With tasks there is one look more after offers: somebody else might have held other jobs.
            assert answer.next_in_ms == expected or (tasks and answer.next_in_ms == HELD_MS and answer.offers)
        return answer.offers

    @precondition(lambda self: self.leases)
    @rule(pick=picks)
    def accept(self, pick: int) -> None:
        self.say([("accept", pick | 1)])

    @precondition(lambda self: self.leases)
    @rule(said=st.lists(st.tuples(st.sampled_from(sorted(REPORTS)), picks), min_size=1, max_size=4))
    def report(self, said: list[tuple[str, int]]) -> None:
        self.say(said)

    def say(self, said: list[tuple[str, int]]) -> None:
        """Report on leases: half of them late ones."""
        reports = []
        for how, pick in said:
            among = self.leases[-5:] if pick % 2 else self.leases
            reports.append(REPORTS[how](among[pick // 2 % len(among)]))
        self.say_all(reports)

    def say_all(self, reports: list[Report]) -> None:
        if not reports:
            return
        answers = self.run(self.jobs.report(reports))
        got = [answer if isinstance(answer, Reported) else type(answer) for answer in answers]
        assert got == [self.model.report(one) for one in reports]

    @rule(name=names, count=st.integers(1, 6), accepted=st.sampled_from(("in time", "by others", "by nobody")))
    def return_late(self, name: str, count: int, accepted: str) -> None:
        """A request dies, and gives back late what it was offered: it was accepted after all, or is others' by now."""
        dead = self.take(name, count)
        holders = dead
        if accepted != "in time":
            self.time_passes(SETTINGS.offer_ms)
            holders = self.take(name, count)
        if accepted != "by nobody":
            self.say_all([Accept(offer.lease) for offer in holders])
        self.say_all([Release(offer.lease, unaccepted=True) for offer in dead])

    @precondition(lambda self: self.model.jobs)
    @rule(pick=picks, what=st.sampled_from(("cancel", "retry")))
    def intervene(self, pick: int, what: str) -> None:
        self.ask(self.model.jobs[pick % len(self.model.jobs)], what)

    @precondition(lambda self: self.those_in(IN_FLIGHT))
    @rule(pick=picks, what=st.sampled_from(("cancel", "retry")), ms=st.sampled_from((1, 5_000, 8_000)))
    def intervene_late(self, pick: int, what: str, ms: int) -> None:
        """What somebody asks for may come when an offer or a lease is over, and nobody has looked yet."""
        self.time_passes(ms)
        among = self.those_in(IN_FLIGHT)
        self.ask(among[pick % len(among)], what)

    @precondition(lambda self: self.those_in(TERMINAL))
    @rule(pick=picks)
    def come_back(self, pick: int) -> None:
        among = self.those_in(TERMINAL)
        self.ask(among[pick % len(among)], "retry")

    def those_in(self, states: frozenset[JobState]) -> list[ModelJob]:
        return [job for job in self.model.jobs if job.state in states]

    def ask(self, job: ModelJob, what: str) -> None:
        done = self.model.cancel(job) if what == "cancel" else self.model.retry(job)
        verb = self.jobs.cancel if what == "cancel" else self.jobs.retry
        try:
            answer = self.run(verb(job.draft.id))
        except JobStateConflict:
            assert not done
        else:
            assert done
            assert answer.state is job.state

    @rule(ms=st.sampled_from((1, 999, 1_000, 3_000, 5_000, 8_000, 40_000, 300_000)))
    def time_passes(self, ms: int) -> None:
        self.run(self.clock.advance(ms=ms))
        self.model.now_ms = self.clock.now_ms()

    @rule()
    def advance(self) -> None:
        next_in_ms = self.run(self.jobs.advance())
        self.model.lapse_all()
        due_at_ms = self.model.next_due_ms()
        assert next_in_ms == (None if due_at_ms is None else due_at_ms - self.model.now_ms)

    @rule()
    def restart(self) -> None:
        assert self.store is not None
        self.run(self.store.close())
        self.open()

    @rule()
    def everything_ends(self) -> None:
        """Whatever happened, all jobs come to their ends if workers only work."""
        for _ in range(ROUNDS_MAX):
            if not any(job.unfinished for job in self.model.jobs):
                return
            for name in self.queues:
                self.work(name, ["complete"] * 5)
            due_at_ms = self.model.next_due_ms()
            if due_at_ms is not None:
                self.time_passes(max(due_at_ms - self.model.now_ms, 0))
        raise AssertionError("a job is stuck")

    def say_now(self, said: Report) -> None:
        self.say_all([said])

    # -- what must hold after every step ----------------------------------------------------------

    @invariant()
    def jobs_agree(self) -> None:
        if not self.queues:
            return
        found = self.run(self.jobs.jobs(JobFilter(), limit=LISTED_MAX))
        assert len(found) == len(self.model.jobs)
        for job, kept in zip(reversed(found), self.model.jobs, strict=True):
            assert (
                job.id,
                job.state,
                job.due_at_ms,
                job.attempts,
                job.failures,
                job.losses,
                job.cancel_requested,
                job.finished_at_ms,
                job.expires_at_ms,
            ) == (
                kept.draft.id,
                kept.state,
                kept.due_at_ms,
                kept.attempts,
                kept.failures,
                kept.losses,
                kept.cancel_requested,
                kept.finished_at_ms,
                kept.expiry_ms if kept.unfinished else None,
            )

    @invariant()
    def leases_agree(self) -> None:
        if self.leases:
            statuses = self.run(self.jobs.leases(self.leases))
            assert [status.state for status in statuses] == [self.model.lease_state(lease) for lease in self.leases]

    @invariant()
    def counts_agree(self) -> None:
        for queue in self.queues.values():
            counts = self.run(self.jobs.counts(queue))
            expected: Counter[JobState] = Counter(job.state for job in self.model.jobs if job.queue.id == queue.id)
            assert {state: number for state, number in counts.by_state.items() if number} == expected
