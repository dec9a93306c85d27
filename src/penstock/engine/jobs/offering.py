"""Offering: workers wait in line for jobs, and what is offered to one who left goes back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from penstock.domain.job_errors import JobQueueDoesNotExist
from penstock.domain.job_request import check_name, check_range, check_tasks
from penstock.domain.repeats import turn_of
from penstock.engine.jobs.unanswered import Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.job import Lease, Offer
    from penstock.domain.job_limits import JobLimits
    from penstock.domain.job_queue import JobQueue
    from penstock.engine.jobs.queues import JobQueues
    from penstock.engine.jobs.returns import Returns
    from penstock.engine.jobs.workers import Workers
    from penstock.engine.waiters import Ticket, Waiters
    from penstock.store.job_port import JobStore

STRETCH_FIRST = 16
STRETCH_MAX = 100
QUEUES_KNOWN_MAX = 10_000


class Wanted(NamedTuple):
    """Who asks for jobs, of which tasks (none named means all), and in which turn, if the call may be repeated."""

    worker: str
    tasks: tuple[str, ...] = ()
    turn: int | None = None


class Offering:
    """The long poll for jobs. `expect` is called with how long, in ms, offers may stay unaccepted."""

    def __init__(
        self,
        store: JobStore,
        queues: JobQueues,
        waiters: Waiters,
        returns: Returns,
        workers: Workers,
        clock: Clock,
        limits: JobLimits,
        expect: Callable[[int], None],
    ) -> None:
        self._store = store
        self._queues = queues
        self._waiters = waiters
        self._returns = returns
        self._workers = workers
        self._clock = clock
        self._limits = limits
        self._expect = expect
        self._turn = 0
        self._stretches = _Stretches()
        self._unanswered = Unanswered(clock)
        self._tries: dict[int, object] = {}
        """By turn, the last try of a call that waits here."""

    @property
    def closed(self) -> bool:
        """Whether nobody may wait any more, because the service stops."""
        return self._waiters.closed

    async def poll(
        self,
        names: Sequence[str],
        *,
        count: int,
        worker: str = "",
        wait_ms: int = 0,
        tasks: Sequence[str] = (),
        call: str | None = None,
    ) -> list[Offer]:
        """Offer up to `count` jobs of these queues; with none at hand, wait for one until `wait_ms` has passed.

        With `tasks` only jobs of these are offered. The same `call` again, because its answer was lost, is first
        offered anew what is left of the first try's offers. A try that still waits here leaves what comes to the later
        one.

        Polls are served in the order of arrival. What a cancelled one was offered is given back. One that was begun
        before an offer to another poll of this worker lapsed is offered nothing: where there is a job for it, it ends
        empty, and the job goes to the next in line. So a worker that hangs with many polls open keeps a job from
        others once, not once for each poll; and one that does not hang polls again.
        """
        check_range("count", count, 1, self._limits.offers_max)
        check_range("wait_ms", wait_ms, 0, self._limits.poll_wait_ms_max)
        if worker:
            check_name("worker", worker, self._limits)
        turn = None if call is None else turn_of(call)
        wanted = Wanted(worker, check_tasks(tasks, self._limits), turn)
        queues = await self._in_turn(names)
        began_ms = self._clock.now_ms()
        poll = self._workers.polling(worker, names, count=count, tasks=wanted.tasks or None)
        try:
            if turn is not None:
                offers = await self._offer_again(queues, count, turn)
                if offers:
                    self._unanswered.offered_again(worker, offers)
                    return offers
            if wait_ms == 0:
                offers = await self._look(queues, count, wanted)
            else:
                with self._latest_try(turn) as is_latest:

                    def room() -> int:
                        return count if is_latest() and not self._unanswered.lapsed_since(worker, began_ms) else 0

                    offers = await self._wait(queues, room, wanted, began_ms + wait_ms)
        finally:
            poll.end()
        if wait_ms and self._unanswered.lapsed_before(worker, offers):
            self._returns.give_back(offers)
            return []
        self._unanswered.offered(worker, offers)
        return offers

    @contextlib.contextmanager
    def _latest_try(self, turn: int | None) -> Iterator[Callable[[], bool]]:
        """Note that a poll waits, and yield what tells whether no later try of the same call waits here."""
        this = object()
        if turn is not None:
            self._tries[turn] = this
        try:
            yield lambda: turn is None or self._tries.get(turn) is this
        finally:
            if turn is not None and self._tries.get(turn) is this:
                del self._tries[turn]

    async def wait(
        self, names: Sequence[str], *, room: Callable[[], int], wanted: Wanted, until_ms: int
    ) -> list[Offer]:
        """Wait for jobs until an instant, as a poll does. `room` says at each look how many may be offered.

        Ends without offers once that is 0.
        """
        return await self._wait(await self._in_turn(names), room, wanted, until_ms)

    async def offer_again(self, names: Sequence[str], *, count: int, turn: int) -> list[Offer]:
        """Offer anew what was offered in a turn and not accepted."""
        return await self._offer_again(await self._in_turn(names), count, turn)

    async def _offer_again(self, queues: list[JobQueue], count: int, turn: int) -> list[Offer]:
        # In one order, or two repeats of a call could wait for each other's locks.
        in_order = sorted(queues, key=lambda queue: queue.id)
        offers = await self._store.offer_again(in_order, count=count, turn=turn)
        if offers:
            self._expect(min(queue.settings.offer_ms for queue in queues))
        return offers

    def answered(self, lease: Lease) -> None:
        """Take in that a worker has reported on an offer or what became of it."""
        self._unanswered.forget([lease])

    def give_back(self, offers: Sequence[Offer]) -> None:
        """Give back, in the background, what did not reach its worker."""
        self._unanswered.forget(offer.lease for offer in offers)
        self._returns.give_back(offers)

    async def _in_turn(self, names: Sequence[str]) -> list[JobQueue]:
        """Find queues, not always the first one first, or it would starve the others."""
        queues = [await self._queues.find_or_create(name) for name in dict.fromkeys(names)]
        self._turn += 1
        turn = self._turn % len(queues)
        return queues[turn:] + queues[:turn]

    async def _wait(
        self, queues: list[JobQueue], room: Callable[[], int], wanted: Wanted, deadline_ms: int
    ) -> list[Offer]:
        with contextlib.ExitStack() as stack:
            tickets = {queue.id: stack.enter_context(self._waiters.ticket(queue.id, wanted.tasks)) for queue in queues}
            while True:
                signalled = await self._signalled(tickets, deadline_ms)
                count = room()
                if count == 0:
                    # A signal is for somebody else, also one that came together with the deadline.
                    for queue in queues:
                        self._waiters.pass_on(queue.id, wanted.tasks)
                    return []
                # At the deadline there is one last look: what came due at that very instant is still in time.
                worth = [queue for queue in queues if queue.id in signalled] or queues
                offers = await self._look(worth, count, wanted)
                if offers or not signalled or self._waiters.closed:
                    return offers

    async def _signalled(self, tickets: dict[int, Ticket], deadline_ms: int) -> set[int]:
        """Wait until a look at some of the queues is worth while, and tell which; none at the deadline."""
        if len(tickets) == 1:
            ((queue_id, ticket),) = tickets.items()
            return {queue_id} if await ticket.wait(self._clock, deadline_ms) else set()
        waits = {
            asyncio.ensure_future(ticket.wait(self._clock, deadline_ms)): queue_id
            for queue_id, ticket in tickets.items()
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A wait that is cancelled keeps its signal.
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return {queue_id for wait, queue_id in waits.items() if not wait.cancelled() and wait.result()}

    async def _look(self, queues: list[JobQueue], count: int, wanted: Wanted) -> list[Offer]:
        offers: list[Offer] = []
        room_bytes = self._limits.offered_bytes_max
        try:
            for queue in queues:
                if len(offers) == count or room_bytes <= 0:
                    # A signal that came for this one is not used up by us, so somebody else may have it.
                    self._waiters.pass_on(queue.id, wanted.tasks)
                while len(offers) < count and room_bytes > 0:
                    stretch = min(count - len(offers), self._stretches.fitting(queue.id, room_bytes))
                    found = await self._offer(queue, stretch, wanted)
                    offers += found
                    room_bytes -= self._stretches.note(queue.id, found)
                    if len(found) < stretch:
                        break
        except BaseException:
            # One queue failed or the worker left: what another queue gave must not be left lying.
            self._returns.give_back(offers)
            raise
        return offers

    async def _offer(self, queue: JobQueue, count: int, wanted: Wanted) -> list[Offer]:
        queue = await self._same(queue)
        since_ms = self._clock.now_ms()
        found = await self._store.offer(queue, count=count, worker=wanted.worker, tasks=wanted.tasks, turn=wanted.turn)
        offer_ms = queue.settings.offer_ms
        if found.offers:
            self._expect(offer_ms)
        self._waiters.looked(
            queue.id,
            wanted.tasks,
            since_ms=since_ms,
            asked=count,
            found=len(found.offers),
            hides_ms=offer_ms,
            next_in_ms=found.next_in_ms,
        )
        return found.offers

    async def _same(self, queue: JobQueue) -> JobQueue:
        """Return the queue as it is now, and refuse another one that took its name meanwhile."""
        now = await self._store.find_queue(queue.name)
        if now.id != queue.id:
            raise JobQueueDoesNotExist(f"The queue {queue.name!r} was deleted.")
        return now


class _Stretches:
    """How many jobs of a queue are asked for in one go, judged by the size of those before.

    Sizes are known only of what was offered; so a queue is begun with a few, and never are there more than
    `STRETCH_MAX`: this bounds what a queue can surprise with.
    """

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}

    def fitting(self, queue_id: int, room_bytes: int) -> int:
        """How many to ask for where this much payload has room."""
        size_bytes = self._sizes.get(queue_id)
        return STRETCH_FIRST if size_bytes is None else max(1, min(STRETCH_MAX, room_bytes // size_bytes))

    def note(self, queue_id: int, offers: Sequence[Offer]) -> int:
        """Take in what was offered, and return how much payload that is."""
        if not offers:
            return 0
        sizes = [len(offer.payload) for offer in offers]
        if len(self._sizes) >= QUEUES_KNOWN_MAX:
            self._sizes.clear()
        # What was large lately may come again; it is forgotten bit by bit.
        known = self._sizes.get(queue_id, 0)
        self._sizes[queue_id] = max(*sizes, known - known // 8, 1)
        return sum(sizes)
