"""Programs that are asked in lines of JSON, one thing at a time, and answer each with a line."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from benchmarks.errors import BenchmarkFailed, WorkFailed
from benchmarks.process import child_environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

_STOP_SECONDS_MAX = 10.0
_REASON_CHARS = 500
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""How long a line may be: that of a flood has a number for each request that was accepted."""


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """How long it took to do what was asked; with a `failure`, it was not done."""

    seconds: float = 0.0
    failure: str | None = None


TookT = TypeVar("TookT", bound=Took)


class Program:
    """A running program."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    async def ask(self, asked: object, *, seconds_max: float) -> float:
        """Have something done, and return how many seconds that took."""
        return (await self.ask_for(Took, asked, seconds_max=seconds_max)).seconds

    async def ask_for(self, kind: type[TookT], asked: object, *, seconds_max: float) -> TookT:
        """Have something done, and return what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(asked) + b"\n")
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), seconds_max)
        except TimeoutError:
            raise BenchmarkFailed(f"a load generator did not answer within {seconds_max:g} s") from None
        if not line:
            said = self._log.read_text(errors="replace").strip()[-_REASON_CHARS:]
            raise BenchmarkFailed(f"a load generator ended: {said or 'it does not say why'}")
        took = msgspec.json.decode(line, type=kind)
        if took.failure is not None:
            raise WorkFailed(took.failure)
        return took


@asynccontextmanager
async def running(command: Sequence[str], folder: Path, name: str) -> AsyncIterator[Program]:
    """Run a program until the block ends; what it complains about is kept in a file of this folder."""
    log = folder / f"{name}.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=ANSWER_BYTES_MAX,
            stderr=errors,
            cwd=folder,
            env=child_environment(),
        )
    try:
        yield Program(process, log)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS_MAX)
        except TimeoutError:
            process.kill()
            await process.wait()
