"""Routes by which jobs come in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from penstock.domain.errors import PenstockError
from penstock.domain.job_errors import IdempotencyKeyReused, JobRefused
from penstock.domain.job_request import JobRequest, check_name
from penstock.server.jobs.call import Batch, Call, Parameter, Route, answer_json, read_body
from penstock.server.jobs.turning_away import TurningAway
from penstock.wire.jobs.answers import Accepted, BatchAnswer, BatchEntry, Problem, label
from penstock.wire.jobs.problems import problem_of
from penstock.wire.jobs.shapes import JobTexts, LooseJob, NewJob, NewJobs, job_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engine.jobs.enqueueing import Outcome, Stored
    from penstock.engine.jobs.jobs import Jobs
    from penstock.server.jobs.access import Caller
    from penstock.server.jobs.call import Refuse
    from penstock.server.jobs.observer import Observer
    from penstock.wire.http import Request, Response

_decode_job = msgspec.json.Decoder(NewJob)
_decode_loose = msgspec.json.Decoder(LooseJob)
_batch: Batch[NewJob] = Batch(NewJobs, JobTexts, NewJob, "jobs")
_REPLAYED = ("idempotency-replayed", "true")
_KEY = Parameter(
    "Idempotency-Key",
    "Makes a repeated request find the first one's job. `X-Idempotency-Key` is read too.",
    {"type": "string", "minLength": 1, "maxLength": 200},
    "header",
)
_CORRELATION = Parameter(
    "X-Correlation-Id",
    "Kept with the job and handed to its worker; made up if it is absent.",
    {"type": "string", "minLength": 1, "maxLength": 200},
    "header",
)
_FIRST_TRY = Parameter(
    "Penstock-First-Try",
    "`true` says that the `id` was made for this request, never sent before: a flood of such is refused sooner.",
    {"type": "string", "enum": ["true"]},
    "header",
)
_TRACE = Parameter("traceparent", "The W3C trace that the job belongs to.", {"type": "string"}, "header")


class EnqueueRoutes:
    """Jobs come in one by one, in batches, or in the simplest form."""

    def __init__(self, jobs: Jobs, observer: Observer) -> None:
        self._observer = observer
        self._enqueueing = jobs.enqueueing
        self._limits = jobs.limits
        self._turning_away = TurningAway()

    def routes(self) -> list[Route]:
        """List the routes."""
        headers = (_KEY, _CORRELATION, _FIRST_TRY, _TRACE)
        return [
            Route(
                method="POST",
                path="/v1/jobs",
                name="EnqueueJob",
                summary="Enqueue a job. 202 if it is new; 200 if its key or unique key stood for a job already.",
                handler=self._enqueue,
                begin=self._begin,
                body=NewJob,
                answers={202: Accepted, 200: Accepted},
                parameters=headers,
            ),
            Route(
                method="POST",
                path="/v1/jobs/batch",
                name="EnqueueJobs",
                summary="Enqueue jobs, each judged by itself.",
                handler=self._enqueue_batch,
                body=NewJobs,
                answers={200: BatchAnswer},
                parameters=(_CORRELATION, _TRACE),
            ),
            Route(
                method="POST",
                path="/enqueue",
                name="EnqueueLoosely",
                summary="Enqueue a job in the simplest form.",
                handler=self._enqueue_loosely,
                body=LooseJob,
                answers={202: Accepted, 200: Accepted},
                parameters=headers,
            ),
        ]

    def _begin(self, request: Request, caller_of: Callable[[], Caller], refuse: Refuse) -> bool:
        """Refuse a job by what is known here already: a flood is to cost far less than what is taken."""
        if not self._enqueueing.refuses or self._observer.tracing:
            return False
        caller = caller_of()
        job = read_body(request, _decode_job)
        caller.need_queue(job.queue)
        chosen_id = None if _is_first_try(request.headers) else job.id
        keys = (chosen_id, job.idempotency_key, job.unique_key, _key_of(request.headers))
        if keys != (None, None, None, None):
            return False  # It may be known.
        refused = self._enqueueing.foresee(job.queue, caller.tenant_for(job.tenant))
        if refused is None:
            return False
        self._observer.counters.count_enqueued(refused)
        self._turning_away.hold(partial(refuse, refused), len(request.body))
        return True

    async def _enqueue(self, call: Call) -> Response:
        return await self._enqueue_one(call, call.body(_decode_job))

    async def _enqueue_loosely(self, call: Call) -> Response:
        return await self._enqueue_one(call, call.body(_decode_loose))

    async def _enqueue_one(self, call: Call, job: NewJob | LooseJob) -> Response:
        call.caller.need_queue(job.queue)
        try:
            with self._observer.sending(call, job.queue) as sending:
                request = self._request(call, job, sending.trace, by_header=True)
                first_try = _is_first_try(call.request.headers)
                stored = await self._enqueueing.enqueue(job.queue, request, first_try=first_try)
                sending.became(stored, request.correlation_id)
        except JobRefused:
            await self._turning_away.pause(len(call.request.body))
            raise
        return _accepted(stored)

    async def _enqueue_batch(self, call: Call) -> Response:
        given = _batch.read(call.request)
        entries: dict[int, BatchEntry] = {}
        jobs: dict[int, NewJob] = {}
        for place, job in enumerate(given):
            if isinstance(job, Problem):
                entries[place] = BatchEntry(status=job.status, problem=job)
            else:
                jobs[place] = job
        for place, outcome in zip(jobs, await self._enqueue_several(call, list(jobs.values())), strict=True):
            entries[place] = batch_entry(outcome)
        return answer_json(BatchAnswer(results=[entries[place] for place in range(len(given))]))

    async def _enqueue_several(self, call: Call, jobs: list[NewJob]) -> list[Outcome]:
        if not jobs:
            return []
        queues = {job.queue for job in jobs}
        for queue in queues:
            call.caller.need_queue(queue)
        with self._observer.sending(call, queues.pop() if len(queues) == 1 else "", len(jobs)) as sending:
            entries = [(job.queue, self._request(call, job, sending.trace, by_header=False)) for job in jobs]
            outcomes = await self._enqueueing.enqueue_batch(entries)
            for (_, request), outcome in zip(entries, outcomes, strict=True):
                sending.became(outcome, request.correlation_id)
        return outcomes

    def _request(self, call: Call, job: NewJob | LooseJob, trace: str | None, *, by_header: bool) -> JobRequest:
        headers = call.request.headers
        request = job_request(job, trace=trace, correlation_id=call.correlation_id)
        tenant = call.caller.tenant_for(request.tenant)
        if tenant != request.tenant:
            request = msgspec.structs.replace(request, tenant=tenant)
        if not by_header:
            return request
        key = _key_of(headers)
        if key is None:
            return request
        check_name("Idempotency-Key", key, self._limits)
        if request.idempotency_key not in {None, key}:
            raise IdempotencyKeyReused("The idempotency keys in the header and in the body differ.")
        return msgspec.structs.replace(request, idempotency_key=key)


def _key_of(headers: Mapping[str, str]) -> str | None:
    return headers.get("idempotency-key", headers.get("x-idempotency-key"))


def _is_first_try(headers: Mapping[str, str]) -> bool:
    return headers.get("penstock-first-try") == "true"


def _accepted(stored: Stored) -> Response:
    told = _told(stored)
    headers = [("location", f"/v1/jobs/{stored.job_id}")]
    if stored.replayed:
        headers.append(_REPLAYED)
    new = not (stored.replayed or stored.duplicate)
    return answer_json(told, *headers, status=202 if new else 200)


def _told(stored: Stored) -> Accepted:
    if stored.result is None:
        return Accepted(
            id=stored.job_id,
            queue=stored.queue,
            state=label(stored.state),
            replayed=stored.replayed,
            duplicate=stored.duplicate,
            replaced=stored.replaced,
        )
    return Accepted(
        id=stored.job_id, queue=stored.queue, state=label(stored.state), replayed=True, result=Raw(stored.result)
    )


def batch_entry(outcome: Stored | PenstockError) -> BatchEntry:
    """Show what became of one of several jobs."""
    if isinstance(outcome, PenstockError):
        problem = problem_of(outcome)
        return BatchEntry(status=problem.status, problem=problem)
    new = not (outcome.replayed or outcome.duplicate)
    return BatchEntry(status=202 if new else 200, job=_told(outcome))
