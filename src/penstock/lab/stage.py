"""What a scenario acts on: its queues, its processes and its time."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.lab import observing
from penstock.lab.checkers.evidence import Evidence, Left
from penstock.lab.consumer_settings import VARIABLES
from penstock.lab.endpoints import CREDENTIALS
from penstock.lab.handling import CRASHED
from penstock.lab.payloads import facts_of, payload_of
from penstock.lab.producer import Draft, ProducerSettings
from penstock.lab.recording import Recorder
from penstock.lab.tables.sqlite import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.lab.driver import Driver
    from penstock.lab.environment import Environment
    from penstock.lab.knobs import Knobs
    from penstock.lab.processes import Process, Processes

WAIT_S_MAX = 3_600.0
"""How long a scenario waits for its processes, by its own clock."""
RUNNER = "runner"
_EXPECTED = frozenset({0, CRASHED, 143, -signal.SIGTERM, -signal.SIGKILL})
_OUTPUT_LINES = 12
_BATCH = 10


class ScenarioFailed(RuntimeError):
    """The scenario itself went wrong: a process failed in a way that is no part of it."""


class Counts(NamedTuple):
    """How many messages a queue says it has, by state."""

    visible: int
    in_flight: int
    delayed: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


class Entries(NamedTuple):
    """Which functions run as producer and consumer. A test may give others, to see that the checks notice."""

    producer: str = "penstock.lab.producer:main"
    consumer: str = "penstock.lab.consumer:main"


class Stage:
    """One variant of a scenario while it plays."""

    def __init__(
        self,
        *,
        environment: Environment,
        processes: Processes,
        driver: Driver,
        knobs: Knobs,
        folder: Path,
        seed: int,
        broken: bool,
        entries: Entries,
    ) -> None:
        self.environment = environment
        self.knobs = knobs
        self.broken = broken
        self.seed = seed
        self.folder = folder
        """Files of this variant only."""
        self.own_server = True
        """Whether the queues are on the lab's own server."""
        self.not_observed: str | None = None
        """Set by a scenario where this endpoint cannot show the failure, by design: why that is so."""
        self.differences: list[str] = []
        """What this endpoint was seen to do differently from Amazon SQS, a sentence each."""
        self.state: dict[str, int] | None = None
        """Set by a scenario with versions: the version of each entity at the end."""
        self._processes = processes
        self._driver = driver
        self._entries = entries
        self._origin_ms = driver.now_ms()
        self._recorders: dict[str, Recorder] = {}
        self._started = 0
        self._failures: list[str] = []
        self._phase: str | None = None

    # -- time -----------------------------------------------------------------------------------------

    @property
    def driven(self) -> bool:
        """Whether time is driven: it then costs nothing to wait."""
        return self._driver.driven

    def now_ms(self) -> int:
        """Return the time since this variant began."""
        return self._driver.now_ms() - self._origin_ms

    def sleep(self, seconds: float) -> None:
        """Let time pass, and the processes go on."""
        until_ms = self._driver.now_ms() + round(seconds * 1_000)
        self._driver.wait(lambda: bool(self._failures), until_ms=until_ms)
        self._raise_failures()

    def wait_for(self, condition: Callable[[], bool], *, timeout_s: float = WAIT_S_MAX) -> bool:
        """Let time pass until the condition holds; False if it did not within the timeout."""
        until_ms = self._driver.now_ms() + round(timeout_s * 1_000)
        met = self._driver.wait(lambda: bool(self._failures) or condition(), until_ms=until_ms)
        self._raise_failures()
        return met

    def wait(self, *processes: Process, timeout_s: float = WAIT_S_MAX) -> bool:
        """Let time pass until these processes have ended; False if one has not within the timeout."""
        return self.wait_for(lambda: not any(process.running for process in processes), timeout_s=timeout_s)

    def counted(self, f: str, outcome: str = "ok") -> int:
        """Return how many events of one kind the processes have reported."""
        return self._driver.notes[f, outcome]

    # -- processes ------------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        entry: str,
        arguments: Sequence[str] = (),
        variables: Mapping[str, object] | None = None,
    ) -> Process:
        """Start a process that runs the function `entry` names (`package.module:function`), with these variables."""
        self._started += 1
        environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
        environment |= {
            observing.FOLDER_VARIABLE: str(self.folder),
            observing.PROCESS_VARIABLE: name,
            observing.NUMBER_VARIABLE: str(self._started),
            observing.DRIVEN_VARIABLE: "1" if self.driven else "0",
            observing.ORIGIN_VARIABLE: str(self._origin_ms),
            observing.SEED_VARIABLE: str(self.seed),
            observing.VISIBILITY_VARIABLE: str(self.environment.settings.visibility_s),
            observing.PHASE_VARIABLE: self._phase or "",
        }
        if self.environment.profile:
            environment = {key: value for key, value in environment.items() if key not in CREDENTIALS}
            environment["AWS_PROFILE"] = self.environment.profile
        environment |= {key: _variable(value) for key, value in (variables or {}).items()}
        process = self._processes.start(name, entry, arguments, environment, self.folder / f"{name}.log")
        self._driver.started(process)
        return process

    def producer(self, drafts: Iterable[Draft] | None = None, *, name: str = "producer", **settings: Any) -> Process:  # noqa: ANN401 - of several types
        """Start a producer, of synthetic messages or of these drafts; `settings` are those of `ProducerSettings`."""
        if drafts is not None:
            file = self.folder / f"{name}.{self._started}.drafts.jsonl"
            file.write_bytes(b"".join(msgspec.json.encode(draft) + b"\n" for draft in drafts))
            settings["file"] = str(file)
        told = ProducerSettings(queue_url=self.environment.queue_url, region=self.environment.region, **settings)
        told.check()
        return self.start(name, self._entries.producer, [msgspec.json.encode(told).decode()])

    def produce(self, drafts: Iterable[Draft] | None = None, **settings: Any) -> None:  # noqa: ANN401 - as above
        """Run a producer until it has sent everything."""
        self.wait(self.producer(drafts, **settings))

    def consumer(self, name: str, *, flaws: Sequence[str] = (), **variables: object) -> Process:
        """Start a consumer; `variables` are those of its environment, in capitals."""
        return self.consumer_of(self._entries.consumer, name, {"FLAWS": ",".join(flaws), **variables})

    def consumer_of(self, entry: str, name: str, variables: Mapping[str, object]) -> Process:
        """Start a consumer of another kind, with the variables of every consumer and these."""
        names = self.environment.names
        return self.start(
            name,
            entry,
            variables={
                "QUEUE_URL": self.environment.queue_url,
                "AWS_REGION": self.environment.region,
                "MESSAGE_STATUS_TABLE": names.status_table,
                "MESSAGE_SIDE_EFFECTS_TABLE": names.side_effects_table,
                "TABLES_URL": self.environment.tables_url,
                **variables,
            },
        )

    def terminate(self, process: Process) -> None:
        """Ask a process to end, with SIGTERM."""
        self.record("info", "signal", process.name, what="SIGTERM")
        self._driver.signal(process, signal.SIGTERM)

    def kill(self, process: Process) -> None:
        """End a process at once, with SIGKILL."""
        self.record("info", "signal", process.name, what="SIGKILL")
        self._driver.signal(process, signal.SIGKILL)

    def ended(self, process: Process) -> None:
        """Note how a process ended. The driver calls this."""
        self.record("info", "exit", process.name, code=process.code)
        if process.code not in _EXPECTED:
            tail = process.output.read_text(encoding="utf-8", errors="replace").splitlines()[-_OUTPUT_LINES:]
            self._failures.append("\n".join([f"{process.name} ended with {process.code}:", *tail]))

    @property
    def running(self) -> list[Process]:
        """The processes that have not ended."""
        return self._processes.running

    def phase(self, name: str | None) -> None:
        """Mark the events of processes that start from now on as belonging to a part of the scenario."""
        self._phase = name

    # -- queues ---------------------------------------------------------------------------------------

    @property
    def sqs(self) -> Any:  # noqa: ANN401 - boto3 has no types for its clients
        """A client of the endpoint, for what the runner does itself. It must not wait in a long poll."""
        return self.environment.sqs

    def counts(self, queue_url: str | None = None) -> Counts:
        """Ask a queue what it has; the scenario's own if none is named."""
        answer = self.sqs.get_queue_attributes(
            QueueUrl=queue_url or self.environment.queue_url,
            AttributeNames=[
                "ApproximateNumberOfMessages",
                "ApproximateNumberOfMessagesNotVisible",
                "ApproximateNumberOfMessagesDelayed",
            ],
        )["Attributes"]
        return Counts(
            *(
                int(value)
                for value in (
                    answer["ApproximateNumberOfMessages"],
                    answer["ApproximateNumberOfMessagesNotVisible"],
                    answer["ApproximateNumberOfMessagesDelayed"],
                )
            )
        )

    def sample(self, **fields: object) -> Counts:
        """Record what the queue has, and how many consumers run."""
        counts = self.counts()
        consumers = sum(process.name != "producer" for process in self.running)
        self.record(
            "ok",
            "sample",
            depth=counts.visible + counts.delayed,
            in_flight=counts.in_flight,
            consumers=consumers,
            **fields,
        )
        return counts

    def record(self, outcome: str, f: str, process: str = RUNNER, /, **fields: object) -> None:
        """Add an event of the runner, or one that it saw happen to a process, to the history."""
        recorder = self._recorders.get(process)
        if recorder is None:
            path = self.folder / f"{RUNNER}-{process}.{observing.HISTORY}"
            recorder = self._recorders[process] = Recorder(path, process, now_ms=self.now_ms)
        recorder.record(outcome, f, phase=self._phase, **fields)

    # -- the end --------------------------------------------------------------------------------------

    def finish(self) -> Evidence:
        """End what still runs, look what is left, and return what checks may look at, without the events."""
        for process in self.running:
            self._driver.signal(process, signal.SIGKILL)
        self._driver.wait(lambda: not self.running)
        self._raise_failures()
        counts = self.counts()
        left = Left(count=counts.total, messages=() if not counts.total else self._peek(counts))
        dead = self._dead_letters()
        ledger = SqliteLedger(self.folder / observing.LEDGER)
        try:
            calls = ledger.calls()
        finally:
            ledger.close()
        return Evidence(events=(), ledger=calls, left=left, dead=dead, state=self.state)

    def close(self) -> None:
        """Close the files. Harmless if they are closed."""
        for recorder in self._recorders.values():
            recorder.close()

    def _peek(self, counts: Counts) -> tuple[str, ...] | None:
        """Return which messages are left, if all of them can be seen."""
        if counts.visible != counts.total:
            return None
        messages = self._take_all(self.environment.queue_url)
        return tuple(_name(message) for message in messages) if len(messages) == counts.total else None

    def _dead_letters(self) -> Left:
        counts = self.counts(self.environment.dlq_url)
        messages = self._take_all(self.environment.dlq_url) if counts.visible else []
        for message in messages:
            self.record(
                "ok",
                "dead",
                message_id=message["MessageId"],
                queue=self.environment.names.dlq,
                **facts_of(payload_of(message["Body"])),
            )
        names = tuple(_name(message) for message in messages)
        return Left(count=counts.total, messages=names if len(names) == counts.total else None)

    def _take_all(self, url: str) -> list[dict[str, Any]]:
        """Receive and delete what a queue has: the run is over, and the next begins with an empty queue."""
        taken: list[dict[str, Any]] = []
        while messages := self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=_BATCH, VisibilityTimeout=600, WaitTimeSeconds=0
        ).get("Messages"):
            taken += messages
            for message in messages:
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return taken

    def _raise_failures(self) -> None:
        if self._failures:
            raise ScenarioFailed(self._failures[0])


def _name(message: dict[str, Any]) -> str:
    return str(payload_of(message["Body"]).get("id") or message["MessageId"])


def _variable(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
