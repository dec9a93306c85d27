"""What a store promises, as plainly as it can be said: lists and dicts, one function per verb, nothing optimised.

Where the port leaves a choice (the order on a standard queue, which group of a FIFO queue comes first), the model does
not choose: it is told what the store answered, asserts that this was a legal answer, and goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

from penstock.domain.errors import (
    InvalidParameter,
    MessageDoesNotExist,
    PenstockError,
    PurgeInProgress,
    ReceiptHandleExpired,
)
from penstock.domain.message import Draft, Message, Receipt, Refused, SendResult, Sent
from penstock.domain.queue import Counts, DeduplicationScope, Queue

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.limits import Limits
    from penstock.store.port import Leased

Error = type[PenstockError] | None
"""What a store may say of one entry of a batch: an error of this kind, or None for success."""


@dataclass(eq=False)
class ModelMessage:
    """One message in one queue. Bodies are never repeated, so the body says which message it is."""

    body: str
    group: str | None
    deduplication_id: str | None
    sent_at_ms: int
    visible_at_ms: int
    message_id: str | None = None
    """None: a move task gave it an id that nobody has seen yet."""
    sequence: int | None = None
    """None: not on FIFO, or moved and not seen since; then it is greater than `sequence_after`."""
    sequence_after: int = -1
    receive_count: int = 0
    receipt: int | None = None
    """The current receipt; None before the first lease and after a release."""
    receipt_max: int = 0
    leased_at_ms: int | None = None
    """When it was received last in this queue, be it in vain."""
    holder: int | None = 0
    """Which of the requests that were given its lease holds it; None: that cannot be told."""
    first_received_at_ms: set[int] = field(default_factory=set)
    """Instants that may count as the first receive: after a release or a move, an earlier one or the next."""
    dead_letter_source: str | None = None
    received_elsewhere: int = 0

    @property
    def shown_count(self) -> int:
        """How often it was received, in all queues."""
        return self.received_elsewhere + self.receive_count

    def hidden(self, now_ms: int) -> bool:
        return self.visible_at_ms > now_ms

    def leased(self, now_ms: int) -> bool:
        return self.hidden(now_ms) and self.leased_at_ms is not None


@dataclass(eq=False)
class ModelQueue:
    """One queue: its messages in the order in which they were stored, and what it remembers of earlier ones."""

    queue: Queue
    """As the store gave it last, with the policies that hold."""
    messages: list[ModelMessage] = field(default_factory=list)
    expired: list[ModelMessage] = field(default_factory=list)
    """No longer delivered, but perhaps counted until they are swept."""
    purged_at_ms: int | None = None
    sequence_max: dict[str | None, int] = field(default_factory=dict)
    deduplication: dict[tuple[str | None, str], tuple[int, Sent]] = field(default_factory=dict)

    def leasable(self, now_ms: int) -> list[ModelMessage]:
        """What a lease may deliver or dead-letter at this instant."""
        if not self.queue.fifo:
            return [message for message in self.messages if not message.hidden(now_ms)]
        found: list[ModelMessage] = []
        for group in dict.fromkeys(message.group for message in self.messages):
            members = [message for message in self.messages if message.group == group]
            found += takewhile(lambda message: not message.hidden(now_ms), members)
        return found

    def next_leasable_at_ms(self, now_ms: int) -> int | None:
        """The first instant at which something is leasable, if nothing but time happens."""
        for at_ms in sorted({now_ms, *(m.visible_at_ms for m in self.messages if m.hidden(now_ms))}):
            if any(at_ms < m.sent_at_ms + self.queue.retention_ms for m in self.leasable(at_ms)):
                return at_ms
        return None

    def exhausted(self, message: ModelMessage) -> bool:
        """Whether the message was received so often that its next receive makes it a dead letter."""
        redrive = self.queue.attributes.redrive
        return redrive is not None and message.receive_count >= redrive.max_receive_count

    def counts(self, now_ms: int) -> Counts:
        leased = sum(message.leased(now_ms) for message in self.messages)
        hidden = sum(message.hidden(now_ms) for message in self.messages)
        return Counts(visible=len(self.messages) - hidden, in_flight=leased, delayed=hidden - leased)


@dataclass(eq=False)
class Delivery:
    """One message handed to a consumer, with the receipt that came with it."""

    to: ModelQueue
    message: ModelMessage
    receipt: Receipt

    @property
    def current(self) -> bool:
        return self.message in self.to.messages and self.message.receipt == self.receipt.receipt


class Model:
    """All queues, and the outcomes that are kept for retries."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self.clock = clock
        self.limits = limits
        self.queues: list[ModelQueue] = []
        self.message_ids: set[str] = set()
        self.sends: dict[bytes, tuple[int, list[SendResult]]] = {}
        self.leases: dict[bytes, tuple[int, list[Delivery]]] = {}

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def expire(self) -> None:
        """Take away whatever the present instant and the present retention periods leave expired."""
        for kept in self.queues:
            for message in list(kept.messages):
                if self.now_ms >= message.sent_at_ms + kept.queue.retention_ms:
                    kept.messages.remove(message)
                    kept.expired.append(message)

    def swept(self) -> None:
        """Nothing expired is left."""
        for kept in self.queues:
            kept.expired.clear()

    # -- send -------------------------------------------------------------------------------------

    def outcome(self, attempt: bytes | None) -> list[SendResult] | None:
        if attempt is None or attempt not in self.sends:
            return None
        at_ms, answer = self.sends[attempt]
        return answer if self.now_ms - at_ms < self.limits.outcome_window_ms else None

    def append(
        self, to: ModelQueue, drafts: Sequence[Draft | Refused], attempt: bytes | None, answer: list[SendResult]
    ) -> None:
        earlier = self.outcome(attempt)
        if earlier is not None:
            assert answer == earlier, "a retry gets the first answer"
            return
        assert len(answer) == len(drafts)
        for draft, result in zip(drafts, answer, strict=True):
            if isinstance(draft, Refused):
                assert result == draft, "what is refused stays refused"
            else:
                self._append_one(to, draft, result)
        if attempt is not None and any(isinstance(result, Sent) for result in answer):
            self.sends[attempt] = (self.now_ms, answer)

    def _append_one(self, to: ModelQueue, draft: Draft, result: SendResult) -> None:
        assert isinstance(result, Sent)
        if draft.deduplication_id is not None:
            by_group = to.queue.attributes.deduplication_scope is DeduplicationScope.MESSAGE_GROUP
            key = (draft.group if by_group else None, draft.deduplication_id)
            at_ms, first = to.deduplication.get(key, (None, None))
            if at_ms is not None and self.now_ms - at_ms < self.limits.deduplication_window_ms:
                assert result == first, "a duplicate is answered with the first message"
                return
            to.deduplication[key] = (self.now_ms, result)
        assert result.message_id == draft.message_id
        self.message_ids.add(result.message_id)
        message = ModelMessage(
            body=draft.body,
            group=draft.group,
            deduplication_id=draft.deduplication_id,
            sent_at_ms=self.now_ms,
            visible_at_ms=self.now_ms + draft.delay_ms,
            message_id=result.message_id,
        )
        _put(to, message)
        _learn_sequence(to, message, result.sequence)

    # -- receive ----------------------------------------------------------------------------------

    def lease(
        self, from_: ModelQueue, count: int, lease_ms: int, attempt: bytes | None, answer: Leased, retry: int = 0
    ) -> tuple[list[Delivery], list[ModelMessage]]:
        """Take over what was delivered. Return it, and those that may have become dead letters: only a look tells."""
        earlier = self._still_leased(attempt)
        if earlier:
            assert [_identity(m) for m in answer.messages] == [
                (d.message.body, d.receipt.receipt, d.message.shown_count) for d in earlier
            ], "a receive that is tried again gets its messages again"
            for delivery in earlier:
                message = delivery.message
                message.visible_at_ms = max(message.visible_at_ms, self.now_ms + lease_ms)
                message.holder = retry if message.holder is not None and retry > message.holder else None
            assert answer.holder == retry
            return earlier, []
        assert answer.holder == retry or not answer.messages
        self._check_next(from_, answer)
        candidates = from_.leasable(self.now_ms)
        deliverable = [message for message in candidates if not from_.exhausted(message)]
        by_body = {message.body: message for message in deliverable}
        assert {m.body for m in answer.messages} <= by_body.keys(), "only what is leasable is delivered"
        given = [by_body[message.body] for message in answer.messages]
        assert len(set(given)) == len(given), "a message comes once in one call"
        assert answer.next_in_ms == 0 or len(given) == min(count, len(deliverable)), "a receive gives as many as it can"
        if from_.queue.fifo:
            _check_group_order(given, deliverable)
        elif answer.next_in_ms != 0:
            _check_age(given, deliverable)
        stopped_early = len(given) == count or answer.next_in_ms == 0
        dead, undecided = _dead_letters(from_, candidates, given, stopped_early=stopped_early)
        self.dead_letter(from_, dead)
        deliveries = [self._deliver(from_, by_body[message.body], message, lease_ms) for message in answer.messages]
        for delivery in deliveries:
            delivery.message.holder = retry
        if attempt is not None and deliveries:
            self.leases[attempt] = (self.now_ms, deliveries)
        return deliveries, undecided

    def _still_leased(self, attempt: bytes | None) -> list[Delivery]:
        if attempt is None or attempt not in self.leases:
            return []
        at_ms, deliveries = self.leases[attempt]
        if self.now_ms - at_ms >= self.limits.outcome_window_ms:
            return []
        held = [d for d in deliveries if d.current and d.message.leased(self.now_ms)]
        back = [d.message for d in deliveries if d not in held and d.message in d.to.messages]
        return [d for d in held if not (d.to.queue.fifo and any(_before(message, d) for message in back))]

    def _check_next(self, from_: ModelQueue, answer: Leased) -> None:
        if answer.messages:
            return
        next_at_ms = from_.next_leasable_at_ms(self.now_ms)
        if next_at_ms is not None and next_at_ms > self.now_ms:
            assert answer.next_in_ms is not None, "something hidden will come due"
            assert answer.next_in_ms <= next_at_ms - self.now_ms, "the next look is never too late"
        if answer.next_in_ms == 0:
            assert next_at_ms == self.now_ms or from_.expired, "a look that can find nothing is not worth while"

    def _deliver(self, from_: ModelQueue, message: ModelMessage, seen: Message, lease_ms: int) -> Delivery:
        if message.message_id is None:
            assert seen.message_id not in self.message_ids, "a moved message is a new one"
            self.message_ids.add(seen.message_id)
            message.message_id = seen.message_id
        if message.sequence is None:
            _learn_sequence(from_, message, seen.sequence)
        if message.receive_count == 0:
            message.first_received_at_ms.add(self.now_ms)
        message.receive_count += 1
        assert seen.first_received_at_ms in message.first_received_at_ms
        message.first_received_at_ms = {seen.first_received_at_ms}
        assert seen.receipt > message.receipt_max, "receipts grow"
        message.receipt = message.receipt_max = seen.receipt
        message.leased_at_ms = self.now_ms
        message.visible_at_ms = self.now_ms + lease_ms
        for name in ("message_id", "group", "deduplication_id", "sequence", "sent_at_ms"):
            assert getattr(seen, name) == getattr(message, name), f"{name} of {message.body}"
        assert seen.receive_count == message.shown_count, f"receives of {message.body}"
        assert seen.dead_letter_source == message.dead_letter_source
        return Delivery(from_, message, Receipt(from_.queue.id, seen.position, seen.receipt))

    def dead_letter(self, from_: ModelQueue, messages: Sequence[ModelMessage]) -> None:
        """Move messages, in order, to the dead-letter queue of the queue they are in."""
        redrive = from_.queue.attributes.redrive
        for message in messages:
            assert redrive is not None
            to = next(kept for kept in self.queues if kept.queue.name == redrive.dead_letter_queue)
            from_.messages.remove(message)
            _put(
                to,
                ModelMessage(
                    body=message.body,
                    group=message.group,
                    deduplication_id=message.deduplication_id,
                    sent_at_ms=self.now_ms if to.queue.fifo else message.sent_at_ms,
                    visible_at_ms=self.now_ms,
                    message_id=message.message_id,
                    receipt_max=message.receipt_max,
                    received_elsewhere=message.shown_count,
                    first_received_at_ms=message.first_received_at_ms,
                    dead_letter_source=from_.queue.name.arn,
                ),
            )

    # -- what consumers do with a delivery --------------------------------------------------------

    def release(self, deliveries: Sequence[Delivery], holder: int = 0) -> None:
        for delivery in deliveries:
            if delivery.current and delivery.message.holder == holder:
                delivery.message.receipt = None
                delivery.message.receive_count -= 1
                delivery.message.visible_at_ms = self.now_ms

    def delete(self, delivery: Delivery) -> Collection[Error]:
        """Delete if that is due, and return what may be said."""
        message, kept = delivery.message, delivery.to
        if message in kept.expired:
            return {None, ReceiptHandleExpired}
        if message not in kept.messages:
            return {None}
        if kept.queue.fifo and not (delivery.current and message.leased(self.now_ms)):
            return {ReceiptHandleExpired}
        kept.messages.remove(message)
        return {None}

    def change_visibility(self, delivery: Delivery, lease_ms: int) -> Collection[Error]:
        """Change if that is due, and return what may be said."""
        message, kept = delivery.message, delivery.to
        if message in kept.expired:
            return {None, MessageDoesNotExist, ReceiptHandleExpired, InvalidParameter}
        if message not in kept.messages:
            return {MessageDoesNotExist}
        if kept.queue.fifo and not (delivery.current and message.leased(self.now_ms)):
            return {ReceiptHandleExpired}
        assert message.leased_at_ms is not None
        if lease_ms and self.now_ms + lease_ms > message.leased_at_ms + self.limits.lease_ms_max:
            return {InvalidParameter}
        if lease_ms or message.hidden(self.now_ms):
            message.holder = None
        message.visible_at_ms = self.now_ms + lease_ms
        return {None}

    # -- queues and moves -------------------------------------------------------------------------

    def purge(self, kept: ModelQueue) -> Error:
        if kept.purged_at_ms is not None and self.now_ms - kept.purged_at_ms < self.limits.purge_interval_ms:
            return PurgeInProgress
        kept.purged_at_ms = self.now_ms
        kept.messages.clear()
        kept.deduplication.clear()
        kept.expired.clear()
        return None

    def move(self, messages: Sequence[ModelMessage], from_: ModelQueue, to: ModelQueue) -> None:
        """Move messages, in order, as a move task does: each becomes a new one."""
        for message in messages:
            from_.messages.remove(message)
            _put(
                to,
                ModelMessage(
                    body=message.body,
                    group=message.group,
                    deduplication_id=message.deduplication_id,
                    sent_at_ms=self.now_ms,
                    visible_at_ms=self.now_ms,
                ),
            )


