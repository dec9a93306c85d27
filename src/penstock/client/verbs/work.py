"""What workers do: take offers, report on them, publish events."""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any, Self

import msgspec

from penstock.client.calls import Call
from penstock.client.errors import LeaseLost, error_of
from penstock.client.reading import Line, Lines, body, decoder, encode, new_id, reader, segment
from penstock.client.transport.http1 import Outgoing
from penstock.wire.jobs.answers import (
    CreditView,
    EventView,
    OffersView,
    ReportEntry,
    ReportsAnswer,
    ReportView,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from penstock.client.requests import Report
    from penstock.client.verbs.caller import Caller
    from penstock.wire.jobs.answers import StreamLine

LEASE_LOST = "urn:penstock:problem:lease-lost"
NDJSON = "accept: application/x-ndjson\r\n"

_read_offers = reader(OffersView)
_read_credit = reader(CreditView)
_read_report = reader(ReportView)
_read_event = reader(EventView)
_read_line = decoder(Line)


class _Verb(msgspec.Struct):
    """What a report that is JSON text does."""

    do: str


_decode_verb = msgspec.json.Decoder(_Verb).decode
_decode_report = msgspec.json.Decoder(ReportView).decode
_decode_reports = msgspec.json.Decoder(ReportsAnswer).decode


class Work:
    """The verbs of workers. A lease is named by the token of its offer."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def dequeue(
        self,
        queues: Sequence[str],
        *,
        count: int = 1,
        wait: float = 0.0,
        worker: str | None = None,
        tasks: Sequence[str] | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> OffersView:
        """Return offers of up to `count` jobs, after waiting up to `wait` seconds for the first.

        If the answer is lost, the same offers are asked for again.
        """
        given = {
            "queues": _names(queues),
            "count": count,
            "worker": worker,
            "tasks": tasks,
            "request_id": request_id or new_id(),
        }

        def request(left_s: float) -> Outgoing:
            return Outgoing("POST", "/v1/dequeue", body({**given, "wait_ms": int(left_s * 1_000)}), waits=True)

        call = Call("POST", "/v1/dequeue", _read_offers, request(wait).body)
        return await self._caller.perform(call.waiting(wait, request), timeout)

    def stream(
        self,
        queues: Sequence[str],
        *,
        credit: int = 1,
        worker: str | None = None,
        tasks: Sequence[str] | None = None,
        request_id: str | None = None,
        reopen: bool = True,
        timeout: float | None = None,
    ) -> OfferStream:
        """Return a stream of offers, to be opened with `async with`. Its worker has up to `credit` jobs at a time.

        With `reopen=False` it ends when the server ends it, and raises what broke it.
        """
        given = {
            "queues": _names(queues),
            "count": credit,
            "worker": worker,
            "tasks": tasks,
            "request_id": request_id or new_id(),
        }
        return OfferStream(self._caller, given, timeout, reopen=reopen)

    async def accept(self, token: str, *, timeout: float | None = None) -> ReportView:
        """Begin the attempt that was offered; raises `LeaseLost` if the offer has lapsed."""
        return await self._report(token, "accept", {}, timeout)

    async def heartbeat(self, token: str, *, timeout: float | None = None) -> ReportView:
        """Extend the lease; `cancel` in the answer asks the worker to stop."""
        return await self._report(token, "heartbeat", {}, timeout)

    async def complete(
        self,
        token: str,
        result: Any = None,  # noqa: ANN401 - any JSON
        *,
        timeout: float | None = None,
    ) -> ReportView:
        """End the attempt with a result."""
        return await self._report(token, "complete", {"result": result}, timeout)

    async def fail(
        self,
        token: str,
        kind: str,
        message: str | None = None,
        *,
        details: str | None = None,
        permanent: bool | None = None,
        retry_after_ms: int | None = None,
        timeout: float | None = None,
    ) -> ReportView:
        """End the attempt with a failure."""
        given = {
            "kind": kind,
            "message": message,
            "details": details,
            "permanent": permanent,
            "retry_after_ms": retry_after_ms,
        }
        return await self._report(token, "fail", given, timeout)

    async def snooze(self, token: str, delay_ms: int, *, timeout: float | None = None) -> ReportView:
        """Put the job off, at no cost of an attempt."""
        return await self._report(token, "snooze", {"delay_ms": delay_ms}, timeout)

    async def release(self, token: str, *, timeout: float | None = None) -> ReportView | None:
        """Give the job back, at no cost of an attempt; None if a try whose answer was lost has given it back."""
        path = f"/v1/leases/{segment(token)}/release"
        call = Call("POST", path, _read_release, done_on_repeat=(LeaseLost,))
        return await self._caller.perform(call, timeout)

    async def report(self, reports: Sequence[Report], *, timeout: float | None = None) -> list[ReportEntry]:
        """Make up to 500 reports, each in its own right and in order, and return what became of each.

        Reports that publish events have up to 1,000 of them together; those of one report are stored together or not
        at all.
        """
        return await self.report_written([encode(_with_ids(report)) for report in reports], timeout=timeout)

    async def report_written(self, reports: Sequence[bytes], *, timeout: float | None = None) -> list[ReportEntry]:
        """Make reports that are JSON text already, as `report` does."""

        def read(answer: bytes, repeated: bool) -> list[ReportEntry]:  # noqa: FBT001 - as `Call.read` takes it
            entries = _decode_reports(answer).results
            if not repeated:
                return entries
            return [
                ReportEntry(status=200) if _is_lost(entry) and _decode_verb(report).do == "release" else entry
                for report, entry in zip(reports, entries, strict=True)
            ]

        call = Call("POST", "/v1/leases", read, b'{"reports":[%b]}' % b",".join(reports))
        return await self._caller.perform(call, timeout)

    async def publish(
        self,
        job_id: str,
        token: str,
        kind: str,
        data: Any = None,  # noqa: ANN401 - any JSON
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> EventView:
        """Publish an event of the attempt that runs under a lease."""
        given = body({"token": token, "kind": kind, "data": data, "request_id": request_id or new_id()})
        call = Call("POST", f"/v1/jobs/{segment(job_id)}/events", _read_event, given)
        return await self._caller.perform(call, timeout)

    async def _report(self, token: str, verb: str, given: dict[str, Any], timeout: float | None) -> ReportView:
        sent = body(given) if given else b""
        call = Call("POST", f"/v1/leases/{segment(token)}/{verb}", _read_report, sent)
        return await self._caller.perform(call, timeout)


class OfferStream:
    """A stream of offers, opened anew under the same request id whenever it breaks, falls silent or is ended.

    Its lines are offers, and what the server says of the stream: its name, `held_back`, `drain`.
    """

    def __init__(self, caller: Caller, given: dict[str, Any], timeout: float | None, *, reopen: bool = True) -> None:
        self._caller = caller
        self._given = given
        self._timeout = timeout
        self._reopen = reopen
        self._open = AsyncExitStack()
        self.name: str | None = None
        """What the server that has the stream calls it; None while it is not open."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    def __aiter__(self) -> AsyncIterator[StreamLine]:
        return self._lines()

    async def add_credit(self, add: int, *, request_id: str | None = None, timeout: float | None = None) -> CreditView:
        """Change how many jobs the worker may have at a time; 0 says only that the worker is alive."""
        if self.name is None:
            raise RuntimeError("The stream is not open.")
        given = body({"add": add, "request_id": request_id or new_id()})
        call = Call("POST", f"/v1/dequeue/{segment(self.name)}/credit", _read_credit, given)
        return await self._caller.perform(call, timeout)

    def _request(self) -> Outgoing:
        return Outgoing("POST", "/v1/dequeue", body(self._given), NDJSON)

    async def _lines(self) -> AsyncIterator[StreamLine]:
        lines = Lines()
        opened = self._caller.follow if self._reopen else self._caller.follow_once
        parts = await self._open.enter_async_context(aclosing(opened(self._request, self._timeout)))
        async for part in parts:
            if part is None:
                lines, self.name = Lines(), None
                continue
            for text in lines.feed(part):
                if not text:
                    continue
                line = _read_line(text)
                if line.problem is not None:
                    raise error_of(line.problem)
                if line.stream is not None:
                    self.name = line.stream
                yield line


def _names(queues: Sequence[str]) -> list[str]:
    if isinstance(queues, str):
        raise TypeError(f"queues has to be a list of names, such as [{queues!r}].")
    return list(queues)


def _with_ids(report: Report) -> Report:
    """Name the events that have no id, so that a repeat publishes none of them twice."""
    if "events" not in report:
        return report
    return {**report, "events": [event if "id" in event else {**event, "id": new_id()} for event in report["events"]]}


def _read_release(answer: bytes, repeated: bool) -> ReportView | None:  # noqa: FBT001 - as `Call.read` takes it
    return _decode_report(answer) if answer or not repeated else None


def _is_lost(entry: ReportEntry) -> bool:
    return entry.problem is not None and entry.problem.type == LEASE_LOST
