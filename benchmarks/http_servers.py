"""Server processes that are measured over HTTP: ours, the bare handler, and moto's where it is installed."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.errors import ServerUnavailable
from benchmarks.http_requests import REGION
from benchmarks.process import child_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_START_SECONDS_MAX = 60.0
_STOP_SECONDS_MAX = 20.0
_CALL_SECONDS_MAX = 20.0

# The shell tells the server's pid, ends it when the pipe to us closes, and ends with it: even a killed benchmark leaves
# no server behind, and one that dies is noticed.
_UNTIL_WE_ARE_GONE = """
exec 3<&0
"$@" 3<&- & server=$!
echo "pid $server"
(cat <&3; kill -TERM $server) >/dev/null 2>&1 &
exec 3<&-
wait $server
kill $! 2>/dev/null
"""


class Serving(msgspec.Struct, frozen=True):
    """A server that takes requests on this machine, with a queue to work on."""

    pid: int
    port: int
    queue_url: str = ""


@contextlib.contextmanager
def bare_handler(folder: Path) -> Iterator[Serving]:
    """Run the bare handler. It has no queues, and looks at the name of none."""
    with started([sys.executable, "-m", "benchmarks.http_bare"], folder) as serving:
        yield msgspec.structs.replace(serving, queue_url=f"http://127.0.0.1:{serving.port}/000000000000/bench")


@contextlib.contextmanager
def penstock_server(folder: Path, store: str | None = None, *, source: Path | None = None) -> Iterator[Serving]:
    """Run `penstock serve` on this store, or on a durable SQLite store in this folder; of another checkout's source."""
    settings = {} if source is None else {"PYTHONPATH": str(source.resolve() / "src")}
    command = [sys.executable, "-m", "penstock", "serve", "--host", "127.0.0.1", "--port", "0"]
    with started([*command, "--store", store or f"sqlite:{folder / 'http.db'}"], folder, settings=settings) as serving:
        yield serving


def find_moto() -> list[str] | None:
    """Return the command that runs moto's server: a module of this Python, or a program on the PATH."""
    if all(importlib.util.find_spec(name) is not None for name in ("moto", "flask")):
        return [sys.executable, "-m", "moto.server"]
    program = shutil.which("moto_server")
    return None if program is None else [program]


@contextlib.contextmanager
def moto_server(command: Sequence[str], folder: Path) -> Iterator[Serving]:
    """Run moto's server, which keeps everything in memory."""
    port = free_port()
    with started([*command, "-H", "127.0.0.1", "-p", str(port)], folder, port=port) as serving:
        yield serving


def free_port() -> int:
    """Return a port that nobody listens on, for a server that has to be told one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def with_queue(serving: Serving, name: str, *, fifo: bool = False) -> Serving:
    """Make a queue on a server, and return that server with it."""
    asked: dict[str, object] = {"QueueName": name}
    if fifo:
        asked = {"QueueName": f"{name}.fifo", "Attributes": {"FifoQueue": "true"}}
    return msgspec.structs.replace(serving, queue_url=str(call(serving, "CreateQueue", asked)["QueueUrl"]))


def call(serving: Serving, operation: str, asked: dict[str, object]) -> dict[str, Any]:
    """Do one SQS operation, and return its answer."""
    scope = f"AKIDEXAMPLE/20260101/{REGION}/sqs/aws4_request"
    request = urllib.request.Request(
        f"http://127.0.0.1:{serving.port}/",
        data=json.dumps(asked).encode(),
        headers={
            "X-Amz-Target": f"AmazonSQS.{operation}",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
        },
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_CALL_SECONDS_MAX) as answer:
            answered: dict[str, Any] = json.loads(answer.read() or b"{}")
            return answered
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ServerUnavailable(f"a server that was started does not do {operation}: {error}") from error


@contextlib.contextmanager
def started(
    command: Sequence[str], folder: Path, *, port: int | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Serving]:
    """Run a server until the block ends. It prints its address once it is ready; if not, it is told its `port`.

    The settings are added to its environment.
    """
    log = folder / f"{command[-1].strip('/').replace('/', '-')[-40:]}.log"
    environment = {name: value for name, value in child_environment().items() if not name.startswith("PENSTOCK_")}
    environment |= settings or {}
    with log.open("wb") as errors:
        server = subprocess.Popen(
            ["/bin/sh", "-c", _UNTIL_WE_ARE_GONE, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        ends_s = time.monotonic() + _START_SECONDS_MAX
        try:
            pid = int(_line(server, "pid ", ends_s))
            if port is None:
                port = int(_line(server, "ready at ", ends_s).rpartition(":")[2])
            else:
                _wait_for(port, server, ends_s)
        except _NotStarted:
            reason = log.read_text(errors="replace").strip()[-1000:] or "it does not say why"
            raise ServerUnavailable(f"{' '.join(command[:4])} did not start: {reason}") from None
        yield Serving(pid, port)
    finally:
        server.stdin.close()
        _wait_until_gone(server)
        server.stdout.close()


class _NotStarted(Exception):
    """The server ended, or took too long."""


def _line(server: subprocess.Popen[bytes], wanted: str, ends_s: float) -> str:
    """Read lines until one has the wanted words in it, and return what follows them."""
    assert server.stdout is not None
    while True:
        # It prints a line or two, so what is readable is a line, and none is left in a buffer of ours.
        readable, _, _ = select.select([server.stdout], [], [], max(0.0, ends_s - time.monotonic()))
        line = b"" if not readable else _read_line(server.stdout.fileno())
        if not line:
            raise _NotStarted
        _, found, rest = line.decode(errors="replace").partition(wanted)
        if found:
            return rest.strip()


def _read_line(file: int) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(file, 1)):
        line += byte
    return line


def _wait_for(port: int, server: subprocess.Popen[bytes], ends_s: float) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > ends_s or server.poll() is not None:
                raise _NotStarted from None
            time.sleep(0.05)
        else:
            return


def _wait_until_gone(server: subprocess.Popen[bytes]) -> None:
    try:
        server.wait(timeout=_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        # Its whole session, which holds nothing but the shell and the server.
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
