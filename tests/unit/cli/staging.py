"""A worker's terminal on a stage: facts, notices and a clock that the test sets."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from penstock.cli.terminal.worker import QueueFacts, WorkerFacts, WorkerTerminal
from penstock.client.worker.notices import Notice, Retrying, Status, Trouble
from penstock.domain.clock import ManualClock
from tests.unit.cli.terminals import UTF8, Terminal

SHOP = WorkerFacts(
    version="0.9.0",
    address="http://queue:9324",
    server_name="prod-eu",
    server_version="0.9.0",
    name="shop-7f2c",
    queues=(
        QueueFacts(name="docs", slots=10, tasks=("extract", "assemble", "render")),
        QueueFacts(name="mail", slots=2, tasks=("confirm", "remind")),
    ),
    lease_s=30,
    grace_s=25,
)
BUSY = Trouble(
    kind="SMTPServerBusy", message="421 too many connections from your host", at="shop/mail.py:33 in deliver"
)
TRACEBACK = """Traceback (most recent call last):
  File "/srv/venv/lib/python3.12/site-packages/penstock/client/worker.py", line 214, in _run
    result = await task.call(payload)
             ^^^^^^^^^^^^^^^^^^^^^^^^
  File "shop/tasks.py", line 88, in confirm
    await deliver(invoice, to=customer.email)
  File "shop/mail.py", line 41, in deliver
    await smtp.sendmail(SENDER, [to], message.as_bytes())
  File "/srv/venv/lib/python3.12/site-packages/aiosmtplib/smtp.py", line 612, in sendmail
    raise SMTPRecipientRefused(code, text, recipient)
RecipientRefused: 550 5.1.1 <ap@acme.example>: mailbox unavailable
"""
GONE = Trouble(
    kind="RecipientRefused",
    message="550 5.1.1 <ap@acme.example>: mailbox unavailable",
    details=TRACEBACK,
    at="shop/mail.py:41 in deliver",
)
STATUS = Status(slots=12, running=11, done=1_204, retrying=40, dead=0, last_job_s=0.2)


def clock_at(time: str) -> ManualClock:
    return ManualClock(int(datetime.fromisoformat(f"2026-11-17T{time}+00:00").timestamp() * 1_000))


def of_job(queue: str, task: str, job: str = "j") -> dict[str, Any]:
    return {"queue": queue, "task": task, "job": job, "attempt": 1}


def retrying(job: str, **changed: Any) -> Retrying:
    about: dict[str, Any] = {"queue": "mail", "task": "confirm", "attempt": 1, "attempts_max": 5, "in_s": 1.2}
    return Retrying(**{**about, "job": job, "trouble": BUSY, **changed})


class Stage:
    """A worker's terminal whose clock the test sets."""

    def __init__(self, terminal: Terminal, environment: Mapping[str, str] = UTF8, **settings: Any) -> None:
        self.clock = clock_at("03:14:07")
        self.worker = WorkerTerminal(
            SHOP, terminal.stream, clock=self.clock, zone=UTC, environment=environment, **settings
        )

    async def at(self, time: str, notice: Notice) -> None:
        await self.clock.advance(ms=clock_at(time).now_ms() - self.clock.now_ms())
        self.worker.notice(notice)


def records_of(worker: WorkerTerminal, log: Callable[[logging.Logger], None]) -> None:
    logger = logging.Logger("shop.mail")  # noqa: LOG001 - one that the next test does not meet
    logger.addHandler(worker.log_handler())
    log(logger)


def piped(**settings: Any) -> tuple[WorkerTerminal, io.StringIO]:
    stream = io.StringIO()
    clock = ManualClock(clock_at("03:16:41").now_ms() + 204)
    return WorkerTerminal(SHOP, stream, clock=clock, environment=UTF8, **settings), stream
