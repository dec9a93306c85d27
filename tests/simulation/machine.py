"""A state machine that does at random what callers, operators and time do, to a store and to the model at once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.domain.errors import MoveTaskDoesNotExist, PenstockError, PurgeInProgress, UnsupportedOperation
from penstock.domain.failpoints import Failpoints
from penstock.domain.limits import Limits
from penstock.domain.message import Draft, Receipt, Refused, VisibilityChange
from penstock.domain.queue import DeduplicationScope, Queue, QueueAttributes, RedrivePolicy
from penstock.store.port import Leased, Store
from penstock.testing import CountedIds, ManualClock
from tests.simulation.calls import LEASE_MS, Call, calls, retentions
from tests.simulation.consumers import Answered, Consumers, Receive
from tests.simulation.model import Delivery, Model, ModelMessage, ModelQueue
from tests.simulation.moves import ModelMoves
from tests.support.queues import attempt_key, queue_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.stores import Opener

T = TypeVar("T")

NAMES = ("work", "work-dead", "work.fifo", "work-dead.fifo")
LIMITS = Limits(sweep_rows_max=20)
LOOK_COUNT = 10_000
SWEEPS_MAX = 1_000


class StoreMachine(RuleBasedStateMachine):
    """Every rule calls the store, shows the answer to the model, and asserts that the two still agree."""

    place: ClassVar[Callable[[], tuple[Opener, Callable[[], None]]]]
    """Makes an empty place for a store, and what removes it again."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.opener, self.remove = type(self).place()
        self.clock = ManualClock()
        self.ids = CountedIds()
        self.model = Model(self.clock, LIMITS)
        self.moves = ModelMoves(self.model)
        self.deliveries: list[Delivery] = []
        self.send_attempts: list[bytes] = []
        self.consumers = Consumers()
        self.ready: set[int] = set()
        self.told_at_ms: dict[int, float] = {}
        """By queue id: when an empty receive was told to look again, as long as nobody was woken since."""
        self.bodies = 0
        self.store: Store | None = None
        self.secret = b""

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(call, timeout=20))

    def open(self) -> None:
        opened = self.opener(clock=self.clock, ids=self.ids, limits=LIMITS, failpoints=Failpoints())
        self.store = self.run(opened)
        self.told_at_ms.clear()
        self.store.listen(self.tell_ready)

    @property
    def opened(self) -> Store:
        assert self.store is not None
        return self.store

    def teardown(self) -> None:
        try:
            if self.store is not None:
                self.run(self.store.close())
        finally:
            self.loop.close()
            self.remove()

    def tell_ready(self, queue_id: int, _count: int) -> None:
        self.ready.add(queue_id)
        self.told_at_ms.pop(queue_id, None)

    @contextmanager
    def woken(self) -> Iterator[None]:
        """Assert that whatever became leasable in here was told to those who listen."""
        now_ms = self.clock.now_ms()
        before = [len(kept.leasable(now_ms)) for kept in self.model.queues]
        self.ready.clear()
        yield
        self.run(asyncio.sleep(0))
        self.model.expire()
        for kept, count in zip(self.model.queues, before, strict=True):
            more = len(kept.leasable(now_ms)) > count
            assert kept.queue.id in self.ready or not more, f"{kept.queue.name.name}: nobody was woken"

    def note_told(self, kept: ModelQueue, answer: Leased, lease_ms: int) -> None:
        """Remember when those who wait would look again, if the store wakes nobody until then."""
        now_ms = self.clock.now_ms()
        if not answer.messages:
            self.told_at_ms[kept.queue.id] = math.inf if answer.next_in_ms is None else now_ms + answer.next_in_ms
        elif kept.queue.id in self.told_at_ms:
            # The waiters learn from the one who leases when that lease runs out.
            self.told_at_ms[kept.queue.id] = min(self.told_at_ms[kept.queue.id], now_ms + lease_ms)

    # -- rules ------------------------------------------------------------------------------------

    @initialize(scope=st.sampled_from(DeduplicationScope), after=st.sampled_from((2, 1, None)), retention_s=retentions)
    def create_queues(self, scope: DeduplicationScope, after: int | None, retention_s: int) -> None:
        self.open()
        self.secret = self.opened.secret
        for text in NAMES:
            name = queue_name(text)
            attributes = QueueAttributes(deduplication_scope=scope, retention_s=retention_s)
            if after is not None and "dead" not in text:
                attributes = msgspec.structs.replace(attributes, redrive=self.redrive(text, after))
            queue, _ = self.run(self.opened.create_queue(name, attributes, {}))
            self.model.queues.append(ModelQueue(queue))

    @staticmethod
    def redrive(text: str, after: int) -> RedrivePolicy:
        return RedrivePolicy(queue_name(text.replace("work", "work-dead")), after)

    @rule(call=calls)
    def happen(self, call: Call) -> None:
        """Do what the call says. One rule for it all, since Hypothesis leaves whole rules out of many runs."""
        name, arguments = call
        getattr(self, name)(**arguments)

    def send(self, to: int, batch: list[dict[str, Any]], attempt: str, pick: int) -> None:
        kept = self.model.queues[to]
        drafts = [self.draft(kept, **entry) for entry in batch]
        key = self.send_key(attempt, pick)
        with self.woken():
            answer = self.run(self.opened.append(kept.queue, drafts, attempt=key))
            self.model.append(kept, drafts, key, answer)

    def draft(
        self, kept: ModelQueue, group: str | None, delay_ms: int, deduplication: str | None, *, refused: bool
    ) -> Draft | Refused:
        self.bodies += 1
        body = f"m{self.bodies}"
        if refused:
            return Refused("InvalidParameter", body)
        if not kept.queue.fifo:
            return Draft(message_id=self.ids.new_id(), body=body, group=group, delay_ms=delay_ms)
        # Whether a dead letter's deduplication id counts in its new queue is left open: none is repeated there.
        repeated = deduplication if kept is self.model.queues[2] else None
        return Draft(
            message_id=self.ids.new_id(),
            body=body,
            group=group or "d",
            delay_ms=delay_ms,
            deduplication_id=repeated or body,
        )

    def send_key(self, attempt: str, pick: int) -> bytes | None:
        if attempt == "again" and self.send_attempts:
            return self.send_attempts[pick % len(self.send_attempts)]
        if attempt == "none":
            return None
        self.send_attempts.append(attempt_key(f"send-{len(self.send_attempts)}"))
        return self.send_attempts[-1]

    def ask_for_an_outcome(self, pick: int) -> None:
        if not self.send_attempts:
            return
        key = self.send_attempts[pick % len(self.send_attempts)]
        assert self.run(self.opened.outcome(key)) == self.model.outcome(key)

    def receive(self, from_: int, count: int, lease_ms: int, attempt: str, pick: int) -> None:
        kept, receive, retry = self.model.queues[from_], None, 0
        if attempt in {"again", "late"} and self.consumers.receives:
            receive = self.consumers.receives[pick % len(self.consumers.receives)]
            kept = receive.to
            if attempt == "again":
                receive.sent += 1
            retry = receive.sent if attempt == "again" else pick % (receive.sent + 1)
        elif attempt != "none":
            receive = self.consumers.begin(kept)
        self.receive_now(kept, count, lease_ms, receive, retry)

    def receive_now(
        self, kept: ModelQueue, count: int, lease_ms: int, receive: Receive | None = None, retry: int = 0
    ) -> Answered:
        key = None if receive is None else receive.key
        with self.woken():
            answer = self.run(self.opened.lease(kept.queue, count=count, lease_ms=lease_ms, attempt=key, retry=retry))
            deliveries, undecided = self.model.lease(kept, count, lease_ms, key, answer, retry)
            self.note_told(kept, answer, lease_ms)
            self.find_dead_letters(kept, undecided)
        self.deliveries += [delivery for delivery in deliveries if delivery not in self.deliveries]
        answered = Answered(receive, retry, answer.holder, deliveries)
        if deliveries:
            self.consumers.answered.append(answered)
        return answered

    def reset_and_retry(self, from_: int, lease_ms: int, pause_ms: int) -> None:
        """Give a receive up, retry it, and only then let its connection end."""
        kept = self.model.queues[from_]
        receive = self.consumers.begin(kept)
        dead = self.receive_now(kept, 10, lease_ms, receive)
        self.time_passes(pause_ms)
        receive.sent += 1
        self.receive_now(kept, 10, lease_ms, receive, receive.sent)
        self.connection_ends_now(dead)

    def connection_ends(self, pick: int) -> None:
        """End the connection of a request that was answered at some time, with its answer unread."""
        if self.consumers.answered:
            among = self.consumers.answered[-4:] if pick % 2 else self.consumers.answered
            self.connection_ends_now(among[pick // 2 % len(among)])

    def connection_ends_now(self, dead: Answered) -> None:
        if not dead.deliveries:
            return
        held = self.consumers.held(dead)
        receipts = [delivery.receipt for delivery in dead.deliveries]
        with self.woken():
            self.run(self.opened.release(dead.deliveries[0].to.queue, receipts, holder=dead.holder))
            self.model.release(dead.deliveries, dead.holder)
        assert all(delivery.current for delivery in held), "a request that was given up takes nothing from its retry"

    def receive_and_vanish(self, from_: int, count: int, times: int) -> None:
        """Receive as consumers do that crash each time, until the messages are dead letters."""
        for _ in range(times):
            self.receive(from_, count, 1_000, "none", 0)
            self.counts_agree()
            self.time_passes(1_000)

    def settle_one_of_many(self, from_: int, how: str, place: int, retried: bool) -> None:
        """Receive a batch, do something with its first or its last message only, and see what comes next, or again."""
        known = len(self.deliveries)
        self.receive(from_, 10, LEASE_MS, "new" if retried else "none", 0)
        batch = self.deliveries[known:]
        if batch:
            arguments = {"lease_ms": 0} if how == "change_visibility" else {}
            getattr(self, f"{how}_now")(batch[place : place + 1 or None], **arguments)
            self.counts_agree()
            self.receive(from_, 10, LEASE_MS, "again" if retried else "none", len(self.consumers.receives) - 1)

    def settle_by_older_receipts(self, from_: int, how: str, lease_ms: int) -> None:
        """Receive messages twice, do something with the first receipts of them, and see what comes next."""
        known = len(self.deliveries)
        self.receive(from_, 3, 0, "none", 0)
        older = self.deliveries[known:]
        if older:
            self.receive(from_, 3, LEASE_MS, "none", 0)
            getattr(self, f"{how}_now")(older[:2], **({"lease_ms": lease_ms} if how == "change_visibility" else {}))
            self.counts_agree()
            self.receive(from_, 10, LEASE_MS, "none", 0)

    def delete(self, chosen: list[int]) -> None:
        if self.deliveries:
            self.delete_now(self.choose(chosen))

    def delete_now(self, deliveries: list[Delivery]) -> None:
        with self.woken():
            answers = self.run(self.opened.delete(deliveries[0].to.queue, [d.receipt for d in deliveries]))
            self.check(answers, [self.model.delete(delivery) for delivery in deliveries])

    def change_visibility(self, chosen: list[int], lease_ms: int) -> None:
        if self.deliveries:
            self.change_visibility_now(self.choose(chosen), lease_ms)

    def change_visibility_now(self, deliveries: list[Delivery], lease_ms: int) -> None:
        changes = [VisibilityChange(delivery.receipt, lease_ms) for delivery in deliveries]
        with self.woken():
            answers = self.run(self.opened.change_visibility(deliveries[0].to.queue, changes))
            self.check(answers, [self.model.change_visibility(delivery, lease_ms) for delivery in deliveries])

    def release(self, chosen: list[int]) -> None:
        if self.deliveries:
            self.release_now(self.choose(chosen))

    def release_now(self, deliveries: list[Delivery]) -> None:
        with self.woken():
            self.run(self.opened.release(deliveries[0].to.queue, [d.receipt for d in deliveries]))
            self.model.release(deliveries)

    def choose(self, chosen: list[int]) -> list[Delivery]:
        """Pick deliveries of different messages of one queue: mostly late ones, some stale, some of what is gone."""
        by_message: dict[ModelMessage, Delivery] = {}
        for pick in chosen:
            among = self.deliveries[-6:] if pick % 2 else self.deliveries
            delivery = among[pick // 2 % len(among)]
            if not by_message or delivery.to is next(iter(by_message.values())).to:
                by_message[delivery.message] = delivery
        return list(by_message.values())

    @staticmethod
    def check(answers: list[PenstockError | None], allowed: list[Any]) -> None:
        assert len(answers) == len(allowed)
        for answer, kinds in zip(answers, allowed, strict=True):
            assert (None if answer is None else type(answer)) in kinds

    def much_time_passes(self, ms: int) -> None:
        self.time_passes(ms)

    def time_passes(self, ms: int) -> None:
        self.run(self.clock.advance(ms=ms))
        self.model.expire()
        # Until it is swept, an expired message that is hidden may hold back its FIFO group, or not: that is left open.
        if any(message.hidden(self.clock.now_ms()) for kept in self.model.queues for message in kept.expired):
            self.sweep()
            self.told_at_ms.clear()
        # Those who were told to look again by now have looked.
        for queue_id, told_at_ms in list(self.told_at_ms.items()):
            if told_at_ms <= self.clock.now_ms():
                del self.told_at_ms[queue_id]

    def a_retention_passes(self, which: int) -> None:
        self.time_passes(self.model.queues[which].queue.retention_ms)

    def restart(self) -> None:
        self.run(self.opened.close())
        self.open()
        assert self.opened.secret == self.secret

    def sweep(self) -> None:
        for _ in range(SWEEPS_MAX):
            if not self.run(self.opened.sweep()):
                break
        else:
            raise AssertionError("the sweeper finds no end")
        self.model.expire()
        self.model.swept()

    def purge(self, which: int) -> None:
        kept = self.model.queues[which]
        try:
            self.run(self.opened.purge_queue(kept.queue))
            error = None
        except PurgeInProgress as refused:
            error = type(refused)
        assert error == self.model.purge(kept)

    def set_attributes(self, which: int, after: int | None, retention_s: int, stale: bool) -> None:
        self.sweep()  # What is expired stays so, also if it would not be under a longer retention.
        kept = self.model.queues[which]
        redrive = None if after is None or "dead" in NAMES[which] else self.redrive(NAMES[which], after)
        attributes = msgspec.structs.replace(kept.queue.attributes, redrive=redrive, retention_s=retention_s)
        saved = self.run(self.opened.save_queue(kept.queue, attributes=attributes))
        assert saved is not None
        assert (saved.id, saved.attributes) == (kept.queue.id, attributes)
        assert saved.revision > kept.queue.revision
        if stale:
            assert self.run(self.opened.save_queue(kept.queue, attributes=kept.queue.attributes)) is None
        kept.queue = saved
        # A shorter retention may be noticed late: until it is swept, an expired message that is leased holds its group.
        self.sweep()
        self.told_at_ms.clear()

    # -- move tasks -------------------------------------------------------------------------------

    def start_move(self, fifo: bool, back: bool, rate: int | None) -> None:
        self.sweep()
        work, dead = self.model.queues[2:] if fifo else self.model.queues[:2]
        try:
            task = self.run(self.opened.start_move(self.ids.new_id(), dead.queue, None if back else work.queue, rate))
        except UnsupportedOperation:
            assert self.moves.running(dead) is not None
            return
        self.moves.start(task, dead, None if back else work, rate)

    def cancel_move(self, pick: int) -> None:
        if not self.moves.all:
            return
        move = self.moves.all[pick % len(self.moves.all)]
        try:
            task = self.run(self.opened.cancel_move(move.task.id))
        except MoveTaskDoesNotExist:
            assert not move.running
            return
        self.moves.cancel(move, task)

    def advance_moves(self, times: int, on_time: bool) -> None:
        for _ in range(times):
            with self.woken():
                due_in_ms = self.run(self.opened.advance_moves())
                for move in [move for move in self.moves.all if move.running]:
                    tasks = self.run(self.opened.list_moves(move.source.queue, limit=LIMITS.moves_listed_max))
                    task = next(task for task in tasks if task.id == move.task.id)
                    if 0 < task.moved - move.task.moved < len(move.source.leasable(self.clock.now_ms())):
                        seen = self.look(move.source)
                        self.moves.step(move, task, {message.body for message in seen.messages})
                        self.adopt_look(move.source, seen)
                    else:
                        self.moves.step(move, task, None)
            self.moves.check_due(due_in_ms)
            if due_in_ms is not None and on_time:
                self.time_passes(due_in_ms)

    # -- looking without taking -------------------------------------------------------------------

    def look(self, kept: ModelQueue) -> Leased:
        """See all that can be leased and change only receipts: lease it without the redrive policy, then release it."""
        answer = self.run(self.opened.lease(_without_redrive(kept.queue), count=LOOK_COUNT, lease_ms=LEASE_MS))
        receipts = [Receipt(kept.queue.id, message.position, message.receipt) for message in answer.messages]
        self.run(self.opened.release(kept.queue, receipts))
        return answer

    def adopt_look(self, kept: ModelQueue, seen: Leased) -> None:
        queue, kept.queue = kept.queue, _without_redrive(kept.queue)
        deliveries, _ = self.model.lease(kept, LOOK_COUNT, LEASE_MS, None, seen)
        self.model.release(deliveries)
        kept.queue = queue

    def find_dead_letters(self, kept: ModelQueue, undecided: list[ModelMessage]) -> None:
        """Learn which messages a lease moved, where it was free to move them or not."""
        if not undecided:
            return
        self.sweep()
        seen = self.look(kept)
        bodies = {message.body for message in seen.messages}
        leasable = kept.leasable(self.clock.now_ms())
        self.model.dead_letter(kept, [m for m in undecided if m in leasable and m.body not in bodies])
        self.adopt_look(kept, seen)
        blocked = [message for message in undecided if message not in leasable and message in kept.messages]
        counted = self.run(self.opened.count_messages(kept.queue))
        missing = len(kept.messages) - (counted.visible + counted.in_flight + counted.delayed)
        if 0 < missing < len(blocked):
            reject()  # Some of the blocked ones have moved, and no look can tell which.
        self.model.dead_letter(kept, blocked if missing else [])

    # -- what must hold after every step ----------------------------------------------------------

    @invariant()
    def counts_agree(self) -> None:
        for kept in self.model.queues:
            counted = self.run(self.opened.count_messages(kept.queue))
            expected = kept.counts(self.clock.now_ms())
            spare = len(kept.expired)
            for name in ("visible", "in_flight", "delayed"):
                least = getattr(expected, name)
                assert least <= getattr(counted, name) <= least + spare, f"{kept.queue.name.name}: {name}"

    @invariant()
    def nobody_looks_too_late(self) -> None:
        for kept in self.model.queues:
            next_at_ms = kept.next_leasable_at_ms(self.clock.now_ms())
            told_at_ms = self.told_at_ms.get(kept.queue.id)
            late = told_at_ms is not None and next_at_ms is not None and next_at_ms < told_at_ms
            assert not late, f"{kept.queue.name.name}: those who wait look too late"


def _without_redrive(queue: Queue) -> Queue:
    attributes = msgspec.structs.replace(queue.attributes, redrive=None)
    return msgspec.structs.replace(queue, attributes=attributes)
