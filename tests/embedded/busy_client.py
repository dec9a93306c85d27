"""A process that enqueues jobs and works on them: `python -m tests.embedded.busy_client DATABASE LEDGER NAME`.

A line is written before and after each call. It enqueues until it reads `drain`, and ends with its input.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.client.embedded.opening import owner_dialer
from tests.support.embedded import Answer, RawClient

QUEUE = "work"
POLL_MS = 200
BEATS_MAX = 8
WAITING_MAX = 20
BEAT_S = 0.02
BETWEEN_JOBS_S = (0.0, 0.04)


def new_id() -> str:
    return str(UUID(bytes=os.urandom(16), version=4))


class Ledger:
    """What a process did. A line is written at once, so that a kill leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, **what: object) -> None:
        os.write(self._file, json.dumps({**what, "at_s": time.monotonic()}).encode() + b"\n")


class Caller:
    """Makes calls, each repeated with the same body until it is answered, and writes down each of them."""

    def __init__(self, client: RawClient, ledger: Ledger) -> None:
        self._client = client
        self._ledger = ledger

    def call(self, verb: str, path: str, body: object, *, job: str = "") -> Answer:
        self._ledger.note(what="call", verb=verb, job=job)
        answer = self._client.insist("POST", path, body)
        owner = int(answer.headers.get("penstock-owner", 0))
        self._ledger.note(what="answer", verb=verb, job=job, status=answer.status, owner=owner)
        return answer


def produce(caller: Caller, room: threading.Semaphore, draining: threading.Event) -> None:
    """Enqueue jobs with ids of our own, no faster than they are worked on."""
    while not draining.wait(random.uniform(*BETWEEN_JOBS_S)):
        if not room.acquire(timeout=POLL_MS / 1_000):
            continue
        job = new_id()
        caller.call("enqueue", "/v1/jobs", {"queue": QUEUE, "task": "t", "id": job}, job=job)


def consume(caller: Caller, name: str, room: threading.Semaphore, ending: threading.Event) -> None:
    """Work on what is offered, one job after the other, with heartbeats."""
    while not ending.is_set():
        wanted = {"queues": [QUEUE], "worker": name, "wait_ms": POLL_MS, "request_id": new_id()}
        offered = caller.call("dequeue", "/v1/dequeue", wanted).json()
        for offer in offered["offers"]:
            work(caller, name, offer)
            room.release()


def work(caller: Caller, name: str, offer: dict[str, Any]) -> None:
    lease, job = f"/v1/leases/{offer['token']}", offer["id"]
    if caller.call("accept", f"{lease}/accept", {}, job=job).status != 200:
        return
    for _ in range(random.randint(0, BEATS_MAX)):
        threading.Event().wait(BEAT_S)
        caller.call("heartbeat", f"{lease}/heartbeat", {}, job=job)
    caller.call("complete", f"{lease}/complete", {"result": name}, job=job)


def main(database: str, ledger: str, name: str) -> None:
    notes = Ledger(Path(ledger))
    dialer = owner_dialer(database)
    draining, ending = threading.Event(), threading.Event()
    room = threading.Semaphore(WAITING_MAX)
    callers = [Caller(RawClient(dialer), notes) for _ in range(2)]
    consumer = threading.Thread(target=consume, args=(callers[0], name, room, ending), daemon=True)
    producer = threading.Thread(target=produce, args=(callers[1], room, draining), daemon=True)
    consumer.start()
    producer.start()
    for _ in sys.stdin:
        draining.set()
        producer.join()
        sys.stdout.write("drained\n")
        sys.stdout.flush()
    ending.set()
    consumer.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
