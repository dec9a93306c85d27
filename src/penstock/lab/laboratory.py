"""The laboratory: a server or another endpoint, the processes, and one scenario after the other, in both variants."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from penstock import __version__
from penstock.client.urls import without_password
from penstock.domain.clock import SystemClock
from penstock.lab import observing
from penstock.lab.checkers.evidence import Evidence
from penstock.lab.driver import Driver
from penstock.lab.embedded_server import EmbeddedServer
from penstock.lab.endpoints import REGION, on_loopback, require_boto3
from penstock.lab.environment import PROJECT, Environment, names_of
from penstock.lab.history import Header
from penstock.lab.processes import Processes
from penstock.lab.recording import merge
from penstock.lab.run import PICTURES, KnobRow, Run, Variant
from penstock.lab.stage import Entries, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from penstock.lab.history import History
    from penstock.lab.knobs import Knobs
    from penstock.lab.scenario import Scenario

VariantName = Literal["protected", "broken"]

SEED = 7
AWS = "aws"
TOLERANCE_MS = 1_000
"""How much clocks may disagree where time is not driven."""


class LabSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how scenarios run."""

    endpoint: str | None = None
    """None is the lab's own server, `aws` is AWS, and anything else the URL of an SQS endpoint."""
    store: str | None = None
    """The store of the lab's own server; None is a SQLite file that goes with the run."""
    real_time: bool = False
    seed: int = SEED
    project: str = PROJECT
    region: str = REGION
    tables: str | None = None
    """Where the tables are: None is SQLite beside the run, or DynamoDB on AWS."""
    profile: str = ""

    @property
    def driven(self) -> bool:
        """Whether the runner moves time."""
        return self.endpoint is None and not self.real_time


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a variant is, as its processes report it."""

    variant: VariantName
    sent: int = 0
    in_flight: int = 0
    done: int = 0
    dead: int = 0
    consumers: int = 0
    took_s: float = 0.0

    @property
    def waiting(self) -> int:
        """How many messages nobody has."""
        return max(self.sent - self.done - self.in_flight - self.dead, 0)


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """One variant after it has played."""

    variant: Variant
    evidence: Evidence
    not_observed: str | None
    differences: tuple[str, ...] = ()
    """What the endpoint was seen to do differently from Amazon SQS, a sentence each."""


class Laboratory:
    """Runs scenarios. Everything that it starts or makes is gone at the end of the block."""

    def __init__(
        self,
        settings: LabSettings,
        *,
        entries: Entries | None = None,
        modules: Sequence[str] = (),
        tick: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self.settings = settings
        self._entries = entries or Entries()
        self._tick = tick
        self._stack = contextlib.ExitStack()
        self._processes = Processes(modules)
        self._server: EmbeddedServer | None = None

    def __enter__(self) -> Self:
        require_boto3()
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="penstock-lab-", ignore_cleanup_errors=True)
            )
            self._folder = Path(folder)
            # It loads while the server starts.
            stack.enter_context(self._processes)
            if self.settings.endpoint is None:
                store = self.settings.store or f"sqlite:{self._folder / 'penstock.db'}"
                server = EmbeddedServer(store, region=self.settings.region, driven=self.settings.driven)
                self._server = stack.enter_context(server)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def endpoint(self) -> str | None:
        """The URL of the endpoint; None is AWS."""
        if self._server is not None:
            return self._server.url
        return None if self.settings.endpoint == AWS else self.settings.endpoint

    @property
    def place(self) -> str:
        """Where it runs, for people."""
        if self._server is not None:
            return "this server"
        return f"AWS, {self.settings.region}" if self.endpoint is None else without_password(self.endpoint)

    @property
    def backend(self) -> str:
        """What answers there, for people: `0.9.0 on SQLite, manual clock`."""
        if self._server is None:
            return "system clock"
        database = self._server.version.split(" ")[0] or "SQLite"
        return f"{__version__} on {database}, {'manual' if self.settings.driven else 'system'} clock"

    def run(
        self, scenario: Scenario, knobs: Knobs, *, variants: Sequence[VariantName] = ("protected", "broken")
    ) -> Run:
        """Play the variants of a scenario, one after the other, and judge them.

        Raises `Missing`, `ScenarioFailed`, `Stalled`, and what boto3 raises for an endpoint that cannot be used.
        """
        began_s, began_ms = time.monotonic(), SystemClock().wall_ms()
        played = {name: self.play(scenario, knobs, name) for name in variants}
        first = played[variants[0]]
        protected = played.get("protected", first)
        broken = played.get("broken")
        limits = msgspec.structs.asdict(scenario.bounds(knobs))
        return Run(
            scenario=scenario.name,
            rule=scenario.rule,
            found=scenario.found(protected.evidence),
            story=scenario.story,
            protected=protected.variant,
            broken=broken.variant if broken is not None and "protected" in played else None,
            breaks=scenario.breaks,
            picture=PICTURES[scenario.name],
            limits={name: float(limit) for name, limit in limits.items() if isinstance(limit, int | float)},
            knobs=knob_rows(scenario, knobs, self.settings.seed),
            commands=(command_of(scenario, knobs, self.settings, variants),),
            try_this=scenario.try_this,
            guide=scenario.guide,
            endpoint=self.place,
            backend=self.backend,
            versions=self._versions(),
            difference=" ".join(dict.fromkeys(word for one in played.values() for word in one.differences)),
            not_observed=next((one.not_observed for one in played.values() if one.not_observed), None),
            seed=self.settings.seed,
            started_ms=began_ms,
            duration_ms=round((time.monotonic() - began_s) * 1_000),
        )

    def play(self, scenario: Scenario, knobs: Knobs, name: VariantName) -> Played:
        """Play one variant in queues and tables of its own, and judge it."""
        folder = self._folder / f"{scenario.name}-{name}"
        folder.mkdir()
        try:
            seen, history, stage = self._play_in(folder, scenario, knobs, name)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        bounds = scenario.bounds(knobs)
        if not self.settings.driven:
            bounds = msgspec.structs.replace(bounds, tolerance_ms=TOLERANCE_MS)
        seen = msgspec.structs.replace(seen, events=history.events)
        difference = scenario.difference
        variant = Variant(
            name=name,
            setting=difference.words[1 if name == "broken" else 0],
            summary=", ".join(scenario.figures(seen)),
            history=history,
            checks=tuple(scenario.check(seen, bounds)),
        )
        return Played(
            variant=variant, evidence=seen, not_observed=stage.not_observed, differences=tuple(stage.differences)
        )

    def _play_in(
        self, folder: Path, scenario: Scenario, knobs: Knobs, name: VariantName
    ) -> tuple[Evidence, History, Stage]:
        broken = name == "broken"
        queue = scenario.queue(knobs, broken=broken)
        environment = Environment(
            names_of(self.settings.project, scenario.name, fifo=queue.fifo),
            queue,
            endpoint=self.endpoint,
            region=self.settings.region,
            tables_url=self._tables_url(folder),
            # Elsewhere than on this machine somebody provisions them, and pays for them.
            make=on_loopback(self.endpoint),
            profile=self.settings.profile,
        )
        if self._server is not None:
            # Its short polls see every message, and a clock that the runner moves would not end a long one.
            environment.empty_wait_s, environment.purge_wait_s = 0, 0
        began_s = time.monotonic()
        with environment:
            driver = Driver(
                self._processes,
                self._server if self.settings.driven else None,
                ended=lambda process: stage.ended(process),  # noqa: PLW0108 - the stage is made below
                tick=lambda: self._tick(_progress(driver, self._processes, name, time.monotonic() - began_s)),
            )
            stage = Stage(
                environment=environment,
                processes=self._processes,
                driver=driver,
                knobs=knobs,
                folder=folder,
                seed=self.settings.seed,
                broken=broken,
                entries=self._entries,
            )
            stage.own_server = self._server is not None
            try:
                scenario.play(stage)
                seen = stage.finish()
            finally:
                stage.close()
                self._processes.end_all()
        header = Header(
            seed=self.settings.seed,
            scenario=scenario.name,
            variant=name,
            endpoint=self.place,
            versions=self._versions(),
            knobs=dict(knobs.values),
        )
        return seen, merge(header, folder.glob(f"*.{observing.HISTORY}")), stage

    def _tables_url(self, folder: Path) -> str:
        if self.settings.tables is not None:
            return self.settings.tables
        return "dynamodb:" if self.endpoint is None else f"sqlite:{folder / 'tables.db'}"

    def _versions(self) -> dict[str, str]:
        versions = {"penstock": __version__, "python": ".".join(str(part) for part in sys.version_info[:3])}
        if self._server is not None:
            versions["store"] = self._server.version
        return versions


def _progress(driver: Driver, processes: Processes, name: VariantName, took_s: float) -> Progress:
    notes = driver.notes
    sent = notes["send", "ok"]
    # A message that is received twice can be deleted twice, too.
    done, received = min(notes["delete", "ok"], sent), min(notes["receive", "ok"], sent)
    return Progress(
        variant=name,
        sent=sent,
        in_flight=max(received - done, 0),
        done=done,
        dead=notes["dead", "ok"],
        consumers=sum(process.name != "producer" for process in processes.running),
        took_s=took_s,
    )


def knob_rows(scenario: Scenario, knobs: Knobs, seed: int) -> tuple[KnobRow, ...]:
    """Return the knobs of a run for its report, the one that differs first."""
    difference = scenario.difference
    rows = [
        KnobRow(
            name=difference.name,
            protected=difference.protected,
            broken=difference.broken,
            does=difference.does,
        )
    ]
    turned = turned_knobs(scenario, knobs)
    for knob in scenario.knobs:
        value = f"{knobs.values[knob.name]:g}"
        row = KnobRow(name=knob.variable, protected=value, broken=value, does=knob.does, turned=knob.variable in turned)
        rows.append(row)
    same = "the same seed gives the same faults"
    return (*rows, KnobRow(name="seed", protected=str(seed), broken=str(seed), does=same))


def turned_knobs(scenario: Scenario, knobs: Knobs) -> dict[str, str]:
    """Return the variables of the knobs that do not have their defaults, and what they are set to."""
    return {
        knob.variable: f"{knobs.values[knob.name]:g}"
        for knob in scenario.knobs
        if knobs.values[knob.name] != knob.default
    }


def command_of(scenario: Scenario, knobs: Knobs, settings: LabSettings, variants: Sequence[VariantName] = ()) -> str:
    """Return the command that runs a scenario again as it was run. A password is left out."""
    words = ["penstock", "lab", "run", scenario.name, "--seed", str(settings.seed)]
    for knob in scenario.knobs:
        if knobs.values[knob.name] != knob.default:
            words += knob.words(knobs.values[knob.name])
    for flag, value, default in (
        ("--endpoint", settings.endpoint and without_password(settings.endpoint), None),
        ("--store", settings.store and without_password(settings.store), None),
        ("--tables", settings.tables and without_password(settings.tables), None),
        ("--region", settings.region, REGION),
        ("--project", settings.project, PROJECT),
        ("--profile", settings.profile, ""),
    ):
        if value is not None and value != default:
            words += [flag, value]
    if tuple(variants) == ("broken",):
        words.append("--broken")
    if settings.real_time:
        words.append("--real-time")
    return shlex.join(words)
