"""Polling: receive as many messages as there is room for, and nothing after a stop."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from penstock.client.sqs.api import BATCH_MAX
from penstock.client.sqs.events import Event, log
from penstock.client.sqs.problems import is_missing, is_passing, unusable
from penstock.client.sqs.receiving import Receiver
from penstock.domain.clock import sleep_until

if TYPE_CHECKING:
    from penstock.client.sqs.delivery import Delivery
    from penstock.client.sqs.session import Session
    from penstock.client.sqs.work import Work

PAUSE_MS_MAX = 30_000
PAUSE_MS = 500
IDLE_MS = 100
IDLE_MS_MAX = 1_000
"""How long polls pause in between that find nothing and do not wait for it."""


class Polling:
    """Receives messages for `work`, one call at a time."""

    def __init__(
        self, session: Session, work: Work, *, concurrency: int, batch_size: int, wait_s: int, batch: bool, fifo: bool
    ) -> None:
        self._session = session
        self._work = work
        self._concurrency = concurrency
        self._batch_size = batch_size
        self._wait_s = wait_s
        self._batch = batch
        self._receiver = Receiver(session, fifo=fifo)
        self._checked = False
        """Whether the queue has answered once."""
        self._failures = 0
        self._idle_ms = IDLE_MS
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Receive nothing more. What a call on its way still brings is released."""
        self._stopped.set()
        self._work.freed.set()

    def abandon(self) -> None:
        """Do not wait for a call on its way any more. What it brings is released where its thread lives on."""
        self.stop()
        self._receiver.abandon()

    def unclaimed(self) -> list[Delivery]:
        """Return what was received just before `abandon`, and nobody has taken."""
        return self._receiver.unclaimed()

    async def run(self) -> None:
        """Receive until stopped. Raises `QueueUnusable` if the queue cannot be used, first of all at the start."""
        while not self._stopped.is_set() and self._work.failure is None:
            room = self._room()
            if room <= 0:
                self._work.freed.clear()
                await self._work.freed.wait()
                continue
            asked_ms, wait_s = self._session.clock.now_ms(), self._wait_s if self._checked else 0
            try:
                # The first call does not wait, so that a queue that cannot be used is known at once.
                deliveries = await self._receiver.receive(room, wait_s)
            except Exception as error:  # noqa: BLE001 - each kind is judged
                await self._failed(error)
                continue
            self._checked, self._failures = True, 0
            took_ms = self._session.clock.now_ms() - asked_ms
            await self._hand_over(deliveries, pause=took_ms <= wait_s * 500 and wait_s == self._wait_s)

    def _room(self) -> int:
        free = self._concurrency - self._work.slots_taken
        return self._batch_size if self._batch and free > 0 else min(free, self._batch_size, BATCH_MAX)

    async def _hand_over(self, deliveries: list[Delivery], *, pause: bool) -> None:
        if self._stopped.is_set() or self._work.failure is not None:
            emit = self._session.events.emit
            for delivery in deliveries:
                emit(Event(kind="received", message=delivery.message))
            await self._work.release(deliveries, "received while stopping")
            return
        self._work.take(deliveries)
        if deliveries or not pause:
            self._idle_ms = IDLE_MS
        else:
            # A short poll, or a long one that did not wait, as those of a server that stops.
            await self._pause(self._idle_ms)
            self._idle_ms = min(2 * self._idle_ms, IDLE_MS_MAX)

    async def _failed(self, error: Exception) -> None:
        """Raise what trying again does not help against, or pause."""
        if is_missing(error) or not (self._checked or is_passing(error)):
            raise unusable(error, self._session.queue_url) from error
        ceiling_ms = min(PAUSE_MS * 2 ** min(self._failures, 16), PAUSE_MS_MAX)
        pause_ms = int(ceiling_ms * random.uniform(0.5, 1))  # noqa: S311 - jitter is no secret
        self._failures += 1
        log(
            logging.WARNING,
            "receive failed",
            queue=self._session.queue_url,
            failures=self._failures,
            again_in_s=pause_ms / 1_000,
            error=f"{type(error).__name__}: {error}",
        )
        await self._pause(pause_ms)

    async def _pause(self, pause_ms: int) -> None:
        """Wait so long, or until stopped."""
        clock = self._session.clock
        waits = {
            asyncio.ensure_future(sleep_until(clock, clock.now_ms() + pause_ms)),
            asyncio.ensure_future(self._stopped.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
