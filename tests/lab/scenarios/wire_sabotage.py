"""Processes of the scenarios about lost answers, leases, tenants and retries, each with its promise broken."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from penstock.lab import cut_calls, holders
from penstock.lab.consumer import Consumer, main
from penstock.lab.consumer_settings import ConsumerSettings
from penstock.lab.handling import Received
from penstock.lab.observing import Observer
from penstock.lab.producer import Draft, Producer, ProducerSettings


def sends_with_fresh_ids(arguments: Sequence[str]) -> int:
    told = msgspec.json.decode(arguments[0], type=cut_calls.SenderSettings)
    return cut_calls.send([msgspec.json.encode(msgspec.structs.replace(told, fresh_ids=True)).decode()])


def asks_anew(arguments: Sequence[str]) -> int:
    """Repeat a receive as if it were another."""
    told = msgspec.json.decode(os.environ[cut_calls.RECEIVER_VARIABLE], type=cut_calls.ReceiverSettings)
    told = msgspec.structs.replace(told, attempt_id=False)
    os.environ[cut_calls.RECEIVER_VARIABLE] = msgspec.json.encode(told).decode()
    return cut_calls.receive(arguments)


class Hasty(holders.Holder):
    """Commits its work whatever becomes of the report."""

    def report(self, taken: holders.Taken) -> None:
        self.observer.pace.step()
        self.source.report(taken)
        self.observer.record("ok", "report", **taken.facts)
        self.observer.call_made(taken.id, None)
        self.observer.record("ok", "effect", **taken.facts)


def commits_anyway(_arguments: Sequence[str]) -> int:
    settings = ConsumerSettings.read(os.environ)
    told = msgspec.json.decode(os.environ[holders.HOLDER_VARIABLE], type=holders.HolderSettings)
    observer = Observer()
    source = holders.Jobs(settings, observer, told) if told.job_queue else holders.Messages(settings, observer)
    Hasty(source, told, observer).run()
    source.close()
    observer.close()
    return 0


class Groupless(Producer):
    """Leaves the groups out."""

    def send(self, drafts: Sequence[Draft]) -> None:
        super().send([msgspec.structs.replace(draft, group=None) for draft in drafts])


def sends_without_groups(arguments: Sequence[str]) -> int:
    observer = Observer()
    producer = Groupless(msgspec.json.decode(arguments[0], type=ProducerSettings), observer)
    producer.run()
    producer.sqs.close()
    observer.close()
    return 0


class Impatient(Consumer):
    """Tries what failed again at once."""

    def retry_s(self, message: Received) -> float | None:
        return 0


def retries_at_once(arguments: Sequence[str]) -> int:
    return main(arguments, kind=Impatient)
