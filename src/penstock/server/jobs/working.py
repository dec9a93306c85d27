"""Routes of workers: they are offered jobs, and report on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.job_errors import JobError, JobInvalid
from penstock.server.jobs.call import Batch, Call, Parameter, Route, Streamed, answer_json
from penstock.server.jobs.streaming import NDJSON, offer_lines
from penstock.store.job_port import (
    Accept,
    Complete,
    Fail,
    Heartbeat,
    NewEvent,
    Publish,
    Release,
    Report,
    Reported,
    Snooze,
)
from penstock.wire.jobs import shapes
from penstock.wire.jobs.answers import (
    CreditView,
    EventView,
    OffersView,
    Problem,
    ReportEntry,
    ReportsAnswer,
    ReportView,
    label,
)
from penstock.wire.jobs.problems import problem_of
from penstock.wire.jobs.views import event_view, offer_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.domain.ids import IdSource
    from penstock.domain.job import Lease, Offer
    from penstock.engine.jobs.jobs import Jobs
    from penstock.server.jobs.observer import Observer
    from penstock.wire.http import Response
    from penstock.wire.jobs.tokens import LeaseTokens

_decode_dequeue = msgspec.json.Decoder(shapes.Dequeue)
_decode_credit = msgspec.json.Decoder(shapes.Credit)
_decode_result = msgspec.json.Decoder(shapes.Result)
_decode_fault = msgspec.json.Decoder(shapes.Fault)
_decode_delay = msgspec.json.Decoder(shapes.Delay)
_decode_event = msgspec.json.Decoder(shapes.NewEvent)
_reports: Batch[shapes.AnyReport] = Batch(shapes.Reports, shapes.ReportTexts, shapes.AnyReport, "reports")

_VERBS: dict[str, tuple[str, type | None, Callable[[Call, Lease], Report]]] = {
    "accept": ("Begin the attempt that was offered.", None, lambda _, lease: Accept(lease)),
    "heartbeat": ("Say that the worker is alive: the lease is extended.", None, lambda _, lease: Heartbeat(lease)),
    "complete": (
        "The attempt succeeded.",
        shapes.Result,
        lambda call, lease: Complete(lease, bytes(call.body(_decode_result).result)),
    ),
    "fail": (
        "The attempt failed.",
        shapes.Fault,
        lambda call, lease: Fail(lease, call.body(_decode_fault).failure()),
    ),
    "release": ("Give the job back; it costs no attempt.", None, lambda _, lease: Release(lease)),
    "snooze": (
        "Put the job off; it costs no attempt.",
        shapes.Delay,
        lambda call, lease: Snooze(lease, call.body(_decode_delay).delay_ms),
    ),
}


class WorkRoutes:
    """What workers ask for and say."""

    def __init__(self, jobs: Jobs, tokens: LeaseTokens, ids: IdSource, observer: Observer) -> None:
        self._observer = observer
        self._jobs = jobs
        self._tokens = tokens
        self._ids = ids

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route(
                method="POST",
                path="/v1/dequeue",
                name="Dequeue",
                summary="Be offered jobs: once, by a long poll; or, accepting application/x-ndjson, as a stream.",
                handler=self._dequeue,
                body=shapes.Dequeue,
                answers={200: OffersView},
                streamed=NDJSON,
                parameters=(
                    Parameter(
                        "Accept",
                        f"`{NDJSON}` asks for a stream.",
                        {"type": "string", "enum": ["application/json", NDJSON]},
                        "header",
                    ),
                ),
            ),
            Route(
                method="POST",
                path="/v1/dequeue/{stream}/credit",
                name="AddCredit",
                summary="Change how many jobs a stream's worker may have at the same time.",
                handler=self._add_credit,
                body=shapes.Credit,
                answers={200: CreditView},
            ),
            Route(
                method="POST",
                path="/v1/leases",
                name="ReportBatch",
                summary="Make reports, each in its own right.",
                handler=self._report_batch,
                body=shapes.Reports,
                answers={200: ReportsAnswer},
            ),
            *(self._verb(verb) for verb in _VERBS),
            Route(
                method="POST",
                path="/v1/jobs/{id}/events",
                name="PublishEvent",
                summary="Publish an event of the attempt that runs under a lease.",
                handler=self._publish,
                body=shapes.NewEvent,
                answers={201: EventView},
            ),
        ]

    def _verb(self, verb: str) -> Route:
        summary, body, make = _VERBS[verb]

        async def handle(call: Call) -> Response:
            report = make(call, self._tokens.decode(call.path["token"]))
            [answer] = await self._report(call, [report])
            if isinstance(answer, PenstockError):
                raise answer
            return answer_json(self._told(answer))

        return Route(
            method="POST",
            path=f"/v1/leases/{{token}}/{verb}",
            name=verb.capitalize(),
            summary=summary,
            handler=handle,
            body=body,
            answers={200: ReportView},
        )

    async def _dequeue(self, call: Call) -> Response | Streamed:
        wanted = call.body(_decode_dequeue)
        for name in wanted.queues:
            call.caller.need_queue(name)
        if NDJSON in call.request.headers.get("accept", ""):
            return await self._stream(call, wanted)
        offering = self._jobs.offering
        offers = await offering.poll(
            wanted.queues,
            count=wanted.count,
            worker=wanted.worker,
            wait_ms=wanted.wait_ms,
            tasks=wanted.tasks,
            call=_key(call, wanted),
        )
        encode = self._tokens.encode
        answer = answer_json(
            OffersView(offers=[offer_view(offer, encode(offer.lease)) for offer in offers], drain=self._jobs.draining)
        )
        if offers:
            self._observer.offered(offers, wanted.worker, call.request.headers)

            async def undelivered() -> None:
                offering.give_back(offers)

            answer.undelivered = undelivered
        return answer

    async def _stream(self, call: Call, wanted: shapes.Dequeue) -> Streamed:
        # What is wrong is told while there is still a status to tell it with.
        for name in wanted.queues:
            await self._jobs.queues.find_or_create(name)
        stream = self._jobs.streams.open(
            wanted.queues, credit=wanted.count, worker=wanted.worker, tasks=wanted.tasks, call=_key(call, wanted)
        )

        def offered(offers: list[Offer]) -> None:
            self._observer.offered(offers, wanted.worker, call.request.headers)

        return Streamed(content_type=NDJSON, chunks=offer_lines(stream, self._tokens, offered), closed=stream.close)

    async def _add_credit(self, call: Call) -> Response:
        change = call.body(_decode_credit)
        stream = self._jobs.streams.find(call.path["stream"])
        stream.add_credit(change.add, call=call.key(change.request_id, "credit"))
        return answer_json(CreditView(credit=stream.credit, taken=stream.taken))

    async def _report_batch(self, call: Call) -> Response:
        given = _reports.read(call.request)
        entries: dict[int, ReportEntry] = {}
        reports: dict[int, Report] = {}
        for place, report in enumerate(given):
            if isinstance(report, Problem):
                entries[place] = ReportEntry(status=report.status, problem=report)
                continue
            try:
                reports[place] = self._read_report(report)
            except JobError as error:
                entries[place] = _refused(error)
        answers = await self._report(call, list(reports.values())) if reports else []
        for place, answer in zip(reports, answers, strict=True):
            if isinstance(answer, PenstockError):
                entries[place] = _refused(answer)
            else:
                entries[place] = ReportEntry(status=200, report=self._told(answer))
        return answer_json(ReportsAnswer(results=[entries[place] for place in range(len(given))]))

    def _read_report(self, report: shapes.AnyReport) -> Report:
        lease = self._tokens.decode(report.token)
        if isinstance(report, shapes.PublishReport):
            ids = self._ids
            events = (NewEvent(one.id or ids.new_id(), one.kind, bytes(one.data)) for one in report.events)
            return Publish(lease, tuple(events))
        return _state_report(report, lease)

    async def _report(self, call: Call, reports: list[Report]) -> list[Reported | JobError]:
        with self._observer.reporting(call, reports) as reporting:
            answers = await self._jobs.reports.report_batch(reports)
            await reporting.answered(answers)
        return answers

    async def _publish(self, call: Call) -> Response:
        event = call.body(_decode_event)
        if event.id is not None and event.request_id is not None:
            raise JobInvalid("An event has an id or a request_id, which mean the same.", "request_id")
        lease = self._tokens.decode(event.token)
        if lease.job_id != call.path["id"]:
            raise JobInvalid("The token is of another job.", "token")
        event_id = event.id or event.request_id or self._ids.new_id()
        published = await self._jobs.reports.publish(lease, event_id, event.kind, bytes(event.data))
        return answer_json(event_view(published), status=201)

    def _told(self, answer: Reported) -> ReportView:
        return ReportView(
            state=label(answer.state),
            attempt=answer.attempt,
            until_ms=answer.until_ms,
            lease_ms=answer.lease_ms,
            cancel=answer.cancel_requested,
            drain=self._jobs.draining,
        )


def _key(call: Call, wanted: shapes.Dequeue) -> str | None:
    """Return what identifies a poll, or a stream across its connections."""
    return call.key(wanted.request_id, "dequeue", wanted.worker)


def _state_report(report: shapes.StateReport, lease: Lease) -> Report:
    match report:
        case shapes.AcceptReport():
            return Accept(lease)
        case shapes.HeartbeatReport():
            return Heartbeat(lease)
        case shapes.CompleteReport():
            return Complete(lease, bytes(report.result))
        case shapes.FailReport():
            return Fail(lease, report.failure.failure())
        case shapes.ReleaseReport():
            return Release(lease)
        case shapes.SnoozeReport():
            return Snooze(lease, report.delay_ms)


def _refused(error: PenstockError) -> ReportEntry:
    problem = problem_of(error)
    return ReportEntry(status=problem.status, problem=problem)
