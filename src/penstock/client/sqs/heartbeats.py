"""Heartbeats: extend the visibility of what a consumer holds, from a thread of their own where the client allows it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any

from penstock.client.sqs.api import BATCH_MAX
from penstock.client.sqs.delivery import Phase
from penstock.client.sqs.events import Event, log
from penstock.client.sqs.problems import is_denied, is_stale

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.sqs.api import SqsApi
    from penstock.client.sqs.delivery import Delivery
    from penstock.client.sqs.denial import Denial
    from penstock.domain.clock import Clock

TICK_S = 0.25
"""How often the clock is looked at: one that tests move, or a machine that sleeps, cannot be waited for in one go."""
RETRY_MS = 1_000
DROP_S_MAX = 10.0


class Beat:
    """One call that extends the visibility of up to ten messages."""

    __slots__ = ("deliveries", "over", "sent_ms", "visibility_s")

    def __init__(self, deliveries: list[tuple[Delivery, str]], sent_ms: int, visibility_s: list[int]) -> None:
        self.deliveries = deliveries
        """Each with the receipt handle that is sent."""
        self.sent_ms = sent_ms
        self.visibility_s = visibility_s
        self.over: concurrent.futures.Future[None] = concurrent.futures.Future()

    def parameters(self, queue_url: str) -> dict[str, Any]:
        """Return what ChangeMessageVisibilityBatch is called with."""
        entries = [
            {"Id": str(place), "ReceiptHandle": receipt, "VisibilityTimeout": visibility_s}
            for place, ((_, receipt), visibility_s) in enumerate(zip(self.deliveries, self.visibility_s, strict=True))
        ]
        return {"QueueUrl": queue_url, "Entries": entries}


class Heartbeats:
    """Keeps deliveries invisible until they are dropped.

    With boto3 a thread beats, so that a blocked event loop loses no message; aiobotocore's calls need the loop.
    Without `beats_itself`, which is for boto3, nothing is sent until `beat` is called.
    """

    def __init__(
        self,
        api: SqsApi,
        queue_url: str,
        *,
        clock: Clock,
        visibility_s: int,
        beat_ms: int,
        denial: Denial,
        emit: Callable[[Event], None],
        beats_itself: bool = True,
    ) -> None:
        self._api = api
        self._queue_url = queue_url
        self._clock = clock
        self._visibility_s = visibility_s
        self._beat_ms = beat_ms
        self._denial = denial
        self._emit = emit
        self._beats_itself = beats_itself
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._held: set[Delivery] = set()
        self._beat: Beat | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def keep(self, delivery: Delivery) -> None:
        """Begin to extend a message's visibility."""
        if self._denial.known:
            return
        with self._changed:
            delivery.beat_at_ms = self._clock.now_ms() + self._beat_ms
            self._held.add(delivery)
            self._changed.notify()
        if not self._beats_itself:
            return
        if self._api.is_async:
            self._task = self._task or asyncio.create_task(self._beat_on_loop(), name="penstock-sqs-heartbeats")
        elif self._thread is None:
            self._thread = threading.Thread(target=self._beat_in_thread, name="penstock-sqs-heartbeats", daemon=True)
            self._thread.start()

    def beat(self) -> None:
        """Extend the visibility of all held messages once. Events are emitted in this thread."""
        with self._changed:
            held = list(self._held)
        for start in range(0, len(held), BATCH_MAX):
            with self._changed:
                beat = self._beat_of(held[start : start + BATCH_MAX], self._clock.now_ms())
            if beat is not None:
                self._send(beat)

    def forget(self, delivery: Delivery) -> None:
        """Stop extending a message's visibility. A call that is on its way may still do so."""
        with self._changed:
            self._held.discard(delivery)

    async def drop(self, delivery: Delivery) -> None:
        """Stop extending a message's visibility. Returns once no heartbeat can overwrite what is set next."""
        with self._changed:
            self._held.discard(delivery)
            beat = self._beat
        if beat is not None and any(held is delivery for held, _ in beat.deliveries):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(beat.over)), DROP_S_MAX)

    async def close(self) -> None:
        """Stop all heartbeats. A thread that waits for an answer ends when it has come."""
        with self._changed:
            self._closed = True
            self._held.clear()
            self._changed.notify()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # -- the two ways to beat -------------------------------------------------------------------------

    def _beat_in_thread(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (beat := self._next()) is None:
                    self._changed.wait(TICK_S if self._held else None)
                if self._closed:
                    return
            assert beat is not None
            self._send(beat)

    def _send(self, beat: Beat) -> None:
        try:
            answer = self._api.client.change_message_visibility_batch(**beat.parameters(self._queue_url))
        except Exception as error:  # noqa: BLE001 - the next beat may succeed, whatever the error is
            self._finish(beat, error)
        else:
            self._finish(beat, answer)

    async def _beat_on_loop(self) -> None:
        while not self._closed:
            with self._changed:
                beat = self._next()
            if beat is None:
                await asyncio.sleep(TICK_S)
                continue
            try:
                answer = await self._api.start("change_message_visibility_batch", **beat.parameters(self._queue_url))
            except Exception as error:  # noqa: BLE001 - as above
                self._finish(beat, error)
            except asyncio.CancelledError:
                beat.over.set_result(None)
                raise
            else:
                self._finish(beat, answer)

    # -- what both do ---------------------------------------------------------------------------------

    def _next(self) -> Beat | None:
        """Return what is due now, if anything. To be called with the lock."""
        now_ms = self._clock.now_ms()
        due = [one for one in self._held if now_ms >= one.beat_at_ms]
        due.sort(key=lambda one: one.beat_at_ms)
        return self._beat_of(due[:BATCH_MAX], now_ms)

    def _beat_of(self, deliveries: list[Delivery], now_ms: int) -> Beat | None:
        """Return one beat of those that are still held and can be, if any. To be called with the lock."""
        taken = []
        for one in deliveries:
            if one not in self._held:
                continue
            if one.longest_s(now_ms) <= 0:
                self._held.discard(one)
                self._tell(Event(kind="lost", message=one.message, reason="held for 12 hours, which is the longest"))
                continue
            if now_ms >= one.hidden_until_ms and not one.overdue:
                one.overdue = True
                self._tell(Event(kind="lost", message=one.message, reason="no heartbeat before its visibility ended"))
            taken.append(one)
        if not taken:
            return None
        self._beat = Beat(
            [(one, one.receipt) for one in taken],
            now_ms,
            [min(self._visibility_s, one.longest_s(now_ms)) for one in taken],
        )
        return self._beat

    def _finish(self, beat: Beat, answer: dict[str, Any] | Exception) -> None:
        with self._changed:
            try:
                if isinstance(answer, Exception):
                    self._failed(beat, answer)
                else:
                    self._failing = False
                    refused = {entry["Id"]: entry for entry in answer.get("Failed", [])}
                    for place, (delivery, receipt) in enumerate(beat.deliveries):
                        if delivery in self._held:
                            self._note(beat, place, delivery, receipt, refused.get(str(place)))
            finally:
                # What hears of it may raise: nobody is to wait for a beat that is over.
                self._beat = None
                beat.over.set_result(None)

    def _note(self, beat: Beat, place: int, delivery: Delivery, receipt: str, refused: dict[str, Any] | None) -> None:
        if refused is None:
            delivery.beat_at_ms = beat.sent_ms + self._beat_ms
            delivery.hidden_until_ms = max(delivery.hidden_until_ms, beat.sent_ms + beat.visibility_s[place] * 1_000)
            delivery.overdue = False
            self._tell(Event(kind="extended", message=delivery.message, delay_s=beat.visibility_s[place]))
        elif is_stale(refused["Code"], refused.get("Message", "")) and delivery.receipt == receipt:
            self._held.discard(delivery)
            if delivery.phase is not Phase.DONE:  # Then it is deleted already, and the answer on its way.
                self._tell(Event(kind="lost", message=delivery.message, reason="the receipt handle is stale"))
        else:
            delivery.beat_at_ms = self._clock.now_ms() + min(RETRY_MS, self._beat_ms)

    def _failed(self, beat: Beat, error: Exception) -> None:
        if is_denied(error):
            self._held.clear()
            self._denial.note(error, self._queue_url)
            return
        if not self._failing:
            self._failing = True
            log(logging.WARNING, "heartbeat failed", queue=self._queue_url, error=f"{type(error).__name__}: {error}")
        for delivery, _ in beat.deliveries:
            delivery.beat_at_ms = self._clock.now_ms() + min(RETRY_MS, self._beat_ms)

    def _tell(self, event: Event) -> None:
        """Emit an event: in this thread if `beat` was called in it, else on the event loop if that still runs."""
        if not self._beats_itself:
            self._emit(event)
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._emit, event)
