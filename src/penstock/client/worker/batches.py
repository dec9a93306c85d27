"""A batch task of a worker: offers are collected, accepted together, and run by one call."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import TYPE_CHECKING, Any

from penstock.client.errors import ArgumentsInvalid, ResultInvalid
from penstock.client.worker import reports
from penstock.client.worker.attempt import Attempt
from penstock.client.worker.execution import Outcome, is_of_task, sized
from penstock.client.worker.lane import CREDIT_MAX, Lane

if TYPE_CHECKING:
    from penstock.client.tasks.batch import BatchTask
    from penstock.client.worker.host import Host
    from penstock.wire.jobs.answers import OfferView, ReportEntry


class BatchLane(Lane):
    """Takes offers of one batch task. While they wait for others to come they are not accepted."""

    def __init__(self, host: Host, queue: str, task: BatchTask[Any, Any], names: list[str]) -> None:
        super().__init__(host, queue, 1, dict.fromkeys(names, task.task))
        self._batch = task
        self.credit = min(2 * task.size, CREDIT_MAX)
        self._full = asyncio.Event()
        self._came = asyncio.Event()

    def adjust(self) -> None:
        """Keep the credit as it is: the size of a batch decides it."""

    def _take(self, offer: OfferView) -> None:
        self._held.append((offer, time.monotonic() + offer.accept_in_ms / 1_000))
        self._came.set()
        if len(self._held) >= self._batch.size:
            self._full.set()

    async def _slot(self) -> None:
        """Run one batch after another."""
        while not self._stopping:
            self._came.clear()
            if not self._held:
                await self._came.wait()
            await self._linger()
            attempts = await self._accept_all()
            if not attempts:
                continue
            self.running += 1
            try:
                await self._run(attempts)
            finally:
                self.running -= 1

    async def _linger(self) -> None:
        """Wait for a batch to be full, for as long as the task says."""
        self._full.clear()
        if len(self._held) < self._batch.size and self._batch.linger_s:
            try:
                async with asyncio.timeout(self._batch.linger_s):
                    await self._full.wait()
            except TimeoutError:
                return

    async def _accept_all(self) -> list[Attempt]:
        """Accept what is held, up to a batch, in one request."""
        taken: list[Attempt] = []
        while self._held and len(taken) < self._batch.size:
            offer, lapses_at = self._held.popleft()
            if time.monotonic() < lapses_at:
                taken.append(Attempt(offer, self._batch.task, self._host.app, self._host.reports))
        begun = await self._begin_all(taken) if taken else []
        if self._stopping:
            self._release(begun)
            return []
        return begun

    async def _begin_all(self, taken: list[Attempt]) -> list[Attempt]:
        """Return the attempts that the server let begin."""
        left = len(taken)
        begun: list[Attempt] = []
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(attempt: Attempt, answer: ReportEntry | Exception, sent_at: float) -> None:
            nonlocal left
            left -= 1
            if not isinstance(answer, Exception) and answer.report is not None and self._host.begin(attempt, sent_at):
                begun.append(attempt)
            if not left and not answered.done():
                answered.set_result(None)

        for attempt in taken:
            self._host.reports.submit(reports.accept(attempt.token), functools.partial(settle, attempt))
        try:
            await asyncio.shield(answered)
        except asyncio.CancelledError:
            answered.add_done_callback(lambda _: self._release(begun))
            raise
        return begun

    def _release(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            self._host.release(attempt)

    async def _run(self, attempts: list[Attempt]) -> None:
        """Call the function with the items of all attempts, and end each with its own result."""
        sound, items = await self._read(attempts)
        if not sound:
            return
        try:
            results = await self._call(sound, items)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and any(attempt.stop is not None for attempt in sound):
                self._stopped(sound)
                return
            runner = asyncio.current_task()
            assert runner is not None
            if not is_of_task(error, runner):
                self._stopped(sound)
                raise
            for attempt in sound:
                await self._fail(attempt, error)
        else:
            for attempt, result in zip(sound, results, strict=True):
                await self._end(attempt, result)

    async def _read(self, attempts: list[Attempt]) -> tuple[list[Attempt], list[Any]]:
        """Return the attempts whose items fit the task, and the items; fail the others."""
        now = time.monotonic()
        items: list[Any] = []
        sound: list[Attempt] = []
        for attempt in attempts:
            attempt.started = now
            if not attempt.leased:
                self._host.end(attempt, Outcome("lost", None))
                continue
            try:
                (item,), _ = attempt.task.signature.decode(attempt.offer.payload)
            except ArgumentsInvalid as error:
                await self._fail(attempt, error)
            else:
                items.append(item)
                sound.append(attempt)
        return sound, items

    async def _call(self, attempts: list[Attempt], items: list[Any]) -> list[Any]:
        runner = asyncio.current_task()
        for attempt in attempts:
            attempt.runner = runner
            attempt.shared = True
        try:
            results: Any
            if self._batch.task.is_async:
                results = await self._batch.many(items)
            else:
                results = await self._host.call_in_thread(self._batch.many, items)
        finally:
            for attempt in attempts:
                attempt.runner = None
            while runner is not None and runner.cancelling() and any(one.stop is not None for one in attempts):
                runner.uncancel()
        if not isinstance(results, list) or len(results) != len(items):
            shown = f"{len(results)} results" if isinstance(results, list) else repr(type(results).__name__)
            raise ResultInvalid(f"Batch task {self._batch.name} returned {shown} for {len(items)} items.")
        return results

    async def _end(self, attempt: Attempt, result: Any) -> None:  # noqa: ANN401 - of any type
        if isinstance(result, Exception):
            await self._fail(attempt, result)
            return
        try:
            encoded = sized(attempt.task, result)
        except ResultInvalid as error:
            await self._fail(attempt, error)
            return
        self._host.end(attempt, Outcome("done", reports.complete(attempt.token, encoded)))

    async def _fail(self, attempt: Attempt, error: BaseException) -> None:
        self._host.end(attempt, await self._host.failed(attempt, error))

    def _stopped(self, attempts: list[Attempt]) -> None:
        """One of the attempts was stopped, and so was the call that they share: the others go back at no cost."""
        for attempt in attempts:
            self._host.end(attempt, self._host.stopped(attempt))
