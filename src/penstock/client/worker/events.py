"""Events of an attempt: kept in the worker, and sent in batches before the attempt ends."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.errors import ClientError, error_of
from penstock.client.reading import new_id
from penstock.client.tasks.context import STEP
from penstock.client.worker.reports import publish

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from penstock.client.app import Penstock
    from penstock.client.worker.reports import Reports

FLUSH_S = 0.2
FLUSH_COUNT = 50
FLUSH_BYTES = 64 * 1024
WAITING_BYTES_MAX = 4 * 1024 * 1024
"""How much may wait to be sent; a task that publishes more than the server takes fails."""


class AttemptEvents:
    """What one attempt has published. Nothing of it mixes with another attempt's: it is sent under its own lease."""

    def __init__(self, app: Penstock, reports: Reports, job_id: str, token: str) -> None:
        self._app = app
        self._reports = reports
        self._job_id = job_id
        self._token = token
        self._loop = reports.loop
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._failure: ClientError | None = None
        self._sending = asyncio.Lock()
        """Held while events are sent. Whoever gets it knows that what was taken before is stored, or has failed."""

    # -- what tasks call, from any thread -----------------------------------------------------------

    def add(self, kind: str, data: bytes) -> None:
        """Keep an event until the next flush."""
        if self._failure is not None:
            raise self._failure
        event = _written(kind, data, new_id())
        if self._bytes + len(event) > WAITING_BYTES_MAX:
            raise ValueError(f"More than {WAITING_BYTES_MAX} bytes of events wait to be sent.")
        self._waiting.append(event)
        self._bytes += len(event)
        if len(self._waiting) == 1 or len(self._waiting) == FLUSH_COUNT or self._bytes > FLUSH_BYTES:
            self._loop.call_soon_threadsafe(self._plan)

    async def record(self, step: str, result: bytes) -> None:
        """Return once the result of a step is durable. What was published before it is, too."""
        data = b'{"name":%b,"result":%b}' % (msgspec.json.encode(step), result)
        self._waiting.append(_written(STEP, data, f"{STEP}:{step}"))
        await self.flush()

    async def recorded(self) -> dict[str, msgspec.Raw]:
        """Return the results of all steps of this job that are recorded."""
        steps: dict[str, msgspec.Raw] = {}
        after = 0
        while True:
            page = await self._app.jobs.events(self._job_id, after=after, kinds=[STEP], limit=500)
            for event in page.events:
                step = _decode_step(event.data)
                steps[step.name] = step.result
            if page.complete:
                return steps
            after = page.after

    def record_sync(self, step: str, result: bytes) -> None:
        """As `record`, from a thread."""
        self._wait(self.record(step, result))

    def recorded_sync(self) -> dict[str, msgspec.Raw]:
        """As `recorded`, from a thread."""
        found: dict[str, msgspec.Raw] = self._wait(self.recorded())
        return found

    # -- what the worker calls ----------------------------------------------------------------------

    async def flush(self) -> None:
        """Return once all events are stored; raises what the server refused them for, or a `TransportError`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        async with self._sending:
            if self._failure is not None:
                raise self._failure
            while self._waiting:
                await self._send()

    def close(self) -> None:
        """Drop what waits: the attempt is over."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        self._bytes = 0

    def _plan(self) -> None:
        if self._flushing is not None and not self._flushing.done():
            return
        if len(self._waiting) >= FLUSH_COUNT or self._bytes > FLUSH_BYTES:
            self._begin()
        elif self._waiting and self._timer is None:
            self._timer = self._loop.call_later(FLUSH_S, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and (self._flushing is None or self._flushing.done()):
            self._flushing = self._loop.create_task(self._flush_behind())

    async def _flush_behind(self) -> None:
        # What the server refuses fails the attempt: at the next event, or at its end.
        with contextlib.suppress(ClientError):
            await self.flush()

    async def _send(self) -> None:
        taken, self._waiting, self._bytes = self._waiting, [], 0
        try:
            answer = await self._reports.ask(publish(self._token, taken))
            if answer.problem is not None:
                raise error_of(answer.problem)
        except ClientError as error:
            # Others may wait for events that were among these.
            self._failure = error
            raise

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - whatever the work returns
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Step(msgspec.Struct, frozen=True):
    name: str
    result: msgspec.Raw = msgspec.Raw(b"null")


_decode_step = msgspec.json.Decoder(_Step).decode


def _written(kind: str, data: bytes, event_id: str) -> bytes:
    return b'{"kind":%b,"data":%b,"id":%b}' % (msgspec.json.encode(kind), data, msgspec.json.encode(event_id))
