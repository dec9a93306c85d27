"""A worker as a process: `python -m tests.tasks.chaos.worker QUEUE SLOTS GRACE_S`.

It writes each notice as a line of JSON. It is killed when the process that started it ends.
"""

from __future__ import annotations

import os
import sys
import threading

import msgspec

from penstock import Worker
from penstock.client.worker.notices import Notice
from tests.tasks.chaos.tasks import app


class Printer:
    verbose = False

    def notice(self, notice: Notice) -> None:
        line = {"notice": type(notice).__name__, **msgspec.to_builtins(notice)}
        os.write(1, msgspec.json.encode(line) + b"\n")


def end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main(queue: str, slots: str, grace_s: str) -> None:
    threading.Thread(target=end_with_input, daemon=True).start()
    worker = Worker(app, {queue: int(slots)}, grace=float(grace_s), observer=Printer())
    worker.run_sync()
    os.write(1, msgspec.json.encode({"notice": "Recycle", "reason": worker.recycle}) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
