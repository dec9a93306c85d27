"""Reports: what workers say about the attempts that they hold leases of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.job_errors import JobError, JobInvalid, JobTooLarge
from penstock.domain.job_request import check_name, check_range, check_size
from penstock.store.job_port import Complete, Fail, Publish, Report, Reported, Snooze

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.job import Failure, JobEvent, Lease
    from penstock.domain.job_limits import JobLimits
    from penstock.engine.jobs.offering import Offering
    from penstock.engine.jobs.streams import Streams
    from penstock.store.job_port import JobStore

OWN_KINDS = "job."
RESERVED_KINDS = frozenset({"end", "problem"})
"""What the service itself tells on a stream of events; nobody else shall be able to say that a job is finished."""


class Reports:
    """Takes reports in. `expect` is called with how soon, in ms, something may happen to a job by itself."""

    def __init__(
        self,
        store: JobStore,
        offering: Offering,
        streams: Streams,
        clock: Clock,
        limits: JobLimits,
        expect: Callable[[int], None],
    ) -> None:
        self._store = store
        self._offering = offering
        self._streams = streams
        self._clock = clock
        self._limits = limits
        self._expect = expect

    async def report(self, report: Report) -> Reported:
        """Take in one report."""
        (answer,) = await self.report_batch([report])
        if isinstance(answer, PenstockError):
            try:
                raise answer
            finally:
                # It knows this frame by now, and a circle would keep the report until the collector comes by.
                del answer
        return answer

    async def report_batch(self, reports: Sequence[Report]) -> list[Reported | JobError]:
        """Take in reports, each in its own right, all in one transaction."""
        if not 1 <= len(reports) <= self._limits.batch_reports_max:
            raise JobInvalid(f"A batch has 1 to {self._limits.batch_reports_max} reports.", "reports")
        if sum(len(one.events) for one in reports if isinstance(one, Publish)) > self._limits.batch_events_max:
            raise JobInvalid(f"A batch publishes at most {self._limits.batch_events_max} events.", "reports")
        answers: dict[int, Reported | JobError] = {}
        sound: dict[int, Report] = {}
        for place, report in enumerate(reports):
            try:
                sound[place] = self._checked(report)
            except JobError as error:
                answers[place] = error.with_traceback(None)
        if sound:
            found = await self._store.report(list(sound.values()))
            for (place, report), answer in zip(sound.items(), found, strict=True):
                self._offering.answered(report.lease)
                self._streams.heard(report, answer)
                answers[place] = answer
            self._expect_next(found)
        return [answers[place] for place in range(len(reports))]

    async def publish(self, lease: Lease, event_id: str, kind: str, data: bytes) -> JobEvent:
        """Add an event to the job that runs under a lease. The same id again is the same event."""
        self._check_event(event_id, kind, data)
        event = await self._store.publish(lease, event_id, kind, data)
        self._streams.heard_of_event(lease)
        return event

    def _check_event(self, event_id: str, kind: str, data: bytes) -> None:
        check_name("kind", kind, self._limits)
        if kind in RESERVED_KINDS or kind.startswith(OWN_KINDS):
            raise JobInvalid(f"Events of the kind {kind!r} are the service's own.", "kind")
        check_name("id", event_id, self._limits)
        check_size("data", len(data), self._limits.event_bytes_max)

    def _check_events(self, report: Publish) -> None:
        if not report.events:
            raise JobInvalid("There is no event to publish.", "events")
        for place, event in enumerate(report.events):
            try:
                self._check_event(event.id, event.kind, event.data)
            except (JobInvalid, JobTooLarge) as error:
                error.field = f"events[{place}].{error.field}"
                raise

    def _checked(self, report: Report) -> Report:
        if isinstance(report, Complete):
            check_size("result", len(report.result), self._limits.result_bytes_max)
        elif isinstance(report, Snooze):
            check_range("delay_ms", report.delay_ms, 0, self._limits.delay_ms_max)
        elif isinstance(report, Fail):
            failure = report.failure
            check_name("kind", failure.kind, self._limits)
            if failure.retry_after_ms is not None:
                check_range("retry_after_ms", failure.retry_after_ms, 0, self._limits.delay_ms_max)
            report = Fail(report.lease, cut_failure(failure, self._limits.failure_bytes_max))
        elif isinstance(report, Publish):
            self._check_events(report)
        return report

    def _expect_next(self, answers: Sequence[Reported | JobError]) -> None:
        """Note when the first of these leases lapses, or the first of these jobs is due."""
        instants = [answer.until_ms for answer in answers if isinstance(answer, Reported)]
        until_ms = min((at_ms for at_ms in instants if at_ms is not None), default=None)
        if until_ms is not None:
            self._expect(until_ms - self._clock.wall_ms())


def cut_failure(failure: Failure, bytes_max: int) -> Failure:
    """Cut off what is beyond the limit: a long stack trace must not keep a failure from being told."""
    message = _cut(failure.message, bytes_max)
    details = _cut(failure.details, bytes_max - len(message.encode()))
    return msgspec.structs.replace(failure, message=message, details=details)


def _cut(text: str, bytes_max: int) -> str:
    return text if len(text.encode()) <= bytes_max else text.encode()[:bytes_max].decode(errors="ignore")
