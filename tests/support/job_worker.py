"""A worker as a process: `python -m tests.support.job_worker ADDRESSES QUEUE NAME LEASE_MS JOURNAL`.

It does what the payloads tell it, and writes down what it does before and after it does it. It ends with its input.
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

from tests.support.job_api import JobApi, Unreachable

OFFERS_MAX = 3
POLL_MS = 300
BEATS_IN_A_LEASE = 4
SLACK_S = 0.02
"""By how much a lease may be shorter than the time that its worker measures: the server counts in milliseconds."""

PATIENCE_S = 60.0


class Journal:
    """What a worker did. A line is written at once, so that a kill leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, offer: dict[str, Any], **more: object) -> None:
        line = {"what": what, "job": offer["id"], "attempt": offer["attempt"], "at_s": time.monotonic(), **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Worker:
    """Takes offers and runs them, one after the other."""

    def __init__(self, api: JobApi, journal: Journal, *, queue: str, name: str, lease_s: float) -> None:
        self._api = api
        self._journal = journal
        self._wanted = {"queues": [queue], "worker": name, "count": OFFERS_MAX, "wait_ms": POLL_MS}
        self._lease_s = lease_s - SLACK_S

    def work(self) -> None:
        while True:
            answer = self._api.insist("POST", "/v1/dequeue", self._wanted, seconds=PATIENCE_S)
            if answer.status != 200:
                raise AssertionError(f"a dequeue was answered {answer.status}: {answer.body!r}")
            for offer in answer.json()["offers"]:
                self._run(offer)

    def _run(self, offer: dict[str, Any]) -> None:
        # From before the first request on: that may have been heard, though its answer was not.
        asked_s = time.monotonic()
        if self._report(offer, "accept") != 200:
            return
        self._journal.note("start", offer, until_s=asked_s + self._lease_s)
        kept = self._spend(offer, offer["payload"]["ms"] / 1000)
        self._journal.note("end", offer)
        verb, told = ("complete", {"result": offer["attempt"]}) if not kept else self._outcome(offer)
        # One that knows that its lease is over tells all the same: it must not be believed, or it still had it.
        status = self._report(offer, verb, told)
        self._journal.note("told", offer, verb=verb, status=status)

    def _spend(self, offer: dict[str, Any], seconds: float) -> bool:
        """Be busy for so long, with heartbeats; False if the lease was lost over it."""
        ends_s = time.monotonic() + seconds
        while (left_s := ends_s - time.monotonic()) > 0:
            beat_s = self._lease_s / BEATS_IN_A_LEASE
            threading.Event().wait(min(left_s, beat_s))
            if left_s > beat_s:
                asked_s = time.monotonic()
                if self._report(offer, "heartbeat") != 200:
                    return False
                self._journal.note("extend", offer, until_s=asked_s + self._lease_s)
        return True

    def _outcome(self, offer: dict[str, Any]) -> tuple[str, dict[str, object]]:
        payload = offer["payload"]
        if offer.get("failures", 0) < payload["fails"]:
            return "fail", {"kind": "Planned", "permanent": payload["permanent"]}
        if payload["snoozes"] and offer["attempt"] == 1:
            return "snooze", {"delay_ms": 30}
        return "complete", {"result": offer["attempt"]}

    def _report(self, offer: dict[str, Any], verb: str, told: object = None) -> int:
        answer = self._api.insist("POST", f"/v1/leases/{offer['token']}/{verb}", told, seconds=PATIENCE_S)
        if answer.status not in {200, 409}:
            raise AssertionError(f"{verb} was answered {answer.status}: {answer.body!r}")
        return answer.status


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main(addresses: str, queue: str, name: str, lease_ms: str, journal: str) -> None:
    threading.Thread(target=_end_with_input, daemon=True).start()
    api = JobApi(Path(addresses), random.Random(name))
    worker = Worker(api, Journal(Path(journal)), queue=queue, name=name, lease_s=int(lease_ms) / 1000)
    try:
        worker.work()
    except Unreachable as error:
        raise SystemExit(f"no server answered for {PATIENCE_S:g} s: {error}") from error


if __name__ == "__main__":
    main(*sys.argv[1:])
