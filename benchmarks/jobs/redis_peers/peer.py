"""One side of a peer: `peer.py celery|rq work|produce PORT` runs a worker or a producer on the Redis at this port.

A producer reads lines of JSON, each asking for one thing, and answers each with a line. It ends with its input.
"""

from __future__ import annotations

import importlib
import json
import random
import string
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_POLL_SECONDS = 0.002


class Producer(Protocol):
    """Puts jobs into one system."""

    def enqueue(self, payloads: list[str]) -> None:
        """Enqueue a job for each payload, together if there are several."""

    def completed(self) -> int:
        """Tell how many jobs are completed in all."""


def produce(producer: Producer) -> None:
    """Do what is asked until the input ends."""
    before = producer.completed()
    for line in sys.stdin:
        asked = json.loads(line)
        started_s = time.perf_counter()
        if asked["do"] == "enqueue":
            _enqueue(producer.enqueue, asked)
        else:
            _wait(producer, before + asked["completed"], asked["seconds_max"])
        print(json.dumps({"seconds": time.perf_counter() - started_s}), flush=True)  # noqa: T201 # The answer.


def _enqueue(enqueue: Callable[[list[str]], None], asked: dict[str, int]) -> None:
    letters = random.Random(asked["payload_bytes"]).choices(string.ascii_letters, k=asked["payload_bytes"])
    payload, batch = "".join(letters), asked["batch"]
    batches = [[payload] * min(batch, asked["jobs"] - first) for first in range(0, asked["jobs"], batch)]
    with ThreadPoolExecutor(asked["callers"]) as callers:
        for _ in callers.map(enqueue, batches):
            pass


def _wait(producer: Producer, completed: int, seconds_max: float) -> None:
    ends_s = time.perf_counter() + seconds_max
    while producer.completed() < completed:
        if time.perf_counter() > ends_s:
            raise SystemExit(f"the jobs were not completed within {seconds_max:g} s")
        time.sleep(_POLL_SECONDS)


def _ready() -> None:
    print("ready at :0", flush=True)  # noqa: T201 # Who started it waits for this.


if __name__ == "__main__":
    name, side, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    peer = importlib.import_module(f"{name}_peer")
    if side == "work":
        peer.work(port, _ready)
    else:
        produce(peer.producer(port))
