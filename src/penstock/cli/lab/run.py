"""`penstock lab run`: runs scenarios in both variants, and shows and keeps what became of them."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.cli.failures import USAGE, Failure, show
from penstock.cli.lab.failures import CONDITION_FALSE, check_names, failure_of
from penstock.cli.lab.numbers import Whole
from penstock.cli.lab.stopping import say_stopped, stoppable
from penstock.cli.terminal.live_block import LiveBlock
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span

if TYPE_CHECKING:
    from penstock.lab.knobs import Knobs
    from penstock.lab.laboratory import Laboratory, LabSettings, Progress
    from penstock.lab.run import Run
    from penstock.lab.scenario import Scenario

Number = Annotated[str | None, Parameter(metavar="N")]
Seconds = Annotated[str | None, Parameter(metavar="SECONDS")]
Switch = Annotated[bool, Parameter(negative="")]


def run(  # noqa: PLR0913 - each is a flag
    *names: Annotated[str, Parameter(metavar="NAME")],
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    fast: Switch = False,
    slow: Switch = False,
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
    broken: Switch = False,
    seed: Whole = 7,
    endpoint: Annotated[str | None, Parameter(metavar="URL")] = None,
    store: Annotated[str | None, Parameter(metavar="URL")] = None,
    tables: Annotated[str | None, Parameter(metavar="URL")] = None,
    region: str = "us-west-1",
    project: str = "sqs-demo",
    profile: Annotated[str, Parameter(metavar="NAME", show_default=False)] = "",
    real_time: Switch = False,
    out: Annotated[Path, Parameter(metavar="DIR")] = Path("lab"),
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
    knob: Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUE", negative="")] = (),
    count: Number = None,
    copies: Number = None,
    poison_count: Number = None,
    poison_every: Number = None,
    batch_size: Number = None,
    visibility_timeout: Seconds = None,
    visibility_wait: Seconds = None,
    slow_seconds: Seconds = None,
    second_start_delay: Seconds = None,
    crash_window: Seconds = None,
    processing_delay: Seconds = None,
    sigterm_delay: Seconds = None,
    consumer_count: Number = None,
    poll_interval: Seconds = None,
    iterations: Number = None,
    danger_count: Number = None,
    safe_delay: Seconds = None,
    timeout: Seconds = None,
) -> int:
    """Run scenarios, each in its protected and its broken variant.

    Parameters
    ----------
    names
        The scenarios; penstock lab ls lists them.
    all_
        Run all scenarios.
    fast
        Run all that take seconds in real time.
    slow
        Run all that take minutes in real time.
    list_
        List the scenarios, as penstock lab ls does.
    broken
        Run the broken variant alone. It exits with 4.
    seed
        The same seed gives the same faults.
    endpoint
        An SQS endpoint, or aws. Without it the lab runs a server of its own.
    store
        The store of the lab's own server, as with penstock serve. Without it, a SQLite file that goes with the run.
    tables
        Where the two tables are: sqlite:PATH, dynamodb: or dynamodb:ENDPOINT.
    region
        The region of queues and tables.
    project
        What the names of queues and tables begin with.
    profile
        A profile of the AWS configuration.
    real_time
        Run on the system's clock, as on AWS.
    out
        The folder for reports.
    open_
        Open the report in a browser.
    json_
        Write the result as JSON.
    knob
        Set a knob of the scenario. Can be repeated.
    count
        How many messages are sent.
    copies
        How many messages are sent about each order.
    poison_count
        How many of the messages are poison.
    poison_every
        Every how many messages one is poison.
    batch_size
        How many messages the producer sends in one call.
    visibility_timeout
        How long a lease lasts.
    visibility_wait
        How long after a lease's end a message may take to be back.
    slow_seconds
        How long slow work takes.
    second_start_delay
        After how long the second consumer starts.
    crash_window
        Within which time consumers crash.
    processing_delay
        How long the work on a message takes.
    sigterm_delay
        After how long SIGTERM is sent.
    consumer_count
        How many consumers run.
    poll_interval
        How often the queue is looked at.
    iterations
        How many rounds are run.
    danger_count
        How many messages are sent in the danger window.
    safe_delay
        After how long a send is safe.
    timeout
        How long the scenario may take, by its own clock.
    """
    if list_:
        from penstock.cli.lab.ls import ls

        return ls(out=out)
    flags = {
        "count": count,
        "copies": copies,
        "poison-count": poison_count,
        "poison-every": poison_every,
        "batch-size": batch_size,
        "visibility-timeout": visibility_timeout,
        "visibility-wait": visibility_wait,
        "slow-seconds": slow_seconds,
        "second-start-delay": second_start_delay,
        "crash-window": crash_window,
        "processing-delay": processing_delay,
        "sigterm-delay": sigterm_delay,
        "consumer-count": consumer_count,
        "poll-interval": poll_interval,
        "iterations": iterations,
        "danger-count": danger_count,
        "safe-delay": safe_delay,
        "timeout": timeout,
    }
    try:
        given = {name: value for name, value in flags.items() if value is not None} | _knobs_of(knob)
        from penstock.lab.laboratory import LabSettings

        scenarios = _chosen(names, everything=all_, fast=fast, slow=slow)
        knobs = _turned(scenarios, given, os.environ)
        settings = LabSettings(
            endpoint=_endpoint(endpoint, store),
            store=store,
            real_time=real_time,
            seed=seed,
            project=project,
            region=region,
            tables=tables,
            profile=profile,
        )
        command = _Command(settings, out, broken=broken, as_json=json_)
        try:
            with stoppable():
                code = command.run(scenarios, knobs)
        except KeyboardInterrupt as reason:
            finished = f"{command.finished} of {len(scenarios)} scenarios had finished."
            return say_stopped(reason, finished if len(scenarios) > 1 else "")
        if open_ and command.shown is not None:
            import webbrowser

            webbrowser.open(command.shown.resolve().as_uri())
        return code
    except Failure as failed:
        return show(failed)
    except KeyboardInterrupt as reason:
        return say_stopped(reason)
    except Exception as error:  # noqa: BLE001 - the outermost edge: what is no bug has a name there
        return show(failure_of(error))


class _Command:
    """One call of the command: a laboratory, and its scenarios one after the other."""

    def __init__(self, settings: LabSettings, out: Path, *, broken: bool, as_json: bool) -> None:
        from penstock.lab.archive import Archive

        self.shown: Path | None = None
        """The page to open."""
        self.finished = 0
        """How many scenarios have run to their end."""
        self._settings = settings
        self._archive = Archive(out)
        self._broken = broken
        self._naming = False
        """Whether the live lines say which scenario runs."""
        self._as_json = as_json
        self._page = Screen(sys.stdout)
        self._aside = Screen(sys.stderr)
        self._live = LiveBlock(sys.stderr, self._aside)

    def run(self, scenarios: Sequence[Scenario], knobs: Mapping[str, Knobs]) -> int:
        """Run the scenarios, and return the exit code."""
        from penstock.lab.endpoints import session_of
        from penstock.lab.laboratory import Laboratory

        began_s = time.monotonic()
        if self._settings.profile:
            session_of(self._settings.profile)
        try:
            with _writable(self._archive.folder), Laboratory(self._settings, tick=self._tick) as laboratory:
                if len(scenarios) == 1 and not self._as_json:
                    return self._run_one(laboratory, scenarios[0], knobs[scenarios[0].name])
                return self._run_many(laboratory, scenarios, knobs, began_s)
        finally:
            self._live.close()

    def _run_one(self, laboratory: Laboratory, scenario: Scenario, knobs: Knobs) -> int:
        from penstock.cli.lab.verdicts import conclusion, exit_is_good, heading, verdict

        screen = self._page
        screen.write(heading(screen, scenario, laboratory.place, laboratory.backend, self._settings.seed))
        result, took_s = self._play(laboratory, scenario, knobs)
        report = self._archive.keep(result)
        self.shown = report
        screen.write(verdict(screen, result))
        screen.write(conclusion(screen, result, scenario, str(report), took_s=took_s))
        return 0 if exit_is_good(result) else CONDITION_FALSE

    def _run_many(
        self, laboratory: Laboratory, scenarios: Sequence[Scenario], knobs: Mapping[str, Knobs], began_s: float
    ) -> int:
        from penstock.cli.lab.summary import Summary
        from penstock.cli.lab.verdicts import exit_is_good
        from penstock.lab.archive import base_name
        from penstock.lab.laboratory import turned_knobs
        from penstock.lab.run import run_json

        summary = Summary(self._page, self._aside, [scenario.name for scenario in scenarios])
        if not self._as_json:
            summary.head(laboratory.place, laboratory.backend, self._settings.seed)
        names = {
            one.name: base_name(
                one.name, self._settings.seed, turned_knobs(one, knobs[one.name]), broken_alone=self._broken
            )
            for one in scenarios
        }
        self._naming = True
        results: list[Run] = []
        documents: list[dict[str, Any]] = []
        report = self._archive.folder
        for place, scenario in enumerate(scenarios, 1):
            result, took_s = self._play(laboratory, scenario, knobs[scenario.name])
            report = self._archive.keep(result, coming={one.name: names[one.name] for one in scenarios[place:]})
            results.append(result)
            documents.append(_document(run_json(result), report))
            if not self._as_json:
                summary.row(result, took_s, str(report))
        # The index has no broken variants that ran alone.
        self.shown = report if self._broken else self._archive.folder / "index.html"
        if self._as_json:
            shown: object = documents[0] if len(documents) == 1 else documents
            sys.stdout.write(json.dumps(shown, indent=2 if self._page.terminal else None, ensure_ascii=False) + "\n")
        else:
            summary.end(time.monotonic() - began_s, str(self.shown))
        return 0 if all(exit_is_good(result) for result in results) else CONDITION_FALSE

    def _play(self, laboratory: Laboratory, scenario: Scenario, knobs: Knobs) -> tuple[Run, float]:
        from penstock.cli.lab.progress import VariantBars

        expected = knobs.values.get("count")
        self._running = scenario.name
        self._bars = VariantBars(self._aside.signs, expected if isinstance(expected, int) else None)
        began_s = time.monotonic()
        try:
            result = laboratory.run(scenario, knobs, variants=("broken",) if self._broken else ("protected", "broken"))
        finally:
            self._live.close()
        self.finished += 1
        return result, time.monotonic() - began_s

    def _tick(self, progress: Progress) -> None:
        self._bars.note(progress)
        if self._live.due:
            name = [[Span("  "), Span(self._running, "bold")]] if self._naming else []
            self._live.show([[], *name, *self._bars.lines()])


def _document(document: dict[str, Any], report: Path) -> dict[str, Any]:
    """Add to what is printed of a run where its files are."""
    for name, variant in document["variants"].items():
        variant["history"] = str(report.with_name(f"{report.stem}.{name}.jsonl"))
    return document | {"report": str(report)}


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Make a folder for the length of the block, and keep it if anything is in it; raises `Failure`."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = [error.strerror or str(error)]
        raise Failure(f"Reports cannot be written to {folder}.", why=why, hint="--out DIR", exit_code=USAGE) from None
    try:
        yield
    finally:
        for one in made:
            with contextlib.suppress(OSError):
                one.rmdir()


def _chosen(names: Sequence[str], *, everything: bool, fast: bool, slow: bool) -> list[Scenario]:
    """Return the scenarios that are asked for, each once; raises `Failure`."""
    from penstock.lab.scenarios import NAMES, scenario

    check_names(names, NAMES)
    if names and (everything or fast or slow):
        raise Failure("Name scenarios, or say --all, --fast or --slow, not both.", exit_code=USAGE)
    if names:
        return [scenario(name) for name in dict.fromkeys(names)]
    found = [one for one in map(scenario, NAMES) if everything or (one.slow and slow) or (not one.slow and fast)]
    if not (everything or fast or slow):
        raise Failure("penstock lab run needs a scenario.", hint="penstock lab run happy", exit_code=USAGE)
    return found


def _turned(
    scenarios: Sequence[Scenario], flags: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, Knobs]:
    """Return the values of each scenario's knobs. A flag must be a knob of at least one of them."""
    from penstock.cli.terminal.suggestions import closest
    from penstock.lab.knobs import turned

    known = {knob.name for scenario in scenarios for knob in scenario.knobs}
    for name in flags:
        if name not in known:
            who = scenarios[0].name if len(scenarios) == 1 else "None of these scenarios"
            has = "has no knob" if len(scenarios) == 1 else "has the knob"
            meant = closest(name, known)
            listed = ", ".join(sorted(known)) or "none"
            raise Failure(
                f"{who} {has} {name}.{f' Did you mean {meant}?' if meant else ''}",
                why=[f"knobs: {listed}"],
                exit_code=USAGE,
            )
    found = {}
    for scenario in scenarios:
        found[scenario.name] = turned(scenario.knobs, flags, environment)
        scenario.validate(found[scenario.name])
    return found


def _knobs_of(settings: Sequence[str]) -> dict[str, str]:
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise Failure(f"--knob is NAME=VALUE, not {setting}.", exit_code=USAGE)
        found[name.lower().replace("_", "-")] = value
    return found


def _endpoint(given: str | None, store: str | None) -> str | None:
    if given is not None and store is not None:
        raise Failure("--store is for the lab's own server, and --endpoint names another.", exit_code=USAGE)
    if given is None or given == "aws" or given.startswith(("http://", "https://")):
        return None if given is None else given.rstrip("/")
    raise Failure(f"--endpoint is a URL or aws, not {given}.", exit_code=USAGE)
