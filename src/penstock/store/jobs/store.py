"""The job port for every store that can run scripts: each verb is one of them."""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from penstock.domain.job_errors import JobStateConflict
from penstock.domain.job_limits import JobLimits
from penstock.store.job_port import ALL_EVENTS, Complete, Offers, Publish, Release, StagedCounts, Taken
from penstock.store.jobs import (
    due,
    enqueueing,
    event_stream,
    gathers,
    interventions,
    offering,
    operations,
    queues,
    reading,
    reporting,
    schedules,
    sweeping,
    workers,
)
from penstock.store.jobs.closing import closed
from penstock.store.jobs.events import OWN_ID
from penstock.store.jobs.gathering import Gathering
from penstock.store.jobs.surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.domain.gather import Gather, NewGather, NewMember
    from penstock.domain.ids import IdSource
    from penstock.domain.job import EventFilter, Job, JobDraft, JobEvent, Lease, Offer
    from penstock.domain.job_errors import JobError
    from penstock.domain.job_queue import JobCounts, JobQueue, JobQueueSettings
    from penstock.domain.operation import JobFilter, Operation, OperationKind
    from penstock.domain.schedule import Schedule
    from penstock.domain.worker import Worker
    from penstock.store.job_port import (
        DeadGroup,
        Enqueued,
        Events,
        Filled,
        LeaseStatus,
        MemberPage,
        ReadStaged,
        Report,
        Reported,
    )
    from penstock.store.jobs.running import Body, Runner
    from penstock.store.jobs.script import Answer

_log = logging.getLogger(__name__)

QUEUE_CACHED_S = 1.0
"""How long a queue's settings are taken as they were."""

QUEUES_CACHED_MAX = 10_000

EVENT_BYTES = 1_024
"""What a published event counts for besides its data, so that not too many go into one transaction."""

_NEVER_MS = 2**63


