"""A state machine of long polls: sends, settlements, leases that run out, deadlines, and clients that go away."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.domain.failpoints import Failpoints
from penstock.domain.limits import Limits
from penstock.domain.queue import QueueAttributes
from penstock.domain.sending import Outgoing, accept
from penstock.engine.engine import Engine
from penstock.engine.messages import Delivery as Received
from penstock.store.port import Leased, Store
from penstock.testing import CountedIds, ManualClock
from tests.simulation.calls import Call, weighted
from tests.simulation.model import Delivery, Model, ModelMessage, ModelQueue
from tests.support.queues import queue_name

if TYPE_CHECKING:
    from tests.support.stores import Opener

T = TypeVar("T")

NAMES = ("polled", "polled.fifo")
LIMITS = Limits()
TURNS = 20
"""Turns of the event loop without a call to the store after which nothing more is going to happen by itself."""
GRACE_S = 10.0
"""How long a wake-up may be on its way through a database."""
LOOKS_PER_POLL_MAX = 4

which = st.integers(0, 1)
picks = st.integers(0, 2**16)
lease_times = st.sampled_from((1_000, 5_000, 30_000, 0))
batches = st.lists(
    st.tuples(st.sampled_from(("a", "a", "b", "c")), st.sampled_from((0, 0, 0, 2))), min_size=1, max_size=4
)
"""Groups, each with a delay in seconds."""

calls = weighted(
    {
        "poll": (
            6,
            {
                "on": which,
                "count": st.sampled_from((1, 1, 2, 10)),
                "lease_ms": lease_times,
                "wait_s": st.sampled_from((1, 5, 20)),
                "polls": st.integers(1, 3),
            },
        ),
        "send": (5, {"on": which, "batch": batches}),
        "send_while_polls_arrive": (
            4,
            {
                "on": which,
                "batch": batches,
                "polls": st.integers(1, 3),
                "turns": st.integers(0, 8),
                "polls_first": st.booleans(),
            },
        ),
        "delete": (3, {"pick": picks}),
        "change_visibility": (2, {"pick": picks, "lease_ms": lease_times}),
        "release": (2, {"pick": picks}),
        "a_waiting_client_goes_away": (1, {"pick": picks}),
        "a_client_goes_away_at_its_next_look": (1, {}),
        "time_passes": (5, {"ms": st.sampled_from((1, 1_000, 2_000, 5_000, 30_000))}),
    }
)


class Watched:
    """A store that knows how many calls it has under way, and can have a caller go away at its next look."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.under_way = 0
        self.looks = 0
        self.cancel_next_look = False
        self.looking: set[asyncio.Task[Any]] = set()
        self.beside: defaultdict[asyncio.Task[Any], set[asyncio.Task[Any]]] = defaultdict(set)
        """Who looked at the same time as whom."""

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.store, name)
        if not inspect.iscoroutinefunction(member):
            return member

        async def call(*arguments: Any, **options: Any) -> Any:
            self.under_way += 1
            task = asyncio.current_task()
            assert task is not None
            try:
                if name == "lease":
                    self.look(task)
                return await member(*arguments, **options)
            finally:
                self.under_way -= 1
                self.looking.discard(task)

        return call

    def look(self, task: asyncio.Task[Any]) -> None:
        self.looks += 1
        self.beside[task] |= self.looking
        for other in self.looking:
            self.beside[other].add(task)
        self.looking.add(task)
        if self.cancel_next_look:
            self.cancel_next_look = False
            task.cancel()


@dataclass(eq=False)
class Poll:
    """A receive that may wait. Polls of one burst are started at once, so their order of arrival is open."""

    on: ModelQueue
    count: int
    lease_ms: int
    deadline_ms: int
    burst: int
    task: asyncio.Task[list[Received]]


