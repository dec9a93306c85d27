"""What every store does with jobs, in the words of the domain; `tests/conformance/jobs` holds each store to it.

The rules of `port` hold here too: a verb returns after its effects are durable, happens wholly or not at all, and takes
*now* from the store. Beyond that:

- Every verb may be repeated with the same arguments, since ids and leases are passed in: what was done is found done,
  and the same is answered. So a store repeats by itself a verb whose commit is unknown, and so may a caller who got
  `StoreUnavailable`.
- Verbs on several jobs judge each entry by itself: the answer has a value or a `JobError` for each, in order.
- What has come due (a delay, a backoff, an offer, a lease, a timeout) takes effect in whatever verb meets the job
  first; `advance` sees to it that none waits for that for long.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.domain.gather import Gather, MemberResult
from penstock.domain.job import EventFilter, Failure, Job, JobEvent, JobState, Lease, Offer
from penstock.domain.job_errors import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.domain.gather import NewGather, NewMember
    from penstock.domain.job import JobDraft
    from penstock.domain.job_limits import JobLimits
    from penstock.domain.job_queue import JobCounts, JobQueue, JobQueueSettings
    from penstock.domain.job_request import JobRequest
    from penstock.domain.operation import JobFilter, Operation, OperationKind
    from penstock.domain.schedule import Schedule
    from penstock.domain.worker import Worker


ENQUEUED = "enqueued"
FAILED_FOR_NOW = "failed for now"
FAILED_PERMANENTLY = "failed permanently"
TIMED_OUT = "timed out"
"""What is counted besides the moves of jobs."""


ALL_EVENTS = EventFilter()


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """What became of a draft. Where it is not `new`, the job is the one that has its id, or that its key or unique key
    stood for. One that was purged since counts as cancelled.
    """

    job_id: str
    state: JobState
    new: bool = True
    by_unique_key: bool = False
    replaced: str | None = None
    """The job with its unique key that was cancelled for it."""


class Offers(msgspec.Struct, frozen=True, gc=False):
    """What was offered. `next_in_ms` says, where that was less than asked for, in how long something comes due.

    It may be too early, never too late. None: nothing waits.
    """

    offers: list[Offer]
    next_in_ms: int | None = None


class Accept(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The worker begins an attempt."""

    lease: Lease


