"""Messages: send, receive, delete, change visibility. Receiving is the only use case that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain import errors
from penstock.domain.errors import BatchTooLong, InvalidParameter, OverLimit, PenstockError, QueueDoesNotExist
from penstock.domain.limits import SECOND_MS
from penstock.domain.message import Message, Receipt, Refused, Sent, VisibilityChange, fits, size_bytes
from penstock.domain.receipt import ReceiptHandles
from penstock.domain.sending import accept
from penstock.store.port import FULL_AGAIN_MS, Leased, PromptStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.ids import IdSource
    from penstock.domain.limits import Limits
    from penstock.domain.message import Draft, MessageState, SendResult
    from penstock.domain.queue import Queue, QueueName
    from penstock.domain.sending import Outgoing
    from penstock.engine.waiters import Ticket, Waiters
    from penstock.store.port import AttemptKey, Done, Peek, Store


POSITION_MAX = 2**63 - 1
_COUNT = "MaxNumberOfMessages"


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A received message and the handle by which its consumer names this delivery.

    `holder` says which of the requests that were given this delivery this one is: see `Store.release`.
    """

    message: Message
    handle: str
    holder: int = 0


class Messages:
    """The use cases around single messages and batches of them."""

    def __init__(self, store: Store, waiters: Waiters, clock: Clock, ids: IdSource, limits: Limits) -> None:
        self._store = store
        self._waiters = waiters
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._handles = ReceiptHandles(store.secret)
        self._prompt = store if isinstance(store, PromptStore) else None

    # -- send -------------------------------------------------------------------------------------

    async def send(
        self, name: QueueName, outgoing: Outgoing, *, sender: str = "", attempt: AttemptKey | None = None
    ) -> Sent:
        """Send one message. Answers once it is durable; a retry with the same attempt key gets the first answer."""
        (result,) = await self.send_batch(name, [outgoing], sender=sender, attempt=attempt)
        if isinstance(result, Refused):
            raise _revived(result)
        return result

    async def send_batch(
        self,
        name: QueueName,
        outgoing: Sequence[Outgoing],
        *,
        sender: str = "",
        attempt: AttemptKey | None = None,
    ) -> list[SendResult]:
        """Send messages in one transaction, each judged by itself: an entry is stored or refused, never both.

        All are refused where one lacks its deduplication id, as SQS does.
        """
        try:
            queue = await self._store.find_queue(name)
            if len(outgoing) > 1:
                self._check_batch_size(outgoing)
            drafts = [self._draft(queue, message, sender) for message in outgoing]
            return await self._store.append(queue, drafts, attempt=attempt)
        except PenstockError:
            # An attempt that was stored is never judged again, whatever became of the queue since.
            earlier = None if attempt is None else await self._store.outcome(attempt)
            if earlier is None:
                raise
            return earlier

    def begin_send(
        self,
        name: QueueName,
        outgoing: Sequence[Outgoing],
        *,
        sender: str,
        attempt: AttemptKey | None,
        done: Done[list[SendResult]],
    ) -> bool:
        """Send messages without a coroutine, and tell whether that can be done. If so, `done` is told the rest.

        Otherwise, or if a `PenstockError` is raised, nothing was done, and `send_batch` knows what to make of it.
        """
        prompt = self._prompt
        queue = None if prompt is None else prompt.known_queue(name)
        if prompt is None or queue is None:
            return False
        if len(outgoing) > 1:
            self._check_batch_size(outgoing)
        new_id, limits = self._ids.new_id, self._limits
        drafts = [accept(queue, message, message_id=new_id(), sender=sender, limits=limits) for message in outgoing]
        return prompt.begin_append(queue, drafts, attempt=attempt, done=done)

    def _draft(self, queue: Queue, outgoing: Outgoing, sender: str) -> Draft | Refused:
        try:
            return accept(queue, outgoing, message_id=self._ids.new_id(), sender=sender, limits=self._limits)
        except errors.DeduplicationIdMissing:
            raise
        except PenstockError as error:
            return Refused(type(error).__name__, error.reason)

    def _check_batch_size(self, outgoing: Sequence[Outgoing]) -> None:
        share = self._limits.batch_bytes_max // len(outgoing)
        if all(fits(message.body, message.attributes, share) for message in outgoing):
            return
        total = sum(size_bytes(message.body, message.attributes) for message in outgoing)
        if total > self._limits.batch_bytes_max:
            raise BatchTooLong(
                f"Batch requests cannot be longer than {self._limits.batch_bytes_max} bytes. "
                f"You have sent {total} bytes."
            )

    # -- receive ----------------------------------------------------------------------------------

    async def receive(
        self,
        name: QueueName,
        *,
        count: int = 1,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        attempt: AttemptKey | None = None,
        retry: int = 0,
    ) -> list[Delivery]:
        """Lease up to `count` messages; with none at hand, wait for one until `wait_ms` has passed.

        Where as many are in flight as may be, a standard queue raises `OverLimit` to those who do not wait. The queue's
        own settings stand in for what is not given. Waiting receives are served in the order of arrival. A request with
        the same attempt key gets the same messages again; `retry` is the number of that retry, if the caller counts.
        """
        queue = await self._store.find_queue(name)
        lease_ms = queue.attributes.visibility_timeout_s * SECOND_MS if lease_ms is None else lease_ms
        wait_ms = queue.attributes.receive_wait_s * SECOND_MS if wait_ms is None else wait_ms
        self._check_receive(count, lease_ms, wait_ms)
        if wait_ms == 0:
            leased = await self._lease(queue, count, lease_ms, attempt, retry)
        else:
            with self._waiters.ticket(queue.id) as ticket:
                leased = await self._wait(ticket, queue, count, lease_ms, wait_ms, attempt, retry)
        return self._deliveries(queue, leased)

    def begin_receive(
        self,
        name: QueueName,
        *,
        count: int,
        lease_ms: int | None,
        wait_ms: int | None,
        attempt: AttemptKey | None,
        retry: int,
        done: Done[list[Delivery]],
    ) -> bool:
        """Receive without a coroutine, as `begin_send` sends, if no waiting is asked for."""
        prompt = self._prompt
        queue = None if prompt is None else prompt.known_queue(name)
        if prompt is None or queue is None:
            return False
        if queue.attributes.receive_wait_s if wait_ms is None else wait_ms:
            return False
        lease_ms = queue.attributes.visibility_timeout_s * SECOND_MS if lease_ms is None else lease_ms
        self._check_receive(count, lease_ms, 0)
        since_ms = self._clock.now_ms()

        def leased(answer: Leased | None, error: BaseException | None) -> None:
            if answer is None:
                done(None, error)
            else:
                self._note_look(queue, answer, count, lease_ms, since_ms)
                done(self._deliveries(queue, answer), None)

        return prompt.begin_lease(queue, count=count, lease_ms=lease_ms, attempt=attempt, retry=retry, done=leased)

    def _deliveries(self, queue: Queue, leased: Leased) -> list[Delivery]:
        encode = self._handles.encode
        return [
            Delivery(message, encode(Receipt(queue.id, message.position, message.receipt)), leased.holder)
            for message in leased.messages
        ]

    async def _wait(
        self,
        ticket: Ticket,
        queue: Queue,
        count: int,
        lease_ms: int,
        wait_ms: int,
        attempt: AttemptKey | None,
        retry: int,
    ) -> Leased:
        deadline_ms = self._clock.now_ms() + wait_ms
        while True:
            # At the deadline there is one last look: what became leasable at that very instant is still in time.
            signalled = await ticket.wait(self._clock, deadline_ms)
            try:
                leased = await self._lease(await self._same(queue), count, lease_ms, attempt, retry)
            except OverLimit:
                leased = Leased([], FULL_AGAIN_MS)
                self._note_look(queue, leased, count, lease_ms, self._clock.now_ms())
            if leased.messages or not signalled or self._waiters.closed:
                return leased

    async def _same(self, queue: Queue) -> Queue:
        """Return the queue as it is now, and refuse another one that took its name meanwhile."""
        now = await self._store.find_queue(queue.name)
        if now.id != queue.id:
            message = "The specified queue does not exist."
            raise QueueDoesNotExist(message)
        return now

    async def _lease(self, queue: Queue, count: int, lease_ms: int, attempt: AttemptKey | None, retry: int) -> Leased:
        since_ms = self._clock.now_ms()
        leased = await self._store.lease(queue, count=count, lease_ms=lease_ms, attempt=attempt, retry=retry)
        self._note_look(queue, leased, count, lease_ms, since_ms)
        return leased

    def _note_look(self, queue: Queue, leased: Leased, count: int, lease_ms: int, since_ms: int) -> None:
        self._waiters.looked(
            queue.id,
            since_ms=since_ms,
            asked=count,
            found=len(leased.messages),
            hides_ms=lease_ms,
            next_in_ms=leased.next_in_ms,
        )

    def _check_receive(self, count: int, lease_ms: int, wait_ms: int) -> None:
        for parameter, value, low, high in (
            (_COUNT, count, 1, self._limits.receive_count_max),
            ("VisibilityTimeout", lease_ms // SECOND_MS, 0, self._limits.lease_ms_max // SECOND_MS),
            ("WaitTimeSeconds", wait_ms // SECOND_MS, 0, self._limits.receive_wait_ms_max // SECOND_MS),
        ):
            if not low <= value <= high:
                # SQS words the one bound unlike the others.
                span = f"between {low} and {high}" if parameter == _COUNT else f">= {low} and <= {high}"
                message = f"Value {value} for parameter {parameter} is invalid. Reason: Must be {span}, if provided."
                raise InvalidParameter(message)

    async def release(self, name: QueueName, deliveries: Sequence[Delivery]) -> None:
        """Give back the messages of one receive whose consumer went away before it got them.

        They are visible at once and do not count as received, unless a retry of that receive holds them by now.
        """
        try:
            queue = await self._store.find_queue(name)
        except QueueDoesNotExist:
            return
        receipts = [self._handles.decode(delivery.handle) for delivery in deliveries]
        ours = [receipt for receipt in receipts if receipt.queue_id == queue.id]
        await self._store.release(queue, ours, holder=deliveries[0].holder)

    # -- peek -------------------------------------------------------------------------------------

    async def peek(
        self, name: QueueName, *, state: MessageState | None = None, after: int = 0, limit: int | None = None
    ) -> Peek:
        """Show messages without receiving them, in the order of their positions, a page at a time."""
        limit = self._limits.peek_count_max if limit is None else limit
        for parameter, value, low, high in (
            ("limit", limit, 1, self._limits.peek_count_max),
            ("after", after, 0, POSITION_MAX),
        ):
            if not low <= value <= high:
                raise InvalidParameter(f"Value {value} for {parameter} is not between {low} and {high}.")
        return await self._store.peek(await self._store.find_queue(name), state=state, after=after, limit=limit)

    async def oldest_age_ms(self, name: QueueName) -> int:
        """Tell how long ago the message was sent that has been in the queue longest; 0 for an empty queue."""
        first = (await self.peek(name, limit=1)).messages
        return max(0, self._clock.wall_ms() - first[0].message.sent_at_ms) if first else 0

    # -- settle -----------------------------------------------------------------------------------

    async def delete(self, name: QueueName, handles: Sequence[str]) -> list[PenstockError | None]:
        """Delete the messages that these handles name. Each is judged by itself; None is success."""
        queue = await self._store.find_queue(name)
        receipts, results = self._receipts(queue, handles)
        return _filled(results, await self._store.delete(queue, receipts) if receipts else [])

    def begin_delete(self, name: QueueName, handle: str, *, done: Done[list[PenstockError | None]]) -> bool:
        """Delete one message without a coroutine, as `begin_send` sends one."""
        prompt = self._prompt
        queue = None if prompt is None else prompt.known_queue(name)
        if prompt is None or queue is None:
            return False
        return prompt.begin_delete(queue, [self._receipt(queue, handle)], done=done)

    async def change_visibility(
        self, name: QueueName, changes: Sequence[tuple[str, int]]
    ) -> list[PenstockError | None]:
        """Hide leased messages for another time, in ms, from now on. Each is judged by itself; None is success."""
        queue = await self._store.find_queue(name)
        results: list[PenstockError | None] = []
        accepted: list[VisibilityChange] = []
        for handle, lease_ms in changes:
            try:
                self._check_lease(lease_ms)
                accepted.append(VisibilityChange(self._receipt(queue, handle), lease_ms))
                results.append(None)
            except PenstockError as error:
                results.append(error)
        return _filled(results, await self._store.change_visibility(queue, accepted) if accepted else [])

    def _check_lease(self, lease_ms: int) -> None:
        if not 0 <= lease_ms <= self._limits.lease_ms_max:
            message = (
                f"Value {lease_ms // SECOND_MS} for parameter VisibilityTimeout is invalid. "
                f"Reason: VisibilityTimeout must be an integer between 0 and {self._limits.lease_ms_max // SECOND_MS}."
            )
            raise InvalidParameter(message)

    def _receipts(self, queue: Queue, handles: Sequence[str]) -> tuple[list[Receipt], list[PenstockError | None]]:
        receipts: list[Receipt] = []
        results: list[PenstockError | None] = []
        for handle in handles:
            try:
                receipts.append(self._receipt(queue, handle))
                results.append(None)
            except PenstockError as error:
                results.append(error)
        return receipts, results

    def _receipt(self, queue: Queue, handle: str) -> Receipt:
        receipt = self._handles.decode(handle)
        if receipt.queue_id != queue.id:
            message = f'The input receipt handle "{handle}" is not a valid receipt handle for this queue.'
            raise errors.ReceiptHandleInvalid(message)
        return receipt


def _filled(results: list[PenstockError | None], answers: list[PenstockError | None]) -> list[PenstockError | None]:
    """Put the store's answers, in order, where no error was found before."""
    remaining = iter(answers)
    return [next(remaining) if result is None else result for result in results]


def _revived(refused: Refused) -> PenstockError:
    """Make the error again that refused an entry."""
    kind: type[PenstockError] = getattr(errors, refused.error)
    return kind(refused.reason)
