"""Concurrent enqueues of one event loop, gathered into few requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from penstock.client.calls import FIRST_TRY, Call
from penstock.client.errors import error_of
from penstock.client.reading import reader
from penstock.client.slices import BYTES_MAX, JOBS_MAX
from penstock.wire.jobs.answers import Accepted, BatchAnswer, BatchEntry

if TYPE_CHECKING:
    from penstock.client.verbs.caller import Caller

_read_accepted = reader(Accepted)
_read_batch = reader(BatchAnswer)


class GatheredEnqueues:
    """Sends what comes while a request is under way with the next one. There is no timer, so a lone call does not wait.

    What is enqueued may be stored although its caller was cancelled, as with any request.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

    async def enqueue(self, entry: bytes) -> Accepted:
        """Enqueue a job as `written` writes it; raises what `Jobs.enqueue` raises."""
        loop = asyncio.get_running_loop()
        line = self._loops.get(loop)
        if line is None:
            line = self._loops[loop] = _Line(self._caller)
        return await line.enqueue(entry)


class _Line:
    """Those of one event loop."""

    def __init__(self, caller: Caller) -> None:
        # Nothing here may hold the loop, or it would never be freed.
        self._caller = caller
        self._waiting: list[tuple[bytes, asyncio.Future[Accepted]]] = []
        self._sending = False

    async def enqueue(self, entry: bytes) -> Accepted:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Accepted] = loop.create_future()
        self._waiting.append((entry, answer))
        if not self._sending:
            # A task begins after all that is ready now, so callers that go on at the same time share a request.
            self._sending = True
            sending = loop.create_task(self._send_waiting())
            _under_way.add(sending)
            sending.add_done_callback(_under_way.discard)
        return await answer

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                await self._send(self._take())
        finally:
            self._sending = False
            for _, answer in self._waiting:  # Only if this task is cancelled, as the loop ends.
                answer.cancel()
            self._waiting.clear()

    def _take(self) -> list[tuple[bytes, asyncio.Future[Accepted]]]:
        """Take as many as one request may hold; one that is too large by itself is left to the server to refuse."""
        waiting = self._waiting
        if len(waiting) <= JOBS_MAX and sum(len(entry) for entry, _ in waiting) <= BYTES_MAX:
            self._waiting = []
            return waiting
        count = size = 0
        for entry, _ in waiting[:JOBS_MAX]:
            size += len(entry) + 1
            if count and size > BYTES_MAX:
                break
            count += 1
        self._waiting = waiting[count:]
        return waiting[:count]

    async def _send(self, taken: list[tuple[bytes, asyncio.Future[Accepted]]]) -> None:
        try:
            entries = await self._ask([entry for entry, _ in taken])
        except BaseException as error:
            for _, answer in taken:
                if not answer.done():
                    answer.cancel() if isinstance(error, asyncio.CancelledError) else answer.set_exception(_own(error))
            if not isinstance(error, Exception):
                raise
        else:
            for (_, answer), entry in zip(taken, entries, strict=True):
                _settle(answer, entry)

    async def _ask(self, entries: list[bytes]) -> list[BatchEntry]:
        if len(entries) == 1:
            call = Call("POST", "/v1/jobs", _read_accepted, entries[0], first_headers=FIRST_TRY)
            stored = await self._caller.perform(call, None)
            return [BatchEntry(status=202, job=stored)]
        body = b'{"jobs":[%b]}' % b",".join(entries)
        return (await self._caller.perform(Call("POST", "/v1/jobs/batch", _read_batch, body), None)).results


_under_way: set[asyncio.Task[None]] = set()


def _own(error: BaseException) -> BaseException:
    """Return an error like this one for one of its callers: what they add to it is not for the others."""
    own = type(error).__new__(type(error), *error.args)
    own.args = error.args
    own.__dict__.update(error.__dict__)
    own.__cause__, own.__suppress_context__ = error.__cause__, error.__suppress_context__
    return own.with_traceback(error.__traceback__)


def _settle(answer: asyncio.Future[Accepted], entry: BatchEntry) -> None:
    if answer.done():
        return
    if entry.job is not None:
        answer.set_result(entry.job)
    else:
        assert entry.problem is not None, "an entry is a job or a problem"
        # The caller has one job, and no place among others.
        field = entry.problem.field
        own = field.partition("].")[2] if field.startswith("jobs[") else field
        answer.set_exception(error_of(msgspec.structs.replace(entry.problem, field=own)))
