"""What a server writes to a terminal: its banner, and its log records as lines for people."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.cli.holdings import Holdings
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.server_banner import StoreFacts, banner
from penstock.cli.terminal.server_lines import ServerHandler
from penstock.domain.clock import ManualClock
from penstock.domain.errors import StoreUnavailable
from penstock.domain.policy import Policy
from penstock.engine.upkeep import Upkeep
from penstock.server.access import AccessKey
from penstock.server.config import ServerConfig
from penstock.store.port import StoreVersion
from tests.unit.cli.terminals import UTF8, Terminal

HELD = Holdings(sqs_queues=9, job_queues=13, waiting=55_728, dead=6_031)
SQLITE = StoreVersion(database="SQLite 3.50.4", schema=14)
FILE = "sqlite:./data/penstock.db"


def write_banner(terminal: Terminal, config: ServerConfig, store: StoreFacts, **environment: str) -> None:
    host = f"http://{config.host}:{config.port}"
    url = host if config.socket is None else f"unix:{config.socket}"
    screen = Screen(terminal.stream, environment={**UTF8, **environment})
    banner(screen, config, url, store, version="0.9.0", took_s=0.312)


def test_the_banner_looks_as_drawn() -> None:
    store = StoreFacts(url=FILE, size_bytes=3_435_973_837, version=SQLITE, holdings=HELD)
    with Terminal() as terminal:
        write_banner(terminal, ServerConfig(), store)
    assert (
        terminal.screen
        == """\
Penstock 0.9.0 on http://127.0.0.1:9324

  store   sqlite:./data/penstock.db  3.2 GiB, schema 14
  holds   9 SQS queues, 13 job queues  55,728 waiting, 6,031 dead
  SQS     --endpoint-url http://127.0.0.1:9324  region us-east-1
  access  no keys set  only this machine can connect

✓ Ready in 0.31 s. Press Ctrl+C to stop.
"""
    )
    assert terminal.raw.startswith("\x1b[1mPenstock 0.9.0\x1b[0m on \x1b[1mhttp://127.0.0.1:9324\x1b[0m\n")
    assert "\n\x1b[32m✓\x1b[0m Ready" in terminal.raw


def test_an_open_server_warns_just_above_the_ready_line() -> None:
    store = StoreFacts(
        url="postgresql://me:secret@db/penstock?password=hush",
        version=StoreVersion(database="PostgreSQL 16.4", schema=14),
        holdings=HELD,
    )
    with Terminal() as terminal:
        write_banner(terminal, ServerConfig(host="0.0.0.0", insecure=True, store=store.url), store)
    assert (
        terminal.screen
        == """\
Penstock 0.9.0 on http://0.0.0.0:9324

  store   postgresql://me@db/penstock  PostgreSQL 16.4, schema 14
  holds   9 SQS queues, 13 job queues  55,728 waiting, 6,031 dead
  SQS     --endpoint-url http://0.0.0.0:9324  region us-east-1
  access  open: no keys set, reachable from other machines

warning: Anyone who can reach port 9324 can read and delete everything.
  try  add [[keys]] to a file and pass --config FILE, or drop --insecure