class WaitingMachine(RuleBasedStateMachine):
    """Whenever all is quiet, no message is leasable where a poll waits, and no poll is past its deadline."""

    place: ClassVar[Callable[[], tuple[Opener, Callable[[], None]]]]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.opener, self.remove = type(self).place()
        self.clock = ManualClock()
        self.ids = CountedIds()
        self.model = Model(self.clock, LIMITS)
        self.polls: list[Poll] = []
        """Those that wait, in the order of their arrival."""
        self.deliveries: list[tuple[Delivery, str]] = []
        self.bursts = 0
        self.bodies = 0

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(call, timeout=20))

    @initialize()
    def open(self) -> None:
        opened = self.opener(clock=self.clock, ids=self.ids, limits=LIMITS, failpoints=Failpoints())
        self.store = Watched(self.run(opened))
        store = cast("Store", self.store)
        for text in NAMES:
            queue, _ = self.run(store.create_queue(queue_name(text), QueueAttributes(), {}))
            self.model.queues.append(ModelQueue(queue))
        self.engine = Engine(store, clock=self.clock, ids=self.ids, limits=LIMITS)

    def teardown(self) -> None:
        try:
            if self.model.queues:
                self.run(self.close())
        finally:
            self.loop.close()
            self.remove()

    async def close(self) -> None:
        self.engine.end_waits()
        await asyncio.gather(*(poll.task for poll in self.polls), return_exceptions=True)
        await self.store.close()

    # -- rules ------------------------------------------------------------------------------------

    @rule(call=calls)
    def happen(self, call: Call) -> None:
        name, arguments = call
        getattr(self, name)(**arguments)

    def poll(self, on: int, count: int, lease_ms: int, wait_s: int, polls: int) -> None:
        for _ in range(polls):
            self.bursts += 1
            self.start(on, count, lease_ms, wait_s)
            self.run(self.settle())

    def start(self, on: int, count: int, lease_ms: int, wait_s: int) -> None:
        kept = self.model.queues[on]
        receive = self.engine.messages.receive(kept.queue.name, count=count, lease_ms=lease_ms, wait_ms=wait_s * 1_000)
        deadline_ms = self.clock.now_ms() + wait_s * 1_000
        task = self.loop.create_task(receive)
        self.polls.append(Poll(kept, count, lease_ms, deadline_ms, self.bursts, task))

    def send(self, on: int, batch: list[tuple[str, int]]) -> None:
        self.run(self.send_now(on, batch))

    async def send_now(self, on: int, batch: list[tuple[str, int]]) -> None:
        kept = self.model.queues[on]
        outgoing = [self.outgoing(kept, group, delay_s) for group, delay_s in batch]
        answer = await self.engine.messages.send_batch(kept.queue.name, outgoing)
        drafts = [
            accept(kept.queue, message, message_id=getattr(result, "message_id", ""), sender="", limits=LIMITS)
            for message, result in zip(outgoing, answer, strict=True)
        ]
        self.model.append(kept, drafts, None, answer)

    def outgoing(self, kept: ModelQueue, group: str, delay_s: int) -> Outgoing:
        self.bodies += 1
        body = f"m{self.bodies}"
        if kept.queue.fifo:
            return Outgoing(body=body, group=group, deduplication_id=body)
        return Outgoing(body=body, group=group, delay_s=delay_s)

    def send_while_polls_arrive(
        self, on: int, batch: list[tuple[str, int]], polls: int, turns: int, polls_first: bool
    ) -> None:
        """Start it all at once, so that sends are committed between a poll's look and its wait."""
        self.run(self.burst(on, batch, polls, turns, polls_first=polls_first))

    async def burst(self, on: int, batch: list[tuple[str, int]], polls: int, turns: int, *, polls_first: bool) -> None:
        self.bursts += 1
        sending = None if polls_first else asyncio.create_task(self.send_now(on, batch))
        for _ in range(polls):
            for _ in range(turns):
                await asyncio.sleep(0)
            self.start(on, 1, 5_000, 5)
        for _ in range(turns):
            await asyncio.sleep(0)
        await (sending or self.send_now(on, batch))

    def delete(self, pick: int) -> None:
        if not self.deliveries:
            return
        delivery, handle = self.deliveries.pop(pick % len(self.deliveries))
        [answer] = self.run(self.engine.messages.delete(delivery.to.queue.name, [handle]))
        assert (None if answer is None else type(answer)) in self.model.delete(delivery)

    def change_visibility(self, pick: int, lease_ms: int) -> None:
        if not self.deliveries:
            return
        delivery, handle = self.deliveries[pick % len(self.deliveries)]
        name = delivery.to.queue.name
        [answer] = self.run(self.engine.messages.change_visibility(name, [(handle, lease_ms)]))
        assert (None if answer is None else type(answer)) in self.model.change_visibility(delivery, lease_ms)

    def release(self, pick: int) -> None:
        if not self.deliveries:
            return
        delivery, _ = self.deliveries.pop(pick % len(self.deliveries))
        self.run(self.store.release(delivery.to.queue, [delivery.receipt]))
        self.model.release([delivery])

    def a_waiting_client_goes_away(self, pick: int) -> None:
        if self.polls:
            self.polls[pick % len(self.polls)].task.cancel()

    def a_client_goes_away_at_its_next_look(self) -> None:
        self.store.cancel_next_look = True

    def time_passes(self, ms: int) -> None:
        """Go from one instant at which something must happen to the next, and let all come to rest at each."""
        until_ms = self.clock.now_ms() + ms
        while self.clock.now_ms() < until_ms:
            now_ms = self.clock.now_ms()
            instants = [poll.deadline_ms for poll in self.polls]
            instants += [m.visible_at_ms for kept in self.model.queues for m in kept.messages if m.hidden(now_ms)]
            self.run(self.clock.advance(ms=min([*instants, until_ms]) - now_ms))
            self.all_is_well()

    # -- what must hold whenever all is quiet -----------------------------------------------------

    @invariant()
    def all_is_well(self) -> None:
        if self.model.queues:
            self.run(self.settle())

    async def settle(self) -> None:
        self.store.looks = 0
        waiting = len(self.polls)
        await self.rest()
        self.adopt()
        for kept in self.model.queues:
            while kept.leasable(self.clock.now_ms()) and (polls := [p.task for p in self.polls if p.on is kept]):
                done, _ = await asyncio.wait(polls, timeout=GRACE_S, return_when=asyncio.FIRST_COMPLETED)
                assert done, f"{kept.queue.name.name}: a poll waits although a message is there"
                await self.rest()
                self.adopt()
        assert self.store.looks <= LOOKS_PER_POLL_MAX * (waiting + 1), "polls look without being woken"
        assert all(poll.deadline_ms > self.clock.now_ms() for poll in self.polls), "a poll waits past its deadline"

    async def rest(self) -> None:
        """Let the event loop run until nobody has called the store for a while."""
        quiet = 0
        while quiet < TURNS:
            await asyncio.sleep(0)
            quiet = 0 if self.store.under_way else quiet + 1

    def adopt(self) -> None:
        """Take over what polls have ended with."""
        ended = [poll for poll in self.polls if poll.task.done()]
        self.polls = [poll for poll in self.polls if not poll.task.done()]
        for poll in ended:
            if poll.task.cancelled():
                # What it had leased was released; whether that was the first receive is left open.
                for message in poll.on.messages:
                    message.first_received_at_ms.add(self.clock.now_ms())
        answered = [poll for poll in ended if not poll.task.cancelled()]
        for poll in _in_order(answered):
            self.adopt_one(poll, poll.task.result())
        for poll in answered:
            if not poll.task.result():
                assert poll.deadline_ms == self.clock.now_ms(), "a poll ended before its deadline with nothing"
                assert not self.left_alone(poll.on), "a poll left without the message that was there"

    def left_alone(self, on: ModelQueue) -> list[ModelMessage]:
        """Return what could be leased all the time: not what somebody took for no time at this very instant."""
        now_ms = self.clock.now_ms()
        taken = [message for message in on.messages if message.leased_at_ms == now_ms]
        groups = {message.group for message in taken} if on.queue.fifo else set()
        return [m for m in on.leasable(now_ms) if m not in taken and m.group not in groups]

    def adopt_one(self, poll: Poll, received: list[Received]) -> None:
        if not received:
            return
        in_line = [other for other in self.polls if other.on is poll.on and other.burst < poll.burst]
        # A poll that comes while the first in line looks does so too, and what is sent meanwhile may be for either.
        overtaken = [other for other in in_line if other.task not in self.store.beside[poll.task]]
        # At its deadline a poll takes a last look, whoever else waits.
        assert not overtaken or poll.deadline_ms == self.clock.now_ms(), "an earlier poll still waits"
        # How many a poll gets of what a burst sends meanwhile is open: 0 says that it may be fewer than there are.
        answer = Leased([delivery.message for delivery in received], 0)
        deliveries, _ = self.model.lease(poll.on, poll.count, poll.lease_ms, None, answer)
        self.deliveries += zip(deliveries, [delivery.handle for delivery in received], strict=True)


def _in_order(polls: list[Poll]) -> list[Poll]:
    """Put polls that ended at one instant in the order of their leases: one of no time may be followed by another."""
    left, ordered = list(polls), []
    while left:
        receipts = [{d.message.body: d.message.receipt for d in poll.task.result()} for poll in left]
        first = next(
            number
            for number, own in enumerate(receipts)
            if all(other.get(body, receipt) >= receipt for body, receipt in own.items() for other in receipts)
        )
        ordered.append(left.pop(first))
    return ordered
