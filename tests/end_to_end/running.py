"""Server processes, started and ended by tests, and clients of theirs."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config

STOP_TIMEOUT_S = 20.0
CLIENT_TIMEOUT_S = 120.0
"""How long another program may take. Some of them take seconds to start where nothing else goes on."""
REGION = "eu-central-1"
_SESSION = boto3.session.Session(aws_access_key_id="any", aws_secret_access_key="any")
"""One for all clients: it reads the model of SQS once, which takes longer than most tests."""
_MAKING_A_CLIENT = threading.Lock()
"""A session is not for several threads; the clients that it makes are."""
QUICK_RETRIES = Config(retries={"total_max_attempts": 2})


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock", *arguments]


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment, but for what would configure a server, and with these variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")} | variables


class RunningServer:
    """A `penstock serve` that has said that it is ready. `errors` is the file that its stderr goes to."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        self.errors = folder / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command("serve", *arguments),
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=environment(**variables),
                text=True,
            )
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline()
        if not self.ready_line:
            self.__exit__()
            raise AssertionError(f"it did not start: {self.errors.read_text()}")
        self.url = self.ready_line.split()[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, in whatever state a test left it."""
        self.process.kill()
        self.process.wait(timeout=STOP_TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def sqs(self, *, config: Config = QUICK_RETRIES, **settings: Any) -> Any:
        """Make a stock boto3 client of it."""
        with _MAKING_A_CLIENT:
            return _SESSION.client("sqs", endpoint_url=self.url, region_name=REGION, config=config, **settings)

    def connect(self) -> socket.socket:
        """Open a bare connection to it."""
        address = urlsplit(self.url)
        assert address.hostname is not None
        assert address.port is not None
        return socket.create_connection((address.hostname, address.port), timeout=STOP_TIMEOUT_S)

    def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        with urllib.request.urlopen(self.url + path, timeout=STOP_TIMEOUT_S) as answer:
            return json.load(answer)

    def post(self, path: str, value: object) -> Any:
        """Post JSON to a path, and return the JSON that comes back."""
        request = urllib.request.Request(self.url + path, data=json.dumps(value).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=STOP_TIMEOUT_S) as answer:
            return json.load(answer)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to stop; return its exit code, and what else it has written to stdout."""
        self.process.send_signal(how)
        rest, _ = self.process.communicate(timeout=STOP_TIMEOUT_S)
        return self.process.returncode, rest


def fail_to_serve(folder: Path, *arguments: str) -> str:
    """Start a server that cannot start, and return the lines in which it says why."""
    done = subprocess.run(
        command("serve", *arguments),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment(),
        timeout=STOP_TIMEOUT_S,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith(("error: ", "refused: "))
    return done.stderr


@contextlib.contextmanager
def many_files(count: int) -> Iterator[None]:
    """Let this process have so many files and connections open, for the length of the block."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < count:
        pytest.skip(f"a process may have only {most} files open here: {count} were NOT tried")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, count), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


def receive_bytes(queue_url: str, *, wait_s: int = 0, hide_s: int | None = None) -> bytes:
    """Write a ReceiveMessage as a bare request of the Query protocol."""
    path = urlsplit(queue_url).path
    query = f"Action=ReceiveMessage&WaitTimeSeconds={wait_s}&AttributeName.1=All"
    if hide_s is not None:
        query += f"&VisibilityTimeout={hide_s}"
    # Signed by nobody, but it says which region it is for.
    scope = f"AWS4-HMAC-SHA256 Credential=any/20260101/{REGION}/sqs/aws4_request, SignedHeaders=host, Signature=0"
    return f"GET {path}?{query} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {scope}\r\n\r\n".encode()


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    read = b""
    while part := connection.recv(65_536):
        read += part
    return read