def _put(to: ModelQueue, message: ModelMessage) -> None:
    message.sequence_after = to.sequence_max.get(message.group, -1)
    to.messages.append(message)


def _learn_sequence(to: ModelQueue, message: ModelMessage, sequence: int | None) -> None:
    """Adopt the sequence number of a message, which lies between those of its neighbours in the group."""
    assert (sequence is not None) == to.queue.fifo
    if sequence is not None:
        assert sequence > message.sequence_after, "sequence numbers grow within a group"
        for other in to.messages[to.messages.index(message) :]:
            assert other.group != message.group or other.sequence is None or other.sequence > sequence
        message.sequence = sequence
        to.sequence_max[message.group] = max(sequence, to.sequence_max.get(message.group, -1))


def _before(message: ModelMessage, delivery: Delivery) -> bool:
    """Whether a message comes before the one that was delivered, in its group."""
    kept, later = delivery.to.messages, delivery.message
    return message.group == later.group and kept.index(message) < kept.index(later)


def _identity(message: Message) -> tuple[str, int, int]:
    return message.body, message.receipt, message.receive_count


def _check_group_order(given: list[ModelMessage], deliverable: list[ModelMessage]) -> None:
    runs = [(group, list(run)) for group, run in groupby(given, key=lambda message: message.group)]
    assert len({group for group, _ in runs}) == len(runs), "messages of one group are adjacent"
    for group, run in runs:
        of_group = [message for message in deliverable if message.group == group]
        assert run == of_group[: len(run)], "a group comes in the order of its sequence numbers"


def _check_age(given: list[ModelMessage], deliverable: list[ModelMessage]) -> None:
    """Groups have turns of their own; without any, what comes back comes before what was sent later."""
    if any(message.group is not None for message in deliverable):
        return
    for younger in given:
        older = deliverable[: deliverable.index(younger)]
        assert all(message in given for message in older if message.receipt_max), "a redelivered message comes first"


def _dead_letters(
    from_: ModelQueue, candidates: list[ModelMessage], given: list[ModelMessage], *, stopped_early: bool
) -> tuple[list[ModelMessage], list[ModelMessage]]:
    """Tell which exhausted messages a lease must have moved, and which it may have if it did not look at all."""
    exhausted = [message for message in candidates if from_.exhausted(message)]
    if not stopped_early:
        return exhausted, []
    if not from_.queue.fifo:
        return [], exhausted
    certain = []
    for message in exhausted:
        younger = candidates[candidates.index(message) :]
        if any(other.group == message.group and other in given for other in younger):
            certain.append(message)
    return certain, [message for message in exhausted if message not in certain]
