"""A worker with a stream, as a process: `python -m tests.support.stream_worker URL QUEUE NAME CREDIT`.

It accepts and completes whatever it is offered, one after the other, and says on its output what it does: `open`, then
`accepted ID` and `done ID`. A job whose payload is "hold" it never completes. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

import httpx


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(client: httpx.Client, offer: dict[str, Any]) -> None:
    if client.post(f"/v1/leases/{offer['token']}/accept").status_code != 200:
        return  # It took too long.
    say(f"accepted {offer['id']}")
    if offer["payload"] != "hold":
        client.post(f"/v1/leases/{offer['token']}/complete").raise_for_status()
        say(f"done {offer['id']}")


def work(url: str, queue: str, name: str, credit: int) -> None:
    wanted = {"queues": [queue], "worker": name, "count": credit}
    accepted = {"Accept": "application/x-ndjson"}
    with (
        httpx.Client(base_url=url, timeout=60, trust_env=False) as client,
        client.stream("POST", "/v1/dequeue", json=wanted, headers=accepted) as stream,
    ):
        for line in map(json.loads, stream.iter_lines()):
            if "stream" in line:
                say("open")
            elif "offer" in line:
                run(client, line["offer"])


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    work(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
