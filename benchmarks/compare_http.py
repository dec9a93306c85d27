"""The server over HTTP beside a bare handler that stores nothing, and beside moto's server."""

from __future__ import annotations

import statistics
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from benchmarks.findings import BATCHES, Section
from benchmarks.http_generator import some_generator
from benchmarks.http_load import Job
from benchmarks.http_servers import bare_handler, find_moto, moto_server, penstock_server, with_queue
from benchmarks.rounds import Ratio, Trial, ratio, take_turns

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.findings import Extent
    from benchmarks.http_generator import Generator
    from benchmarks.http_load import Kind
    from benchmarks.http_servers import Serving
    from benchmarks.progress import Narrator
    from benchmarks.rounds import Contestant

BARE_RATIO_WANTED = 0.5
BATCH_RATIO_WANTED = 3.0
MOTO_RATIO_WANTED = 10.0
NO_MOTO = "moto's server was left out: install moto[server], or put moto_server on the PATH."

_BARE = "bare handler, SendMessage"
_MOTO_SEND = "moto, SendMessage"
_SEND = "SendMessage"
_SEND_TENS = "SendMessageBatch of ten"
_WARM_UP_SECONDS = 0.3
_MOTO_SECONDS_MIN = 2.0
"""In less, moto does not come to answer each connection a few times."""


async def compare_http(
    extent: Extent, folder: Path, narrator: Narrator, *, own: bool = False
) -> tuple[Section, list[str]]:
    """Measure with servers and files in this folder, with wrk or our own generator; also say what was left out."""
    moto = find_moto()
    async with AsyncExitStack() as opened:
        narrator.say("Starting servers …")
        generator = await opened.enter_async_context(some_generator(folder, own=own))
        bare = opened.enter_context(bare_handler(folder))
        ours = opened.enter_context(penstock_server(folder))
        contest = _Contest(generator, extent)
        contest.enter(_BARE, bare, "send", 1)
        sends, lifecycles = with_queue(ours, "sends"), with_queue(ours, "lifecycles")
        contest.enter(_SEND, sends, "send", 1)
        contest.enter(_SEND_TENS, sends, "send", 10)
        for batch, how in BATCHES.items():
            contest.enter(f"lifecycle, {how}", lifecycles, "lifecycle", batch)
        if moto is not None:
            theirs = opened.enter_context(moto_server(moto, folder))
            contest.enter(_MOTO_SEND, with_queue(theirs, "sends"), "send", 1, seconds_min=_MOTO_SECONDS_MIN)
        for job in contest.jobs(_WARM_UP_SECONDS):
            await generator.run(job)
        narrator.say(f"HTTP, with {generator.name} …")
        trials = await take_turns(contest.contestants(), extent.rounds)
    section = Section(
        title=f"HTTP with durable SQLite, {extent.callers} connections, by {generator.name}",
        trials=list(trials.values()),
        ratios=_ratios(trials),
        operations="requests",
    )
    return section, [NO_MOTO] if moto is None else []


class _Contest:
    """What is measured, by name."""

    def __init__(self, generator: Generator, extent: Extent) -> None:
        self._generator = generator
        self._extent = extent
        self._entered: dict[str, tuple[Serving, Kind, int, float]] = {}

    def enter(self, name: str, serving: Serving, kind: Kind, batch: int, *, seconds_min: float = 0.0) -> None:
        """Have this measured too, each time for `seconds_min` at least."""
        self._entered[name] = (serving, kind, batch, seconds_min)

    def jobs(self, seconds: float) -> list[Job]:
        """Return one job for each that takes so long."""
        return [self._job(name, seconds) for name in self._entered]

    def contestants(self) -> dict[str, Contestant]:
        """Return those who take turns."""
        return {name: self._contestant(self._job(name, self._extent.seconds)) for name in self._entered}

    def _job(self, name: str, seconds: float) -> Job:
        serving, kind, batch, seconds_min = self._entered[name]
        return Job(
            port=serving.port,
            pid=serving.pid,
            queue_url=serving.queue_url,
            kind=kind,
            batch=batch,
            connections=self._extent.callers,
            body_bytes=self._extent.body_bytes,
            seconds=max(seconds, seconds_min),
        )

    def _contestant(self, job: Job) -> Contestant:
        return lambda: self._generator.run(job)


def _ratios(trials: dict[str, Trial]) -> list[Ratio]:
    ratios = [
        ratio("SendMessage to the bare handler", trials[_SEND], trials[_BARE], wanted=BARE_RATIO_WANTED),
        _cpu_ratio("the same by the processor time of the server", trials[_SEND], trials[_BARE]),
        ratio("messages in tens to single ones", trials[_SEND_TENS], trials[_SEND], wanted=BATCH_RATIO_WANTED),
    ]
    if _MOTO_SEND in trials:
        ratios.append(ratio("SendMessage to moto", trials[_SEND], trials[_MOTO_SEND], wanted=MOTO_RATIO_WANTED))
    return ratios


def _cpu_ratio(name: str, one: Trial, other: Trial) -> Ratio:
    """Compare by the processor time a message takes, round by round, so that more is better here too."""
    each = [
        theirs.cpu_us_per_message / mine.cpu_us_per_message
        for mine, theirs in zip(one.rounds, other.rounds, strict=True)
        if mine.cpu_us_per_message
    ]
    return Ratio(name=name, value=round(statistics.median(each), 3) if each else 0.0)
