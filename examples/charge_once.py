"""Charge a card once, although the worker is killed between the charge and its record: idempotency keys.

    python examples/charge_once.py

A payment service in this process takes charges by HTTP. It honours the header Idempotency-Key, as Stripe, Adyen and
others do: the same key again is the same charge. Set PENSTOCK_URL to use a server or a database; otherwise the jobs are
in a file in the present folder.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from penstock import Penstock, Retry, Worker, current

app = Penstock(os.environ.get("PENSTOCK_URL", "sqlite:charge-jobs.db"))
AGAIN = Retry(attempts=5, backoff="50ms")


def charge(order: int, cents: int, key: str) -> str:
    """Charge by HTTP, and return the id of the charge."""
    request = urllib.request.Request(  # noqa: S310 - the service of this program
        os.environ["PAYMENTS_URL"],
        data=json.dumps({"order": order, "cents": cents}).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": key},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
        charged: str = json.load(answer)["charge"]
    if current().attempt == 1:
        # The worst instant: the card is charged, and nobody knows.
        os.kill(os.getpid(), signal.SIGKILL)
    return charged


@app.task(name="pay", queue="payments", retry=AGAIN)
def pay(order: int, cents: int) -> str:
    """Charge under the job's id, which is the same in every attempt."""
    ctx = current()
    return ctx.step_sync("charge", charge, order, cents, ctx.id)


@app.task(name="pay_carelessly", queue="payments", retry=AGAIN)
def pay_carelessly(order: int, cents: int) -> str:
    """Charge under a key of each attempt, which is the same as none."""
    ctx = current()
    return ctx.step_sync("charge", charge, order, cents, f"{ctx.id}:{ctx.attempt}")


class Payments(BaseHTTPRequestHandler):
    """The payment service."""

    charges: ClassVar[dict[str, dict[str, int]]] = {}
    requests: ClassVar[list[int]] = []
    lock: ClassVar[threading.Lock] = threading.Lock()

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        with self.lock:
            self.requests.append(order["order"])
            self.charges.setdefault(key, order)
        body = json.dumps({"charge": f"ch_{key[:8]}"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def start_worker() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "worker"])  # noqa: S603 - this very program


def main() -> None:
    service = ThreadingHTTPServer(("127.0.0.1", 0), Payments)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    os.environ["PAYMENTS_URL"] = f"http://127.0.0.1:{service.server_port}"
    # What a killed worker had is offered again after its lease: here after a second, otherwise after 30.
    app.sync.queues.put("payments", lease_ms=1_000, offer_ms=1_000)
    jobs = [pay.enqueue_sync(1, 990), pay_carelessly.enqueue_sync(2, 990)]
    workers = [start_worker()]
    while any(job.view_sync().finished_at_ms is None for job in jobs):
        try:
            workers[-1].wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
        workers.append(start_worker())
    workers[-1].terminate()
    workers[-1].wait()
    service.shutdown()
    service.server_close()
    for order, key in ((1, "the job's id as key"), (2, "a key of each attempt")):
        charged = [charge for charge in Payments.charges.values() if charge["order"] == order]
        print(f"{key}: {Payments.requests.count(order)} requests, {len(charged)} charged")


if __name__ == "__main__":
    with app:
        if sys.argv[1:] == ["worker"]:
            logging.basicConfig(level=logging.CRITICAL)  # The losses of this example are meant.
            asyncio.run(Worker(app, {"payments": 1}).run())
        else:
            main()