class Heartbeat(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The worker is alive: the lease lasts for the queue's `lease_ms` from now."""

    lease: Lease


class Complete(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The attempt succeeded. `result` is JSON text."""

    lease: Lease
    result: bytes = b"null"


class Fail(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The attempt failed."""

    lease: Lease
    failure: Failure


class Release(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The worker gives the job back, offered or running: due at once, and it costs no attempt.

    `unaccepted`: only if it is still offered. Once accepted it stays as it is, and is `JobStateConflict`.
    """

    lease: Lease
    unaccepted: bool = False


class Snooze(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The worker puts the job off: due in `delay_ms`, and it costs no attempt."""

    lease: Lease
    delay_ms: int


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event to be published. `data` is JSON text."""

    id: str
    kind: str
    data: bytes = b"null"


class Publish(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The worker publishes events, in this order: all are stored or none. A repeated id stores nothing twice."""

    lease: Lease
    events: tuple[NewEvent, ...]


Report = Accept | Heartbeat | Complete | Fail | Release | Snooze | Publish


class Reported(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a report led to. `until_ms`: the end of the lease where there still is one, else when the job is due."""

    state: JobState
    until_ms: int | None = None
    cancel_requested: bool = False
    attempt: int = 0
    lease_ms: int | None = None
    """What is left of the lease; None where there is none."""


class LeaseState(Enum):
    """Where the offer or the attempt of a lease stands."""

    OFFERED = "offered"
    RUNNING = "running"
    REPORTED = "reported"
    """Its worker ended it."""
    LAPSED = "lapsed"
    """Nothing came from its worker in time: the offer was not accepted, or there was no heartbeat."""
    OVER = "over"
    """Ended in another way: it timed out, it was cancelled, or the job is gone."""


class LeaseStatus(msgspec.Struct, frozen=True, gc=False):
    """Where a lease stands. While it is offered or running: when it lapses, and how long that is from now."""

    state: LeaseState
    until_ms: int = 0
    left_ms: int = 0


class Events(msgspec.Struct, frozen=True, gc=False):
    """Events of a job, and its state after the last of them if these are all that there are now (`complete`)."""

    events: list[JobEvent]
    state: JobState
    complete: bool
    after: int
    """The number of the last event that was looked at, whether it is among these or not."""


class DeadGroup(msgspec.Struct, frozen=True, gc=False):
    """Dead jobs of one task that died of the same kind of failure."""

    task: str
    kind: str
    count: int
    last_at_ms: int
    example_id: str


class Filled(msgspec.Struct, frozen=True, gc=False):
    """A gather after a call that was to add members, and what became of each, in order."""

    gather: Gather
    members: list[Enqueued | JobError]
    """Of one that was there before, it is not `new`."""
    created: bool = False


class MemberPage(msgspec.Struct, frozen=True, gc=False):
    """What members of a gather came to, and the index after which the others follow; None is the end."""

    results: list[MemberResult]
    after: int | None


ReadStaged = Callable[[str, str], "JobRequest"]
"""Makes a request of the text of a staged job and its id; raises `JobInvalid`. The store knows no wire format."""


class Taken(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a call of `take_staged` came to."""

    next_in_ms: int | None = None
    """In how many ms to call again. None: when something is staged."""
    due_in_ms: int | None = None
    """When something happens by itself, for the first time, to one of the jobs that were enqueued."""
    busy: bool = False
    """Nothing was taken because another node takes jobs of the same queue."""


class StagedCounts(msgspec.Struct, frozen=True, gc=False):
    """How many staged jobs are still to be enqueued, and how many were refused for good. Counted up to a limit."""

    waiting: int = 0
    refused: int = 0


class JobStore(Protocol):
    """The durable truth about jobs."""

    @property
    def limits(self) -> JobLimits:
        """The limits that the store was opened with; what uses it goes by the same."""

    def listen(self, ready: Callable[[int, int], None], changed: Callable[[str], None]) -> None:
        """Have `ready(queue_id, count)` called when jobs may have become offerable sooner than told, and
        `changed(id)` when a job has a new event or is finished, or a gather has continued or is cancelled.

        Both after the commit, on the event loop; other nodes' too, soon but not surely.
        """

    def listen_heard(self, heard: Callable[[Lease], None]) -> None:
        """Have `heard(lease)` called, on the event loop, when another node calls `tell_heard`; soon but not surely."""

    def tell_heard(self, lease: Lease) -> None:
        """Notify other nodes that a worker has reported on a lease that is over, which leaves no trace in the store."""

    def steps(self) -> Mapping[str, int]:
        """Tell what happened to jobs, and how often, by this node since the store was opened: the names of moves, and
        those above. A commit whose outcome was unknown for a while may be missing.
        """

    # -- queues -----------------------------------------------------------------------------------

    async def create_queue(self, name: str, settings: JobQueueSettings) -> tuple[JobQueue, bool]:
        """Create a queue and return it with True, or the one of this name, unchanged, with False."""

    async def find_queue(self, name: str) -> JobQueue:
        """Return a queue or raise `JobQueueDoesNotExist`. Cached: it may be a second behind other nodes."""

    def known_queue(self, name: str) -> JobQueue | None:
        """Return a queue if `find_queue` would tell of it without asking."""

    async def list_queues(self, *, after: str = "", limit: int) -> list[JobQueue]:
        """Return queues in the order of their names."""

    async def save_queue(
        self,
        queue: JobQueue,
        *,
        settings: JobQueueSettings | None = None,
        paused: bool | None = None,
        call: str | None = None,
    ) -> JobQueue | None:
        """Change a queue; None if its revision is not `queue.revision` any more.

        With a `call`, once within the repeat window: a repeat changes nothing and returns the queue as it is.
        """

    async def delete_queue(self, queue: JobQueue) -> None:
        """Delete a queue that has no job left and that no schedule feeds; else raises `JobStateConflict`."""

    async def counts(self, queue: JobQueue) -> JobCounts:
        """Count the jobs by state without walking over them."""

    # -- jobs -------------------------------------------------------------------------------------

    async def enqueue(self, queue: JobQueue, drafts: Sequence[JobDraft]) -> list[Enqueued | JobError]:
        """Store jobs, all in one transaction.

        In this order: a job of that id is there already, or was purged within the repeat window: that one, not `new`;
        or `JobExists` if its queue, task, tenant or payload is another. A known, unexpired idempotency key: the job it
        stands for, or `IdempotencyKeyReused` if the fingerprint differs. No key on a strict queue:
        `IdempotencyKeyNeeded`. An unfinished job with the unique key: that one, or if it waits and the draft is to
        replace it, it is cancelled and the draft judged without it. The bound and the rates: `JobRefused`; what is
        refused takes no token. On a strict queue bounds and rates are exact; otherwise nodes that enqueue at the same
        time may together go beyond the bound by what they have in flight.
        """

    async def offer(
        self, queue: JobQueue, *, count: int, worker: str, tasks: tuple[str, ...] = (), turn: int | None = None
    ) -> Offers:
        """Offer up to `count` jobs that are due, of these tasks if any are named, to one worker. Never waits.
        `offer_again` finds them by their `turn`.

        Tenants take turns; within a tenant the order is that of the instants at which jobs became due, less `aging_ms`
        for each step of priority. A lane lets as many go as it is wide, and a start rate as many as it has tokens.
        Nothing comes from a paused queue, nor past an open breaker. A cancelled call takes its offers back.
        """

    async def offer_again(self, queues: Sequence[JobQueue], *, count: int, turn: int) -> list[Offer]:
        """Offer again, under higher fences and for the whole of `offer_ms`, what was offered in a turn and is neither
        accepted nor over: up to `count` jobs, and as many as fit into an answer.
        """

    async def report(self, reports: Sequence[Report]) -> list[Reported | JobError]:
        """Take in what workers say, each in its own right, in order, all in one transaction.

        A lease that is over is `LeaseLost` and changes nothing; one that is unknown is `JobDoesNotExist`. The
        repetition of a report that ended its attempt is answered as the first time. An attempt that ran beyond its
        timeout is over. Whatever ends an attempt of a job whose cancellation was asked for makes it cancelled, except
        success. Events that a job cannot have are `TooManyEvents` or `JobInvalid`. Events that were published before
        are acknowledged again, also under a lease that is over.
        """

    async def leases(self, leases: Sequence[Lease]) -> list[LeaseStatus]:
        """Return where leases stand, in order. Changes nothing.

        One that is neither offered nor running is over for good: no report under it will be accepted.
        """

    async def cancel(self, job_id: str, *, call: str | None = None) -> Job:
        """Cancel a job at once; or, if it runs, ask its worker to stop. Raises `JobStateConflict` if it is finished
        otherwise. With a `call`, once: a repeat changes nothing and returns the job as it is.
        """

    async def retry(self, job_id: str, *, call: str | None = None) -> Job:
        """Queue a dead or cancelled job again with fresh budgets, or one that waits, now. Else `JobStateConflict`. With
        a `call`, once, as `cancel`.
        """

    async def job(self, job_id: str) -> Job:
        """Return a job with its attempts, or raise `JobDoesNotExist`."""

    async def jobs(self, wanted: JobFilter, *, before: int | None = None, limit: int) -> list[Job]:
        """Return jobs, the newest first, with positions below `before`. Fewer than `limit` are all there are, or as
        many as fit into a page; an empty list is the end. Raises `JobQueueDoesNotExist` if the filter names a queue
        that is not there.
        """

    async def dead_groups(self, queue: JobQueue, *, limit: int) -> list[DeadGroup]:
        """Group the dead jobs of a queue by task and kind of failure, the most frequent first."""

    # -- events -----------------------------------------------------------------------------------

    async def publish(self, lease: Lease, event_id: str, kind: str, data: bytes) -> JobEvent:
        """Add an event for the attempt that runs under this lease; raises `LeaseLost` or `TooManyEvents`."""

    async def events(self, job_id: str, *, after: int = 0, limit: int, wanted: EventFilter = ALL_EVENTS) -> Events:
        """Return up to `limit` of a job's events from the first beyond `after`; raises `JobDoesNotExist`.

        One call looks at a bounded number of events and bytes, so it may return fewer, or none, without being
        `complete`.
        """

    # -- gathers ----------------------------------------------------------------------------------

    async def open_gather(self, new: NewGather, members: Sequence[NewMember], *, seal: bool) -> Filled:
        """Open a gather with its first members, all in one transaction; or go on with the one of this id.

        Raises `GatherExists` if that one is another's or was opened otherwise, and `JobExists` if the continuation's id
        is a job's already. Once it is sealed and its members have ended as its error policy wants it, the continuation
        is enqueued, once, in the transaction in which the last of them ends; bounds and rates do not apply to it. In a
        chain it is the only member of the gather that follows, which waits for it from then on.
        """

    async def fill_gather(self, gather_id: str, members: Sequence[NewMember], *, seal: bool) -> Filled:
        """Add members to a gather, all in one transaction, or raise `GatherDoesNotExist`.

        Each is judged as by `enqueue`, and besides: the same job at the same place is a repetition, another one is
        `JobExists`, and so is one that is no new job. `JobStateConflict` if the gather takes no members any more. With
        `seal` the gather is sealed if all members of this call are there, and none below the last place is missing.
        """

    async def gather(self, gather_id: str) -> Gather:
        """Return a gather or raise `GatherDoesNotExist`."""

    async def cancel_gather(self, gather_id: str) -> Gather:
        """Let the continuation never run, nor what follows it in a chain; members go on. Raises `JobStateConflict` if
        it has ended otherwise.
        """

    async def gather_results(self, gather_id: str, *, after: int = -1, limit: int) -> MemberPage:
        """Return what members came to from the first beyond `after`, at most as many as fit into a page."""

    # -- schedules --------------------------------------------------------------------------------

    async def save_schedule(self, schedule: Schedule) -> Schedule:
        """Create a schedule or replace the one of its name; it next fires at the first instant after now.

        Raises `ScheduleInvalid` or `JobQueueDoesNotExist`.
        """

    async def schedule(self, name: str) -> Schedule:
        """Return a schedule or raise `ScheduleDoesNotExist`."""

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        """Return schedules in the order of their names."""

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule or raise `ScheduleDoesNotExist`."""

    async def fire_schedules(self) -> int | None:
        """Enqueue what is due, each once however many nodes do this, and say in how many ms the next is; None: never.

        Instants that passed while nobody looked fire once, not once each. Bounds and rates do not apply.
        """

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
        """Begin to do something to the jobs of a queue that match, of those that there are now: to all of them, or to
        the oldest, up to `limit`. The same id again is the same operation, within the repeat window at least.
        """

    async def operation(self, operation_id: str) -> Operation:
        """Return an operation, with its progress, or raise `OperationDoesNotExist`."""

    async def operations(self, queue: JobQueue, *, limit: int) -> list[Operation]:
        """Return the operations of a queue, the newest first."""

    async def cancel_operation(self, operation_id: str) -> Operation:
        """Stop an operation; one that ended already is returned as it is."""

    async def advance_operations(self) -> int | None:
        """Do one bounded step of each that is due; say in how many ms the next is due, None if none runs."""

    # -- workers ----------------------------------------------------------------------------------

    async def note_workers(self, seen: Sequence[Worker], gone: Sequence[Worker], *, now_ms: int) -> None:
        """Keep workers that a node has seen, for all nodes to see, and remove those that are gone.

        Their instants are by the caller's clock, which shows `now_ms`. Also removes a bounded number of workers that no
        node has seen for `limits.worker_stale_ms`. What is kept does not survive a crash of the database.
        """

    async def workers(self, *, after: tuple[str, str] = ("", ""), limit: int, queue: str | None = None) -> list[Worker]:
        """Return workers, of all queues or of one, in the order of name and id, beyond `after`.

        Those that no node has seen for `limits.worker_stale_ms` are not among them.
        """

    # -- jobs that users' transactions have staged ------------------------------------------------

    @property
    def stages(self) -> bool:
        """Whether there can be staged jobs. Where not, the verbs below find none."""

    def listen_staged(self, staged: Callable[[], None]) -> None:
        """Have `staged` called, on the event loop, when a transaction that staged jobs has been committed; soon but not
        surely.
        """

    async def take_staged(self, read: ReadStaged, *, queue: str | None = None) -> Taken:
        """Enqueue a bounded number of staged jobs, of one queue, in their order, as `enqueue` does.

        Each is removed from the staged ones in the transaction that enqueues it. Delays and expiries count from when it
        was staged. What is refused for now (`JobRefused`) is tried again later; what is refused for good stays, with
        the reason, and is logged. Any number of nodes may do this at once.
        """

    async def staged_queue(self, job_id: str) -> str | None:
        """Return the queue of a job that is staged, committed and still to be enqueued."""

    async def count_staged(self) -> StagedCounts:
        """Count staged jobs."""

    # -- upkeep -----------------------------------------------------------------------------------

    async def advance(self) -> int | None:
        """Give effect to what has come due, a bounded number; say in how many ms to call again, None: nothing waits."""

    async def sweep(self) -> bool:
        """Remove a bounded number of finished jobs past their retention, of expired keys, empty lanes, old
        operations and old gathers, and let gathers expire; say whether there is more.
        """