class ScriptedJobs:
    """Jobs on one store. The port says what the verbs do."""

    def __init__(
        self,
        runner: Runner,
        *,
        ids: IdSource,
        limits: JobLimits | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._runner = runner
        self._around = Surroundings(ids, limits or JobLimits(), chance)
        self._known: dict[str, tuple[JobQueue, float]] = {}
        self._swept = sweeping.Progress()
        self._wall_seen_ms = _NEVER_MS
        """What the wall clock showed when schedules were last fired."""
        self._outlets: dict[tuple[int, int, str, tuple[str, ...]], Gathering[None, Offer | int | None]] = {}
        self._intakes: dict[tuple[int, int], Gathering[JobDraft, Enqueued | JobError]] = {}
        self._reports: Gathering[Report, Reported | JobError] = Gathering(
            self._report, width=runner.width, size_of=_report_size
        )
        self._statuses: Gathering[Lease, LeaseStatus] = Gathering(self._lease_statuses, width=runner.width)
        self._turns: dict[tuple[int, tuple[str, ...]], str] = {}
        """By queue id and tasks, the tenant that had its turn last, here. Only a hint."""
        self._under_way: set[asyncio.Future[Any]] = set()
        self._copies: WeakSet[ScriptedJobs] = WeakSet()

    def limited(self, limits: JobLimits) -> ScriptedJobs:
        """The same jobs, under other limits. They are closed with these."""
        copy = type(self)(self._runner, ids=self._around.ids, limits=limits, chance=self._around.chance)
        self._copies.add(copy)
        return copy

    @property
    def limits(self) -> JobLimits:
        return self._around.limits

    async def _run(self, verb: str, body: Body[Answer]) -> Answer:
        return await self._runner.run(verb, partial(closed, body=body, around=self._around))

    def listen(self, ready: Callable[[int, int], None], changed: Callable[[str], None]) -> None:
        self._runner.listen(ready, changed)

    def listen_heard(self, heard: Callable[[Lease], None]) -> None:
        self._runner.listen_heard(heard)

    def tell_heard(self, lease: Lease) -> None:
        self._runner.tell_heard(lease)

    def steps(self) -> Mapping[str, int]:
        return self._runner.steps()

    # -- queues -----------------------------------------------------------------------------------

    async def create_queue(self, name: str, settings: JobQueueSettings) -> tuple[JobQueue, bool]:
        queue, created = await self._run("create_queue", partial(queues.create, name=name, settings=settings))
        return self._know(queue), created

    async def find_queue(self, name: str) -> JobQueue:
        known = self.known_queue(name)
        if known is not None:
            return known
        return self._know(await self._run("find_queue", partial(queues.find, name=name)))

    def known_queue(self, name: str) -> JobQueue | None:
        known, until_s = self._known.get(name, (None, 0.0))
        return known if known is not None and asyncio.get_running_loop().time() < until_s else None

    async def list_queues(self, *, after: str = "", limit: int) -> list[JobQueue]:
        return await self._run("list_queues", partial(queues.page, after=after, limit=limit))

    async def save_queue(
        self,
        queue: JobQueue,
        *,
        settings: JobQueueSettings | None = None,
        paused: bool | None = None,
        call: str | None = None,
    ) -> JobQueue | None:
        body = partial(queues.save, queue=queue, settings=settings, paused=paused, call=call)
        saved = await self._run("save_queue", body)
        return None if saved is None else self._know(saved)

    async def delete_queue(self, queue: JobQueue) -> None:
        await self._run("delete_queue", partial(queues.delete, queue=queue))
        self._known.pop(queue.name, None)

    async def counts(self, queue: JobQueue) -> JobCounts:
        return await self._run("counts", partial(queues.counts, queue=queue))

    # -- the life of a job ------------------------------------------------------------------------

    async def enqueue(self, queue: JobQueue, drafts: Sequence[JobDraft]) -> list[Enqueued | JobError]:
        return await self._intake(queue).call(drafts)

    async def offer(
        self, queue: JobQueue, *, count: int, worker: str, tasks: tuple[str, ...] = (), turn: int | None = None
    ) -> Offers:
        # Offers of a turn are one call's own, so it does not share them with others of its worker.
        taking = (
            self._outlet(queue, worker, tasks).call if turn is None else partial(self._take, queue, worker, tasks, turn)
        )
        # In a task of its own: who is cancelled gets no offers, but some may have been made.
        task = asyncio.ensure_future(taking([None] * count))
        try:
            taken = await asyncio.shield(task)
        except asyncio.CancelledError:
            self._under_way.add(task)
            task.add_done_callback(self._take_back)
            raise
        return _offers(taken)

    def _outlet(self, queue: JobQueue, worker: str, tasks: tuple[str, ...]) -> Gathering[None, Offer | int | None]:
        """What gathers the free places of one worker. It fills each with an offer, or says when to ask again."""
        key = (queue.id, queue.revision, worker, tasks)
        outlet = self._outlets.get(key)
        if outlet is None:
            if len(self._outlets) >= QUEUES_CACHED_MAX:
                self._outlets = {key: outlet for key, outlet in self._outlets.items() if not outlet.idle}

            take = partial(self._take, queue, worker, tasks, None)
            outlet = self._outlets[key] = Gathering(take, width=self._runner.width)
        return outlet

    async def _take(
        self, queue: JobQueue, worker: str, tasks: tuple[str, ...], number: int | None, places: list[None]
    ) -> list[Offer | int | None]:
        turn = offering.Turn(queue, len(places), worker, self._turns.get((queue.id, tasks), ""), tasks, number)
        made = await self._run("offer", partial(offering.offer, around=self._around, turn=turn))
        if len(self._turns) >= QUEUES_CACHED_MAX:
            self._turns.clear()
        self._turns[queue.id, tasks] = turn.after
        return [*made.offers, *[made.next_in_ms] * (len(places) - len(made.offers))]

    async def offer_again(self, queues: Sequence[JobQueue], *, count: int, turn: int) -> list[Offer]:
        body = partial(offering.offer_again, around=self._around, queues=queues, turn=turn, count=count)
        return await self._run("offer_again", body)

    async def report(self, reports: Sequence[Report]) -> list[Reported | JobError]:
        return await self._reports.call(reports)

    def _intake(self, queue: JobQueue) -> Gathering[JobDraft, Enqueued | JobError]:
        """What gathers the drafts for a queue as it is now: its settings decide about them."""
        key = (queue.id, queue.revision)
        intake = self._intakes.get(key)
        if intake is None:
            if len(self._intakes) >= QUEUES_CACHED_MAX:
                self._intakes = {key: intake for key, intake in self._intakes.items() if not intake.idle}

            async def enqueue(drafts: list[JobDraft]) -> list[Enqueued | JobError]:
                body = partial(enqueueing.enqueue, around=self._around, queue=queue, drafts=drafts, written={})
                return await self._run("enqueue", body)

            intake = self._intakes[key] = Gathering(enqueue, width=self._runner.width, size_of=_draft_size)
        return intake

    async def leases(self, leases: Sequence[Lease]) -> list[LeaseStatus]:
        return await self._statuses.call(leases)

    async def _lease_statuses(self, leases: list[Lease]) -> list[LeaseStatus]:
        return await self._run("leases", partial(reading.lease_statuses, leases=leases))

    async def _report(self, reports: list[Report]) -> list[Reported | JobError]:
        return await self._run("report", partial(reporting.report, around=self._around, reports=reports))

    async def cancel(self, job_id: str, *, call: str | None = None) -> Job:
        event_id = self._event_id(call)
        body = partial(interventions.cancel, around=self._around, job_id=job_id, event_id=event_id)
        return _unless_refused(await self._run("cancel", body))

    async def retry(self, job_id: str, *, call: str | None = None) -> Job:
        event_id = self._event_id(call)
        body = partial(interventions.retry, around=self._around, job_id=job_id, event_id=event_id)
        return _unless_refused(await self._run("retry", body))

    def _event_id(self, call: str | None) -> str:
        """Name the event of a call that somebody repeats by what identifies it; no worker can publish one so named."""
        return self._around.ids.new_id() if call is None else OWN_ID + call

    async def advance(self) -> int | None:
        return await self._run("advance", partial(due.advance, around=self._around))

    async def close(self) -> None:
        """Wait for what was asked for, and until what was offered to nobody is taken back; refuse what comes."""
        for copy in list(self._copies):
            await copy.close()
        for intake in list(self._intakes.values()):
            await intake.close()
        for outlet in list(self._outlets.values()):
            await outlet.close()
        while self._under_way:
            await asyncio.wait(self._under_way)
        await self._reports.close()
        await self._statuses.close()

    def _take_back(self, taken: asyncio.Task[list[Offer | int | None]]) -> None:
        """Release what was offered to a caller who has gone. Should that fail, the offers end by themselves."""
        self._under_way.discard(taken)
        if taken.cancelled() or taken.exception() is not None or not _offers(taken.result()).offers:
            return
        releases = [Release(offer.lease, unaccepted=True) for offer in _offers(taken.result()).offers]
        released = asyncio.ensure_future(self.report(releases))
        self._under_way.add(released)
        released.add_done_callback(self._taken_back)

    def _taken_back(self, released: asyncio.Task[list[Reported | JobError]]) -> None:
        self._under_way.discard(released)
        if not released.cancelled() and released.exception() is not None:
            _log.warning("Offers whose caller went away could not be taken back: %s", released.exception())

    # -- reading ----------------------------------------------------------------------------------

    async def job(self, job_id: str) -> Job:
        return await self._run("job", partial(reading.job, around=self._around, job_id=job_id))

    async def jobs(self, wanted: JobFilter, *, before: int | None = None, limit: int) -> list[Job]:
        # Stretch by stretch, each a transaction of its own so that others go between. A page is filled up, so that how
        # long it is tells nothing about jobs that are not in it.
        jobs: list[Job] = []
        after: int | None = reading.POSITION_END if before is None else before
        bytes_left = reading.PAGE_BYTES_MAX
        while after is not None and len(jobs) < limit and bytes_left > 0:
            page = partial(reading.page, around=self._around, wanted=wanted)
            body = partial(page, before=after, limit=limit - len(jobs), bytes_max=bytes_left)
            found, after, bytes_left = await self._run("jobs", body)
            jobs += found
        return jobs

    async def dead_groups(self, queue: JobQueue, *, limit: int) -> list[DeadGroup]:
        rows_max = min(self._around.limits.list_rows_max, self._around.limits.groups_rows_max)
        groups: dict[tuple[str, str], DeadGroup] = {}
        before: int | None = reading.POSITION_END
        for _ in range(self._around.limits.groups_rows_max // rows_max):
            if before is None:
                break
            body = partial(reading.dead_tally, queue=queue, before=before, rows_max=rows_max)
            found, before = await self._run("dead_groups", body)
            for key, group in found.items():
                groups[key] = reading.joined(groups.get(key), group)
        return sorted(groups.values(), key=lambda group: (-group.count, group.task, group.kind))[:limit]

    # -- events -----------------------------------------------------------------------------------

    async def publish(self, lease: Lease, event_id: str, kind: str, data: bytes) -> JobEvent:
        body = partial(event_stream.publish, lease=lease, event_id=event_id, kind=kind, data=data)
        return await self._run("publish", body)

    async def events(self, job_id: str, *, after: int = 0, limit: int, wanted: EventFilter = ALL_EVENTS) -> Events:
        page = event_stream.Page(job_id, after, limit, wanted)
        return await self._run("events", partial(event_stream.read, around=self._around, page=page))

    # -- gathers ----------------------------------------------------------------------------------

    async def open_gather(self, new: NewGather, members: Sequence[NewMember], *, seal: bool) -> Filled:
        body = partial(gathers.open_gather, around=self._around, new=new, members=members, seal=seal)
        return await self._run("open_gather", body)

    async def fill_gather(self, gather_id: str, members: Sequence[NewMember], *, seal: bool) -> Filled:
        body = partial(gathers.fill_gather, around=self._around, gather_id=gather_id, members=members, seal=seal)
        return await self._run("fill_gather", body)

    async def gather(self, gather_id: str) -> Gather:
        return await self._run("gather", partial(gathers.find, gather_id=gather_id))

    async def cancel_gather(self, gather_id: str) -> Gather:
        return await self._run("cancel_gather", partial(gathers.cancel_gather, gather_id=gather_id))

    async def gather_results(self, gather_id: str, *, after: int = -1, limit: int) -> MemberPage:
        body = partial(gathers.results, gather_id=gather_id, after=after, limit=limit)
        return await self._run("gather_results", body)

    # -- schedules --------------------------------------------------------------------------------

    async def save_schedule(self, schedule: Schedule) -> Schedule:
        return await self._run("save_schedule", partial(schedules.save, schedule=schedule))

    async def schedule(self, name: str) -> Schedule:
        return await self._run("schedule", partial(schedules.find, name=name))

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        return await self._run("schedules", partial(schedules.page, after=after, limit=limit))

    async def delete_schedule(self, name: str) -> None:
        await self._run("delete_schedule", partial(schedules.delete, name=name, met=set()))

    async def fire_schedules(self) -> int | None:
        fired = await self._run("fire_schedules", partial(schedules.fire, around=self._around))
        if fired.wall_ms < self._wall_seen_ms:
            # The clock was set back, perhaps while no node ran.
            page = schedules.Planned(0, "")
            planned = 0
            while page.after is not None:
                body = partial(schedules.plan_again, after=page.after)
                page = await self._run("plan_schedules", body)
                planned += page.number
            if planned:
                fired = schedules.Fired(0, fired.wall_ms)
        self._wall_seen_ms = fired.wall_ms
        return fired.next_in_ms

    # -- operations -------------------------------------------------------------------------------

    async def start_operation(
        self,
        operation_id: str,
        kind: OperationKind,
        queue: JobQueue,
        wanted: JobFilter,
        rate: int | None,
        limit: int | None = None,
    ) -> Operation:
        asked = operations.Asked(operation_id, kind, queue, wanted, rate, limit)
        return await self._run("start_operation", partial(operations.start, around=self._around, asked=asked))

    async def operation(self, operation_id: str) -> Operation:
        return await self._run("operation", partial(operations.find, operation_id=operation_id))

    async def operations(self, queue: JobQueue, *, limit: int) -> list[Operation]:
        return await self._run("operations", partial(operations.page, queue=queue, limit=limit))

    async def cancel_operation(self, operation_id: str) -> Operation:
        return await self._run("cancel_operation", partial(operations.cancel, operation_id=operation_id))

    async def advance_operations(self) -> int | None:
        return await self._run("advance_operations", partial(operations.advance, around=self._around))

    # -- workers ----------------------------------------------------------------------------------

    async def note_workers(self, seen: Sequence[Worker], gone: Sequence[Worker], *, now_ms: int) -> None:
        body = partial(workers.note, around=self._around, seen=seen, gone=gone, now_ms=now_ms)
        await self._run("note_workers", body)

    async def workers(self, *, after: tuple[str, str] = ("", ""), limit: int, queue: str | None = None) -> list[Worker]:
        wanted = workers.Page(after, limit, queue)
        return await self._run("workers", partial(workers.page, around=self._around, wanted=wanted))

    # -- staged jobs: a store that users' transactions can reach does more -------------------------

    @property
    def stages(self) -> bool:
        return False

    def listen_staged(self, staged: Callable[[], None]) -> None:
        pass

    async def take_staged(self, read: ReadStaged, *, queue: str | None = None) -> Taken:  # noqa: ARG002 - as the port
        return Taken()

    async def staged_queue(self, job_id: str) -> str | None:  # noqa: ARG002 - as the port
        return None

    async def count_staged(self) -> StagedCounts:
        return StagedCounts()

    # -- upkeep -----------------------------------------------------------------------------------

    async def sweep(self) -> bool:
        return await self._run("sweep", partial(sweeping.sweep, around=self._around, progress=self._swept))

    def _know(self, queue: JobQueue) -> JobQueue:
        if len(self._known) >= QUEUES_CACHED_MAX:
            self._known.clear()
        known, _ = self._known.get(queue.name, (None, 0.0))
        if known is not None and known.id == queue.id and known.revision > queue.revision:
            # It was read before it was changed.
            return queue
        self._known[queue.name] = (queue, asyncio.get_running_loop().time() + QUEUE_CACHED_S)
        return queue


def _draft_size(draft: JobDraft) -> int:
    return len(draft.payload)


def _report_size(report: Report) -> int:
    if isinstance(report, Publish):
        return sum(EVENT_BYTES + len(event.data) for event in report.events)
    return len(report.result) if isinstance(report, Complete) else 0


def _unless_refused(answer: Job | JobStateConflict) -> Job:
    """Raise what a script returns because, raised there, it would have undone what else the script did."""
    if isinstance(answer, JobStateConflict):
        raise answer
    return answer


def _offers(taken: list[Offer | int | None]) -> Offers:
    """What became of the places of one call."""
    offers = [place for place in taken if place is not None and not isinstance(place, int)]
    next_in_ms = min((place for place in taken if isinstance(place, int)), default=None)
    return Offers(offers, next_in_ms)
