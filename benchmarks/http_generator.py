"""What makes the load: wrk where it is installed, and otherwise a process of our own that does the same."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from benchmarks.errors import BenchmarkFailed, WorkFailed
from benchmarks.http_load import ANSWER_SECONDS_MAX, Done
from benchmarks.http_requests import write_head
from benchmarks.process import cpu_seconds_of
from benchmarks.timing import Rate
from benchmarks.workload import make_bodies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.http_load import Job

OWN = "our own generator (a process with uvloop)"

_SCRIPT = Path(__file__).with_name("http_load.lua")
_STOP_SECONDS_MAX = 10.0
_WRK_SLACK_SECONDS = 30.0
_REPORT_MARK = b"REPORT "


class Generator(Protocol):
    """Makes load, and tells what came of it."""

    @property
    def name(self) -> str:
        """What it is called in reports."""

    async def run(self, job: Job) -> Rate:
        """Do a job; its operations are requests, and the processor time is the server's."""


@asynccontextmanager
async def some_generator(folder: Path, *, own: bool = False) -> AsyncIterator[Generator]:
    """Give wrk if it is on the PATH, or else, or if it is asked for, our own."""
    program = None if own else shutil.which("wrk")
    if program is not None:
        yield WrkGenerator(program, folder)
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.http_load",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield OwnGenerator(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS_MAX)
        except TimeoutError:
            process.kill()
            await process.wait()


class OwnGenerator:
    """A process that does one job after the other."""

    name = OWN

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, job: Job) -> Rate:
        """Have a job done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(job) + b"\n")
        longest_s = job.seconds + 2 * ANSWER_SECONDS_MAX
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), longest_s)
        except TimeoutError:
            raise BenchmarkFailed(f"the load generator did not answer within {longest_s:g} s") from None
        if not line:
            raise BenchmarkFailed("the load generator ended")
        return _rate(msgspec.json.decode(line, type=Done))


class WrkGenerator:
    """wrk with one thread and a script. It measures whole seconds, so a job takes the next whole number of them."""

    name = "wrk"

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._script = folder / "job.lua"

    async def run(self, job: Job) -> Rate:
        """Have a job done."""
        assert job.messages is None, "wrk counts seconds only"
        self._script.write_text(f"job = {_lua(_told(job))}\n{_SCRIPT.read_text()}")
        seconds = math.ceil(job.seconds)
        cpu_s = cpu_seconds_of(job.pid)
        wrk = await asyncio.create_subprocess_exec(
            self._program,
            "--threads=1",
            f"--connections={job.connections}",
            f"--duration={seconds}s",
            f"--script={self._script}",
            f"http://127.0.0.1:{job.port}/",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await asyncio.wait_for(wrk.communicate(), seconds + _WRK_SLACK_SECONDS)
        except TimeoutError:
            wrk.kill()
            await wrk.wait()
            raise BenchmarkFailed("wrk did not end in time") from None
        cpu_s = cpu_seconds_of(job.pid) - cpu_s
        _, found, told = output.partition(_REPORT_MARK)
        if wrk.returncode or not found:
            raise BenchmarkFailed(f"wrk failed: {output.decode(errors='replace').strip()[-500:]}")
        done = msgspec.json.decode(told.partition(b"\n")[0], type=Done)
        return _rate(msgspec.structs.replace(done, server_cpu_seconds=cpu_s))


def _told(job: Job) -> dict[str, object]:
    """Say to the script what it needs to know; it writes the same requests as `RequestWriter`."""
    operations = ("SendMessage", "SendMessageBatch", "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch")
    heads = {
        operation: [part.decode() for part in write_head(operation, f"127.0.0.1:{job.port}")]
        for operation in operations
    }
    return {
        "run": os.urandom(4).hex(),
        "kind": job.kind,
        "batch": job.batch,
        "queue_urls": job.queue_urls or [job.queue_url],
        "groups": job.groups,
        "connections": job.connections,
        "heads": heads,
        "bodies": make_bodies(job.body_bytes),
    }


def _lua(value: object) -> str:
    """Write a value in Lua. Texts are ASCII, in which JSON escapes nothing otherwise than Lua."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{_lua(key)}] = {_lua(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(_lua(each) for each in value) + "}"
    return json.dumps(value)


def _rate(done: Done) -> Rate:
    if done.failure is not None:
        raise WorkFailed(done.failure)
    if not done.messages or done.latency is None:
        raise WorkFailed(f"no message was done with in {done.seconds:g} s")
    return Rate(
        operations=done.requests,
        messages=done.messages,
        seconds=round(done.seconds, 4),
        operations_per_s=round(done.requests / done.seconds, 1),
        messages_per_s=round(done.messages / done.seconds, 1),
        cpu_us_per_message=round(done.server_cpu_seconds * 1e6 / done.messages, 2),
        latency=done.latency,
    )
