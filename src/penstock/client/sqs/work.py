"""Work: run handlers on the messages in hand, a FIFO group in order, and settle each by how it ended."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.client.errors import BodyInvalid, IdempotencyInProgress
from penstock.client.sqs.delivery import Phase
from penstock.client.sqs.events import Event, logger
from penstock.client.sqs.handlers import batch_failures
from penstock.client.sqs.problems import is_denied, unusable
from penstock.client.tasks.retries import Discard, RetryAfter, Snooze

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.client.sqs.backoff import Backoff
    from penstock.client.sqs.delivery import Delivery
    from penstock.client.sqs.handlers import Calls
    from penstock.client.sqs.message import Message
    from penstock.client.sqs.session import Session

_UNDONE = {Phase.WAITING, Phase.RUNNING, Phase.RETURNING}


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a delivery ended. An `undeleted` one is done, but SQS did not take the delete."""

    status: Literal["done", "undeleted", "failed", "snoozed", "discarded"]
    result: object = None
    error: Exception | None = None
    deleted: bool = False
    """Whether it cannot be received again, so that the next message of a FIFO group may begin."""


class Work:
    """Runs handlers. A message is in hand from its receipt until it is settled.

    Without a `backoff`, a message that failed stays hidden until its visibility timeout ends.
    """

    def __init__(
        self,
        session: Session,
        calls: Calls,
        *,
        backoff: Backoff | None,
        batch: bool = False,
        fifo: bool = False,
        poison: Callable[[Message, Exception], object] | None = None,
        poison_after: int | None = None,
    ) -> None:
        self._session = session
        self._calls = calls
        self._backoff = backoff
        self._batch = batch
        self._fifo = fifo
        self._poison = poison
        self._poison_after = poison_after
        self._in_hand: dict[str, Delivery] = {}
        self._groups: dict[str, asyncio.Task[None]] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.freed = asyncio.Event()
        """Set when a message leaves the hand."""
        self.failure: BaseException | None = None
        """What the consumer has to end by: deletes are denied, or a handler raised what is no `Exception`."""

    @property
    def slots_taken(self) -> int:
        """How many messages are in hand; of a batch handler, how many batches."""
        return len(self.tasks) if self._batch else len(self._in_hand)

    # -- taking in ------------------------------------------------------------------------------------

    def take(self, received: Iterable[Delivery]) -> None:
        """Hold messages from now on, and run them."""
        fresh = self.hold(received)
        if self._batch and fresh:
            self._start(fresh)
        elif self._fifo:
            groups: dict[str, list[Delivery]] = {}
            for delivery in fresh:
                groups.setdefault(delivery.message.group or "", []).append(delivery)
            for deliveries in groups.values():
                self._start(deliveries)
        else:
            for delivery in fresh:
                self._start([delivery])

    def hold(self, received: Iterable[Delivery]) -> list[Delivery]:
        """Hold messages from now on; return those that are not in hand already."""
        fresh = []
        for delivery in received:
            message = delivery.message
            self._session.events.emit(Event(kind="received", message=message))
            known = self._in_hand.get(message.id)
            if known is None or known.phase is Phase.RETURNING:
                self._in_hand[message.id] = delivery
                self._session.heartbeats.keep(delivery)
                fresh.append(delivery)
            else:
                self._receive_again(known, delivery)
        self._count()
        return fresh

    def _receive_again(self, known: Delivery, delivery: Delivery) -> None:
        """Go on with a message that came again because its visibility ended: it must not run twice at once here."""
        session = self._session
        known.received_again(delivery.message, now_ms=session.clock.now_ms(), visibility_s=session.visibility_s)
        session.heartbeats.keep(known)
        session.events.emit(Event(kind="lost", message=known.message, reason="received again while it is in hand"))

    def _start(self, deliveries: list[Delivery]) -> None:
        names = {one.message.group or "" for one in deliveries} if self._fifo else set()
        before = {self._groups[name] for name in names if name in self._groups}
        task = asyncio.create_task(self._run(deliveries, before), name="penstock-sqs-work")
        self._groups.update(dict.fromkeys(names, task))
        self.tasks.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, names))

    def _ended(self, task: asyncio.Task[None], names: set[str]) -> None:
        self.tasks.discard(task)
        for name in names:
            if self._groups.get(name) is task:
                del self._groups[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = self.failure or error
        self._count()

    def _count(self) -> None:
        self._session.events.counters.in_flight = len(self._in_hand)
        self.freed.set()

    # -- running --------------------------------------------------------------------------------------

    async def _run(self, deliveries: list[Delivery], before: set[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        if self._batch:
            await self.run_batch([one for one in deliveries if one.phase is Phase.WAITING])
            return
        for place, delivery in enumerate(deliveries):
            if delivery.phase is not Phase.WAITING:
                continue  # Released, because the consumer stops.
            outcome = await self.run_one(delivery)
            if self._fifo and not outcome.deleted:
                later = deliveries[place + 1 :]
                await self.release(later, "an earlier message of its group is not done")
                return

    async def run_one(self, delivery: Delivery) -> Outcome:
        """Run the handler on a message and settle it."""
        started_ms = self._begin([delivery])
        try:
            result = await self._called(delivery.message)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises, its message is kept
            return await self._fail(delivery, error, self._took_s(started_ms))
        return await self._succeed(delivery, result, self._took_s(started_ms))

    async def run_batch(self, deliveries: list[Delivery]) -> None:
        """Run the handler on messages together, and settle each."""
        if not deliveries:
            return
        messages = [one.message for one in deliveries]
        started_ms = self._begin(deliveries)
        try:
            failures = batch_failures(messages, await self._called(messages))
        except Exception as error:  # noqa: BLE001 - as above
            failures = dict.fromkeys((one.id for one in messages), error)
        took_s = self._took_s(started_ms)
        blocked: set[str] = set()
        kept, ended = [], []
        for delivery in deliveries:
            group = delivery.message.group or ""
            if self._fifo and group in blocked:
                kept.append(delivery)
            elif delivery.message.id in failures:
                blocked.add(group)
                ended.append(self._fail(delivery, failures[delivery.message.id], took_s))
            else:
                ended.append(self._succeed(delivery, None, took_s))
        # Those that failed hide on, so that the later ones of their groups stay behind them.
        await asyncio.gather(*ended)
        await self.release(kept, "an earlier message of its group failed")

    async def _called(self, given: Message | list[Message]) -> object:
        try:
            return await self._calls(given)
        except asyncio.CancelledError as error:
            running = asyncio.current_task()
            if running is None or running.cancelling():
                raise
            # Nobody wants the handler to end: it awaited something that was cancelled, and has failed by that.
            raise RuntimeError("the handler awaited something that was cancelled") from error

    def _begin(self, deliveries: list[Delivery]) -> int:
        for delivery in deliveries:
            delivery.phase = Phase.RUNNING
            self._session.events.emit(Event(kind="started", message=delivery.message))
        return self._session.clock.now_ms()

    def _took_s(self, started_ms: int) -> float:
        return (self._session.clock.now_ms() - started_ms) / 1_000

    # -- settling -------------------------------------------------------------------------------------

    async def _succeed(self, delivery: Delivery, result: object, took_s: float) -> Outcome:
        delivery.phase = Phase.DONE
        message, emit = delivery.message, self._session.events.emit
        emit(Event(kind="done", message=message, took_s=took_s, result=result))
        error = await self.delete(delivery)
        status: Literal["done", "undeleted"] = "done" if error is None else "undeleted"
        return Outcome(status=status, result=result, error=error, deleted=error is None)

    async def _fail(self, delivery: Delivery, error: Exception, took_s: float) -> Outcome:
        message, emit = delivery.message, self._session.events.emit
        if isinstance(error, Discard):
            delivery.phase = Phase.DONE
            emit(Event(kind="discarded", message=message, took_s=took_s, reason=str(error)))
            undeleted = await self.delete(delivery)
            return Outcome(status="discarded", error=undeleted, deleted=undeleted is None)
        if isinstance(error, Snooze | IdempotencyInProgress):
            wait_s = error.delay_ms / 1_000 if isinstance(error, Snooze) else error.retry_after
            delay_s = await self._delay(delivery, wait_s)
            emit(Event(kind="snoozed", message=message, took_s=took_s, delay_s=delay_s, reason=str(error)))
            return Outcome(status="snoozed", error=error)
        if await self._dealt_with(message, error):
            delivery.phase = Phase.DONE
            emit(Event(kind="failed", message=message, took_s=took_s, error=error, reason="deleted by on_poison"))
            return Outcome(status="failed", error=error, deleted=await self.delete(delivery) is None)
        delay_s = await self._delay_failed(delivery, error)
        emit(Event(kind="failed", message=message, took_s=took_s, delay_s=delay_s, error=error))
        return Outcome(status="failed", error=error)

    async def _delay_failed(self, delivery: Delivery, error: Exception) -> int | None:
        if isinstance(error, RetryAfter):
            return await self._delay(delivery, error.delay_ms / 1_000)
        if self._backoff is not None:
            return await self._delay(delivery, self._backoff.after(delivery.message.receive_count))
        self._leave(delivery)
        return None

    async def _dealt_with(self, message: Message, error: Exception) -> bool:
        """Report poison, if it is; return whether `on_poison` wants it deleted."""
        too_often = self._poison_after is not None and message.receive_count >= self._poison_after
        if not (too_often or isinstance(error, BodyInvalid)):
            return False
        self._session.events.emit(Event(kind="poison", message=message, error=error))
        if self._poison is None:
            return False
        try:
            return await self._session.call(self._poison, message, error) is True
        except Exception:  # noqa: BLE001 - the user's own code
            logger.exception("on_poison failed on message %s, which is kept", message.id)
            return False

    async def delete(self, delivery: Delivery) -> Exception | None:
        """Delete a message; return why that failed, or None."""
        error = await self._session.settling.delete(delivery)
        self._leave(delivery)
        if error is not None and is_denied(error):
            # Or all work would be done over and over.
            self.failure = self.failure or unusable(error, self._session.queue_url)
        kind: Literal["deleted", "undeleted"] = "deleted" if error is None else "undeleted"
        self._session.events.emit(Event(kind=kind, message=delivery.message, error=error))
        return error

    async def _delay(self, delivery: Delivery, wait_s: float) -> int | None:
        delivery.phase = Phase.RETURNING
        delay_s = await self._session.settling.delay(delivery, math.ceil(wait_s))
        self._leave(delivery)
        return delay_s

    async def release(self, deliveries: Iterable[Delivery], reason: str) -> None:
        """Make messages visible at once that have not ended."""
        given_up = [one for one in deliveries if one.phase in _UNDONE]
        for one in given_up:
            one.phase = Phase.RETURNING
        released = await self._session.settling.release(given_up)
        for one in given_up:
            self._leave(one)
            delay_s = 0 if one in released else None
            self._session.events.emit(Event(kind="released", message=one.message, delay_s=delay_s, reason=reason))

    async def release_all(self, reason: str, *, running: bool) -> int:
        """Make visible what has not begun and, if asked to, what runs; return how many."""
        # What was on its way back when its task was cancelled has to be sent back again.
        phases = _UNDONE if running else {Phase.WAITING}
        left = [one for one in self._in_hand.values() if one.phase in phases]
        await self.release(left, reason)
        return len(left)

    def _leave(self, delivery: Delivery) -> None:
        delivery.phase = Phase.SETTLED
        self._session.heartbeats.forget(delivery)
        if self._in_hand.get(delivery.message.id) is delivery:
            del self._in_hand[delivery.message.id]
        self._count()