✓ Ready in 0.31 s. Press Ctrl+C to stop.
"""
    )
    assert "\x1b[33mwarning:\x1b[0m Anyone" in terminal.raw
    assert "\x1b[33mopen: no keys set, reachable from other machines\x1b[0m" in terminal.raw


def test_a_new_and_empty_store_says_so_in_ascii_too() -> None:
    with Terminal() as terminal:
        store = StoreFacts(url=FILE, new=True, size_bytes=4_096, version=SQLITE, holdings=Holdings())
        write_banner(terminal, ServerConfig(), store, LC_ALL="C", NO_COLOR="1")
    assert "  store   sqlite:./data/penstock.db  new\n  holds   no queues yet\n" in terminal.raw
    assert terminal.raw.endswith("\n+ Ready in 0.31 s. Press Ctrl+C to stop.\n")
    assert terminal.raw.isascii()


def test_keys_and_sockets_have_words_of_their_own() -> None:
    key = AccessKey(id="A", secret="hush", account="111122223333", user="ann", policy=Policy())
    with Terminal() as guarded, Terminal() as local:
        write_banner(guarded, ServerConfig(host="0.0.0.0", keys=(key,)), StoreFacts(url="memory:", version=SQLITE))
        write_banner(local, ServerConfig(socket="/run/p.sock"), StoreFacts(url=FILE, size_bytes=100, version=SQLITE))
    assert "  access  1 key  every request needs one\n" in guarded.screen
    assert "warning" not in guarded.screen
    assert "  store   memory:  kept nowhere: it is gone when the server stops\n" in guarded.screen
    assert local.screen.startswith("Penstock 0.9.0 on unix:/run/p.sock\n")
    assert "  store   sqlite:./data/penstock.db  100 B, schema 14\n" in local.screen
    assert "SQS" not in local.screen


class Log:
    """Loggers whose records are written to one terminal, at times that the test sets."""

    def __init__(self, terminal: Terminal, config: ServerConfig | None = None, *, child: bool = False) -> None:
        screen = Screen(terminal.stream, environment={**UTF8, "NO_COLOR": "1"})
        self.handler = ServerHandler(screen, config or ServerConfig(), child=child, zone=UTC)

    def at(self, time: str, logger: str, text: str, *arguments: Any, level: int = logging.INFO, **extra: Any) -> None:
        record = logging.getLogger(logger).makeRecord(logger, level, "f.py", 1, text, arguments, None, extra=extra)
        record.created = datetime.fromisoformat(f"2026-11-17T{time}+00:00").timestamp()
        record.exc_info = sys.exc_info() if sys.exc_info()[0] else None
        self.handler.handle(record)


def test_a_stop_says_what_it_waits_for_and_that_all_is_kept() -> None:
    with Terminal() as terminal:
        log = Log(terminal)
        terminal.stream.write("^C")
        about: dict[str, Any] = {"signal": "SIGINT", "requests": 18, "long_polls": 40, "grace_s": 30}
        log.at("03:14:07.200", "penstock.server.serving", "stopping", **about)
        log.at("03:14:07.800", "penstock.server.serving", "stopped")
    assert (
        terminal.screen
        == """\
^C
03:14:07 ‖ stopping  finishing 18 requests, ending 40 long polls; at most 30 s
03:14:07 ✓ stopped   in 0.6 s; store closed, everything is on disk
"""
    )


def test_only_one_of_several_processes_says_that_they_stop() -> None:
    with Terminal() as terminal:
        log = Log(terminal, child=True)
        log.at("03:14:07", "penstock.server.serving", "stopping", signal="SIGTERM")
        log.at("03:14:07", "penstock.server.serving", "stopped")
    assert terminal.raw == ""


def test_what_is_denied_dead_or_failed_is_written_once_and_then_counted() -> None:
    with Terminal() as terminal:
        log = Log(terminal)
        refused: dict[str, Any] = {"operation": "PurgeQueue", "status": 403, "code": "SignatureDoesNotMatch"}
        for second in range(10, 15):
            log.at(f"03:13:{second}", "penstock.server.sqs", "request", request_id=f"r{second}", **refused)
        dead: dict[str, Any] = {"report": "fail", "state": "dead", "failure": "KeyError", "attempt": 5}
        job = "019a8f51-a1c0-7e02-b1aa-90f3d2118c17"
        log.at("03:13:20", "penstock.server.jobs.observer", "report", job_id=job, **dead)
        log.at("03:14:30", "penstock.server.jobs.endpoint", "request", request_id="r", operation="dequeue", status=500)
        log.handler.close()
    assert (
        terminal.screen
        == """\
