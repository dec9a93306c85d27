"""Processes that hold work under a lease, stall, and report late: on a queue's messages, or on jobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from penstock.client.sqs.message import message_of
from penstock.client.sqs.problems import code_of, is_stale
from penstock.lab.consumer_settings import ConsumerSettings
from penstock.lab.endpoints import endpoint_of, sqs_of
from penstock.lab.handling import received_of
from penstock.lab.observing import Observer
from penstock.lab.payloads import short_receipt
from penstock.lab.tables.opening import open_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

HOLDER_VARIABLE = "LAB_HOLDER"
POLL_S = 0.5


class HolderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a holder is told beside the variables of every consumer."""

    work_s: float
    heartbeat_s: float = 0.0
    """How often the lease is extended during the work; 0 is never."""
    stall_s: float = 0.0
    """How long it stands still between its first work and the report, as a process does whose machine is paused."""
    idle_s: float
    job_queue: str = ""
    """The queue of jobs; without it, messages of the SQS queue are held."""
    fenced: bool = True
    """Whether a job's report goes by its token. Without, the result is written to a table that knows no leases."""


class Taken(NamedTuple):
    """A message or a job that is held."""

    id: str
    handle: str
    """What proves that it is held: a receipt handle, or the token of a lease."""
    facts: dict[str, object]


class Source(Protocol):
    """Where work comes from. `extend` and `report` return False if the lease has gone to another."""

    def take(self) -> tuple[Taken, int, int] | None:
        """Return work with how often it was taken and when its lease ends; None if there is none."""

    def extend(self, taken: Taken) -> int | None:
        """Extend the lease and return its end; None if it is over."""

    def report(self, taken: Taken) -> bool:
        """Report that the work is done; return whether that was accepted."""

    def close(self) -> None:
        """Close the connections."""


class Messages:
    """Messages of an SQS queue: the delete is the report, and the receipt handle is the token."""

    def __init__(self, settings: ConsumerSettings, observer: Observer) -> None:
        self._url = settings.queue_url
        self._observer = observer
        self._sqs = sqs_of(settings.queue_url, region=settings.aws_region or None)

    def take(self) -> tuple[Taken, int, int] | None:
        answer = self._sqs.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=1, WaitTimeSeconds=0, MessageSystemAttributeNames=["All"]
        )
        for received in answer.get("Messages", []):
            message = received_of(message_of(received, self._url))
            return Taken(message.id, message.receipt, message.facts), message.receives, self._until_ms()
        return None

    def extend(self, taken: Taken) -> int | None:
        seconds = self._observer.visibility_ms // 1_000
        return self._until_ms() if self._done("change_message_visibility", taken, VisibilityTimeout=seconds) else None

    def report(self, taken: Taken) -> bool:
        return self._done("delete_message", taken)

    def _done(self, call: str, taken: Taken, **more: Any) -> bool:  # noqa: ANN401 - of several types
        try:
            getattr(self._sqs, call)(QueueUrl=self._url, ReceiptHandle=taken.handle, **more)
        except self._sqs.exceptions.ClientError as error:
            if not is_stale(code_of(error), str(error)):
                raise
            return False
        return True

    def _until_ms(self) -> int:
        return self._observer.now_ms() + self._observer.visibility_ms

    def close(self) -> None:
        self._sqs.close()


class Jobs:
    """Jobs of this server: every report carries the token of its lease, and the server refuses one that is over."""

    def __init__(self, settings: ConsumerSettings, observer: Observer, told: HolderSettings) -> None:
        from penstock.client.app import Penstock  # noqa: PLC0415 - loaded by those who need it
        from penstock.client.errors import LeaseLost  # noqa: PLC0415 - as above

        self._lost = LeaseLost
        self._observer = observer
        self._told = told
        self._app = Penstock(endpoint_of(settings.queue_url) or "")
        self._tables = open_tables(settings)

    def take(self) -> tuple[Taken, int, int] | None:
        work = self._app.sync.work
        for offer in work.dequeue([self._told.job_queue], worker=self._observer.process).offers:
            accepted = work.accept(offer.token)
            name = str(msgspec.json.decode(offer.payload))
            facts: dict[str, object] = {"body_id": name, "queue": offer.queue, "receipt": short_receipt(offer.token)}
            until_ms = self._observer.since_origin_ms(accepted.until_ms or 0)
            return Taken(name, offer.token, facts), offer.attempt, until_ms
        return None

    def extend(self, taken: Taken) -> int | None:
        try:
            report = self._app.sync.work.heartbeat(taken.handle)
        except self._lost:
            return None
        return self._observer.since_origin_ms(report.until_ms or 0)

    def report(self, taken: Taken) -> bool:
        """Complete the job. Without a fence the result is in a table first, and nobody asks whose lease it is."""
        if not self._told.fenced:
            assert self._tables.side_effects is not None
            self._tables.side_effects.write(taken.id, conditional=False)
        try:
            self._app.sync.work.complete(taken.handle, {"by": self._observer.process})
        except self._lost:
            return not self._told.fenced
        return True

    def close(self) -> None:
        self._app.close()
        self._tables.close()


class Holder:
    """Takes work, does it under a lease, and commits it only if its report is accepted."""

    def __init__(self, source: Source, told: HolderSettings, observer: Observer) -> None:
        self.source = source
        self.told = told
        self.observer = observer
        self.stall_s = told.stall_s

    def run(self) -> None:
        """Work until there has been nothing to do for a while."""
        pace = self.observer.pace
        quiet_since_ms = pace.now_ms()
        while pace.now_ms() - quiet_since_ms < self.told.idle_s * 1_000:
            pace.step()
            if (found := self.source.take()) is None:
                pace.sleep(POLL_S)
                continue
            taken, count, until_ms = found
            self.observer.record("ok", "receive", **taken.facts, count=count, until_ms=until_ms)
            self.work(taken)
            self.report(taken)
            quiet_since_ms = pace.now_ms()

    def work(self, taken: Taken) -> None:
        """Do the work, with heartbeats, and then stall."""
        left_s, beat_s = self.told.work_s, self.told.heartbeat_s
        while beat_s and left_s > beat_s:
            self.observer.pace.sleep(beat_s)
            left_s -= beat_s
            until_ms = self.source.extend(taken)
            outcome, what = ("fail", "the lease is over") if until_ms is None else ("ok", None)
            self.observer.record(outcome, "extend", **taken.facts, until_ms=until_ms, what=what)
        self.observer.pace.sleep(left_s + self.stall_s)
        self.stall_s = 0.0

    def report(self, taken: Taken) -> None:
        """Report, and let the effect follow from that."""
        self.observer.pace.step()
        if not self.source.report(taken):
            self.observer.record("fail", "report", **taken.facts, what="refused: the lease is over")
            self.observer.record("fail", "effect", **taken.facts, what="left out: the report was refused")
            return
        self.observer.record("ok", "report", **taken.facts, what="accepted")
        self.observer.call_made(taken.id, None)
        self.observer.record("ok", "effect", **taken.facts, what="committed")


def hold(arguments: Sequence[str]) -> int:
    """Run a holder for the runner."""
    assert not arguments, "a holder has variables, and no arguments"
    settings = ConsumerSettings.read(os.environ)
    told = msgspec.json.decode(os.environ[HOLDER_VARIABLE], type=HolderSettings)
    observer = Observer()
    source: Source = Jobs(settings, observer, told) if told.job_queue else Messages(settings, observer)
    try:
        Holder(source, told, observer).run()
    finally:
        source.close()
        observer.close()
    return os.EX_OK