03:13:10 ✕ denied    sqs:PurgeQueue  SignatureDoesNotMatch
03:13:11 ✕ denied    sqs:PurgeQueue  SignatureDoesNotMatch
03:13:20 † dead      019a8f51-a1c0…8c17  attempt 5, KeyError
03:14:30 ✕ denied    sqs:PurgeQueue  SignatureDoesNotMatch  3 times in a minute
                     the same as 03:13:10
03:14:30 ✕ failed    dequeue  500
"""
    )


def test_a_denial_says_who_may_not_do_what() -> None:
    reason = (
        "User: arn:aws:iam::111122223333:user/worker is not authorized to perform: sqs:purgequeue on resource: "
        "arn:aws:sqs:eu-west-1:111122223333:orders because no identity-based policy allows the sqs:purgequeue action"
    )
    about: dict[str, Any] = {"operation": "PurgeQueue", "status": 403, "code": "AccessDenied", "reason": reason}
    with Terminal() as terminal:
        Log(terminal).at("03:13:52", "penstock.server.sqs", "request", request_id="r", **about)
    assert terminal.screen == "03:13:52 ✕ denied    worker may not sqs:PurgeQueue on orders\n"


@pytest.mark.parametrize(("level", "lines"), [("info", 0), ("debug", 2)])
def test_requests_and_jobs_are_for_debugging_only(level: Any, lines: int) -> None:
    with Terminal() as terminal:
        log = Log(terminal, ServerConfig(log_level=level))
        log.at("03:13:10", "penstock.server.sqs", "request", operation="SendMessage", status=200)
        log.at("03:13:10", "penstock.server.jobs.observer", "report", job_id="j", state="retrying")
    assert terminal.raw.count("03:13:10") == lines


def test_other_records_have_their_level_for_a_word() -> None:
    with Terminal() as terminal:
        log = Log(terminal)
        log.at("03:13:10", "penstock.server.service", "fewer connections\x1b[2J", level=logging.WARNING, connections=12)
        log.at("03:13:11", "asyncio", "Slow %s", "callback", level=logging.ERROR)
        try:
            dict[str, str]()["iban"]
        except KeyError:
            log.at("03:13:12", "penstock.server.sqs", "Request r failed", level=logging.ERROR)
    lines = terminal.screen.splitlines()
    assert lines[:6] == [
        "03:13:10 ◔ warning   fewer connections\\x1b[2J",
        "                     connections 12",
        "03:13:11 ✕ error     asyncio  Slow callback",
        "03:13:12 ✕ error     Request r failed",
        "                     This is a bug in Penstock.",
        "  Traceback (most recent call last):",
    ]
    assert lines[-1] == "  KeyError: 'iban'"


@contextmanager
def written_by(handler: logging.Handler, name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


async def test_a_store_that_does_not_answer_is_written_once_and_so_is_its_return() -> None:
    clock = ManualClock(0)
    away = [True]

    async def step() -> int | None:
        if away[0]:
            raise StoreUnavailable("PostgreSQL does not answer: connection refused")
        return None

    with Terminal() as terminal:
        log = Log(terminal, ServerConfig(store="postgresql://db/penstock"))
        with written_by(log.handler, "penstock.engine.upkeep"):
            upkeeps = [Upkeep(name, clock, step, idle_ms=5_000) for name in ("sweeper", "mover")]
            tasks = [asyncio.create_task(upkeep.run()) for upkeep in upkeeps]
            await clock.advance(seconds=10)
            log.at("03:12:41", "penstock.server.sqs", "request", operation="SendMessage", status=503)
            away[0] = False
            await clock.advance(seconds=10)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert [line[9:] for line in terminal.screen.splitlines()] == [
        "✕ store     PostgreSQL does not answer: connection refused",
        "            Writes are refused with 503; numbers may be old.",
        "✓ back      The store answers again after 1 s; 1 request refused",
    ]
