"""What a worker writes to a terminal: the blocks that the design draws, and its limits."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.client.worker.notices import (
    Cancelled,
    ConnectionBack,
    ConnectionLost,
    Died,
    Done,
    LeaseOver,
    Ready,
    Released,
    Running,
    Snoozed,
    Stalled,
    Status,
    Stopped,
    Stopping,
    Stuck,
    Trouble,
    Warned,
)
from tests.unit.cli.staging import GONE, STATUS, Stage, of_job, records_of, retrying
from tests.unit.cli.terminals import UTF8, Terminal

ROOT = Path(__file__).parents[3]


async def test_the_banner_and_retries_look_as_drawn() -> None:
    with Terminal() as terminal:
        stage = Stage(terminal)
        stage.worker.banner()
        await stage.at("03:14:07", Ready(slots=12, tasks=5))
        await stage.at("03:16:41", retrying("019a8f51-a1c0-7e02-b1aa-90f3d2118c17"))
        await stage.at("03:16:44", retrying("019a8f51-b730-7e02-b1aa-90f3d21111f2", in_s=0.9))
        for number in range(38):
            await stage.at("03:16:50", retrying(f"019a8f51-b7{number:02}-7e02-b1aa-90f3d21111f2"))
        await stage.clock.advance(ms=54_000)
        stage.worker.watch(lambda: STATUS)
    assert (
        terminal.screen
        == """\
Penstock worker 0.9.0 to http://queue:9324  prod-eu, server 0.9.0

  name    shop-7f2c
  queues  docs  10 at a time  extract, assemble, render
          mail   2 at a time  confirm, remind
  lease   30 s  a heartbeat every 10 s
  stop    Ctrl+C or SIGTERM  running jobs get 25 s

03:14:07 ✓ ready     12 slots, 5 tasks
03:16:41 ↻ retrying  mail confirm 019a8f51-a1c0…8c17  attempt 1 of 5, in 1.2 s
                     SMTPServerBusy: 421 too many connections from your host
                     at shop/mail.py:33 in deliver
03:16:44 ↻ retrying  mail confirm 019a8f51-b730…11f2  attempt 1 of 5, in 0.9 s
                     the same
03:17:44 ↻ retrying  mail confirm  38 jobs in a minute  the same as 03:16:41

▣ 11 of 12 running  ✓ 1,204 done  ↻ 40 retrying  † 0 dead  last job 0.2 s ago
"""
    )


async def test_a_dead_job_shows_its_traceback_with_frames_of_libraries_dim() -> None:
    died = Died(
        queue="mail",
        task="confirm",
        job="019a8f52-0e94-7e02-b1aa-90f3d211d0aa",
        attempt=1,
        attempts_max=5,
        permanent=True,
        trouble=GONE,
    )
    with Terminal() as terminal:
        await Stage(terminal).at("03:18:58", died)
    assert (
        terminal.screen
        == """\
03:18:58 † dead      mail confirm 019a8f52-0e94…d0aa  attempt 1 of 5, permanent
  Traceback (most recent call last):
    File "penstock/client/worker.py", line 214, in _run
      result = await task.call(payload)
    File "shop/tasks.py", line 88, in confirm
      await deliver(invoice, to=customer.email)
    File "shop/mail.py", line 41, in deliver
      await smtp.sendmail(SENDER, [to], message.as_bytes())
    File "aiosmtplib/smtp.py", line 612, in sendmail
      raise SMTPRecipientRefused(code, text, recipient)
  RecipientRefused: 550 5.1.1 <ap@acme.example>: mailbox unavailable
"""
    )
    assert "\x1b[31m†\x1b[0m dead" in terminal.raw
    assert '\x1b[2m  File "penstock/client/worker.py", line 214, in _run\x1b[0m' in terminal.raw
    assert '\n    File "shop/tasks.py", line 88, in confirm\n' in terminal.raw
    assert "\x1b[1;31mRecipientRefused:\x1b[0m 550" in terminal.raw


async def test_a_lost_connection_and_lost_leases_look_as_drawn() -> None:
    address = "http://queue:9324"
    over: dict[str, Any] = {
        "queue": "docs",
        "task": "extract",
        "job": "019a8f5c-3a0e-7e02-b1aa-90f3d21151bb",
        "attempt": 1,
    }
    with Terminal() as terminal:
        stage = Stage(terminal)
        lost: dict[str, Any] = {"address": address, "running": 11}
        await stage.at("03:21:10", ConnectionLost(**lost, reason="silent for 25 s", lease_left_s=23))
        await stage.at("03:21:19", ConnectionBack(after_s=9.3, running=11, kept=11))
        await stage.at("03:26:02", ConnectionLost(**lost, reason="connection refused", lease_left_s=18))
        await stage.at("03:26:20", LeaseOver(**over, took_s=31, reason="lease over"))
        await stage.at("03:26:41", ConnectionBack(after_s=39, running=11, kept=7))
    assert (
        terminal.screen
        == """\
03:21:10 ✕ lost      connection to http://queue:9324: silent for 25 s
                     11 jobs keep running; the first lease ends at 03:21:33.
03:21:19 ✓ back      after 9 s; all 11 jobs kept their lease
03:26:02 ✕ lost      connection to http://queue:9324: connection refused
                     11 jobs keep running; the first lease ends at 03:26:20.
03:26:20 ✕ lost      docs extract 019a8f5c-3a0e…51bb  lease over, stopped
                     Nothing is reported; the server will offer it again.
03:26:41 ✓ back      after 39 s; 7 of 11 jobs kept their lease
"""
    )


async def test_stopping_looks_as_drawn() -> None:
    extract: dict[str, Any] = {
        "queue": "docs",
        "task": "extract",
        "job": "019a8f60-11d4-7e02-b1aa-90f3d21177e0",
        "attempt": 1,
    }
    confirm: dict[str, Any] = {
        "queue": "mail",
        "task": "confirm",
        "job": "019a8f60-7ac1-7e02-b1aa-90f3d2110b3e",
        "attempt": 1,
    }
    oldest = Running(queue="docs", task="extract", job=extract["job"], for_s=31)
    status = Status(slots=12, running=1, done=1_391, retrying=40, dead=1, last_job_s=9, stopping_s=14, oldest=oldest)
    with Terminal() as terminal, Terminal() as before:
        for where in (before, terminal):
            stage = Stage(where)
            await stage.at("03:40:01", Done(**confirm, took_s=0.1))
            stage.worker.watch(lambda: status)
            await stage.at("03:40:02", Stopping(reason="SIGINT", running=2, returned=3, grace_s=25))
            await stage.at("03:40:03", Done(**confirm, took_s=1.8))
            stage.worker.redraw()
            if where is terminal:
                await stage.at("03:40:27", Released(**extract, took_s=42, progress="3 of 5"))
                await stage.at("03:40:27", Stopped(done=1_391, retrying=40, dead=1, released=1, ran_s=1_580))
    stopping = """\
^C
03:40:02 ‖ stopping  2 jobs running, 3 offers returned. Ctrl+C again to quit now
03:40:03 ✓ done      mail confirm 019a8f60-7ac1…0b3e  after 1.8 s
"""
    assert (
        before.screen
        == stopping
        + """
‖ 14 s left  ━━━━━━━━━━━──────────────  ▣ 1 running  docs extract, 31 s
"""
    )
    assert (
        terminal.screen
        == stopping
        + """\
03:40:27 ↻ released  docs extract 019a8f60-11d4…77e0  after 42 s, step 3 of 5
                     Another worker can take it now, as attempt 2.
03:40:27 ✓ stopped   1,391 done, 40 retrying, 1 dead, 1 released in 26 min
"""
    )
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l"), "the cursor is back"


async def test_the_live_line_says_for_how_long_there_is_no_connection() -> None:
    seconds = iter((9.2, 10.2))
    with Terminal() as terminal:
        stage = Stage(terminal)
        stage.worker.watch(
            lambda: Status(
                slots=1,
                running=1,
                done=0,
                retrying=0,
                dead=0,
                last_job_s=None,
                disconnected_s=next(seconds),
                next_try_s=2,
            )
        )
    assert terminal.screen == "\n✕ no connection for 9 s, next try in 2 s\n"


async def test_the_live_line_is_rewritten_in_place_four_times_a_second() -> None:
    done = iter(range(100))
    with Terminal() as terminal:
        stage = Stage(terminal)
        stage.worker.watch(lambda: Status(slots=1, running=0, done=next(done), retrying=0, dead=0, last_job_s=None))
        await stage.clock.advance(seconds=1)
    assert terminal.raw.count("running") == 5, "one at the start, then four"
    assert terminal.screen == "\n▣ 0 of 1 running  ✓ 4 done  ↻ 0 retrying  † 0 dead  no job yet\n"


async def test_a_narrow_terminal_cuts_the_live_line_and_wraps_nothing_else() -> None:
    with Terminal(columns=40) as terminal:
        stage = Stage(terminal)
        stage.worker.watch(lambda: STATUS)
        stage.worker.notice(Ready(slots=12, tasks=5))
    assert (
        terminal.screen
        == """\
03:14:07 ✓ ready     12 slots, 5 tasks

▣ 11 of 12 running  ✓ 1,204 done  ↻ 40
"""
    )


@pytest.mark.parametrize("settings", [{"environment": {**UTF8, "TERM": "dumb"}}, {"show_status": False}])
async def test_there_may_be_no_live_line(settings: dict[str, Any]) -> None:
    with Terminal() as terminal:
        stage = Stage(terminal, **settings)
        stage.worker.watch(lambda: STATUS)
        stage.worker.close()
    assert terminal.raw == ""


async def test_without_utf8_and_colours_every_state_keeps_its_sign_and_word() -> None:
    with Terminal() as terminal:
        stage = Stage(terminal, {"TERM": "xterm", "LC_ALL": "C", "NO_COLOR": "1"})
        await stage.at("03:16:41", retrying("019a8f51-a1c0-7e02-b1aa-90f3d2118c17"))
        stage.worker.watch(lambda: STATUS)
    assert (
        terminal.screen
        == """\
03:16:41 ~ retrying  mail confirm 019a8f51-a1c0..8c17  attempt 1 of 5, in 1.2 s
                     SMTPServerBusy: 421 too many connections from your host
                     at shop/mail.py:33 in deliver

# 11 of 12 running  + 1,204 done  ~ 40 retrying  X 0 dead  last job 0.2 s ago
"""
    )
    assert "m" not in {code[-1] for code in terminal.raw.split("\x1b[")[1:] if code[0].isdigit()}
    assert terminal.raw.isascii()


async def test_text_of_others_cannot_reach_the_terminal_raw() -> None:
    hostile = Trouble(
        kind="Evil\x1b[2J", message="one\ntwo\r\x1b]0;title\x07 \u202edrow \ud800", at="\x9b31m.py:1 in f"
    )
    with Terminal() as terminal:
        await Stage(terminal, {**UTF8, "NO_COLOR": "1"}).at(
            "03:16:41", retrying("x\x1b[1A", trouble=hostile, task="a\tb", in_s=60)
        )
    assert (
        terminal.raw
        == """\
03:16:41 ↻ retrying  mail a\\tb x\\x1b[1A  attempt 1 of 5, in 1 min
                     Evil\\x1b[2J: one\\ntwo\\r\\x1b]0;title\\x07 \\u202edrow \\ud800
                     at \\x9b31m.py:1 in f
"""
    )


async def test_long_text_wraps_at_words_under_its_text_with_widths_in_cells() -> None:
    trouble = Trouble(kind="Busy", message="データベースに接続できません " * 3 + "e\u0301" * 70)
    with Terminal() as terminal:
        await Stage(terminal).at("03:16:41", retrying("019a8f51-a1c0-7e02-b1aa-90f3d2118c17", trouble=trouble))
    assert terminal.screen.splitlines()[1:] == [
        " " * 21 + "Busy: データベースに接続できません",
        " " * 21 + "データベースに接続できません データベースに接続できません",
        " " * 21 + "e\u0301" * 59,
        " " * 21 + "e\u0301" * 11,
    ]


async def test_a_worker_need_not_know_how_many_attempts_there_may_be() -> None:
    with Terminal() as terminal:
        await Stage(terminal).at("03:16:41", retrying("j", attempts_max=0))
    assert terminal.screen.startswith("03:16:41 ↻ retrying  mail confirm j  attempt 1, in 1.2 s\n")


async def test_the_same_cause_is_written_out_again_after_a_quiet_minute() -> None:
    with Terminal() as terminal:
        stage = Stage(terminal)
        await stage.at("03:16:41", retrying("a"))
        await stage.at("03:16:42", retrying("b", trouble=Trouble(kind="Other", message="")))
        await stage.at("03:18:41", retrying("c"))
    assert "the same" not in terminal.screen
    assert terminal.screen.count("421 too many") == 2


async def test_jobs_that_are_lost_together_are_counted_at_the_latest_when_the_worker_stops() -> None:
    with Terminal() as terminal:
        stage = Stage(terminal)
        for number in range(7):
            over = of_job("docs", "extract", f"j{number}")
            await stage.at("03:26:20", LeaseOver(**over, took_s=31, reason="lease over"))
        await stage.at("03:26:30", Stopped(done=9, retrying=0, dead=0, released=0, ran_s=60))
    assert (
        terminal.screen
        == """\
03:26:20 ✕ lost      docs extract j0  lease over, stopped
                     Nothing is reported; the server will offer it again.
03:26:20 ✕ lost      docs extract j1  lease over, stopped
                     the same
03:26:30 ✕ lost      docs extract  5 jobs in a minute  the same as 03:26:20
03:26:30 ✓ stopped   9 done, 0 retrying, 0 dead in 1 min
"""
    )


async def test_only_verbose_workers_mention_jobs_that_succeed_or_are_put_off() -> None:
    job = of_job("mail", "confirm")
    with Terminal() as quiet, Terminal() as verbose:
        for terminal in (quiet, verbose):
            stage = Stage(terminal, verbose=terminal is verbose)
            await stage.at("03:16:41", Done(**job, took_s=0.0312))
            await stage.at("03:16:42", Snoozed(**job, in_s=7_560))
    assert quiet.raw == ""
    assert (
        verbose.screen
        == """\
03:16:41 ✓ done      mail confirm j  after 31 ms
03:16:42 ◔ snoozed   mail confirm j  again in 2 h 06 min
"""
    )


async def test_rarer_notices_have_the_same_form() -> None:
    job = of_job("mail", "confirm")
    with Terminal() as terminal:
        stage = Stage(terminal)
        await stage.at("03:16:41", Cancelled(**job, took_s=3, reason="by ada"))
        await stage.at("03:16:42", Stalled(for_s=3.2, stack='  File "shop/slow.py", line 3, in f\n    sleep(9)\n'))
        await stage.at("03:16:43", Stuck(**job, took_s=62))
        await stage.at("03:16:44", Warned(message="The queue docs is paused."))
        await stage.at("03:16:45", ConnectionLost(address="http://q", reason="refused", running=0, lease_left_s=None))
        await stage.at("03:16:46", ConnectionBack(after_s=0.4, running=0, kept=0))
        await stage.at("03:16:46", LeaseOver(**job, took_s=31, reason="no heartbeat was answered in time"))
        await stage.at("03:16:47", Stopping(reason="SIGTERM", running=0, returned=0, grace_s=25))
        await stage.at("03:16:48", Stopped(done=0, retrying=0, dead=0, released=0, ran_s=97))
    assert (
        terminal.screen
        == """\
03:16:41 ⊘ cancelled mail confirm j  after 3 s
                     by ada
03:16:42 ◔ stalled   A task blocks the event loop, for 3.2 s so far.
                     Its job keeps its lease; other jobs of this worker wait.
    File "shop/slow.py", line 3, in f
      sleep(9)
03:16:43 ✕ stuck     mail confirm j  after 1 min 02 s
                     Its attempt is over, but its thread goes on. This worker
                     must be replaced.
03:16:44 ◔ warning   The queue docs is paused.
03:16:45 ✕ lost      connection to http://q: refused
                     No job is running.
03:16:46 ✓ back      after 0.4 s
03:16:46 ✕ lost      mail confirm j  lease over, stopped
                     no heartbeat was answered in time
                     Nothing is reported; the server will offer it again.
03:16:47 ‖ stopping  SIGTERM: no job running
03:16:48 ✓ stopped   0 done, 0 retrying, 0 dead in 1 min 37 s
"""
    )


async def test_records_of_other_loggers_are_written_above_the_live_line() -> None:
    with Terminal() as terminal:
        stage = Stage(terminal)
        stage.worker.watch(lambda: STATUS)

        def log(logger: logging.Logger) -> None:
            try:
                dict[str, str]()["iban"]
            except KeyError:
                logger.exception("no %s\x1b[2J", "luck")
            logger.warning("one\ntwo")

        records_of(stage.worker, log)
    lines = terminal.screen.splitlines()
    assert lines[0][9:] == "✕ error     shop.mail  no luck\\x1b[2J"
    assert lines[1] == "  Traceback (most recent call last):"
    assert lines[-5] == "  KeyError: 'iban'"
    assert lines[-4][9:] == "◔ warning   shop.mail  one"
    assert lines[-3].strip() == "two"
    assert lines[-1].startswith("▣ 11 of 12 running")


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "raise SystemExit(130)", "pass"])
def test_the_cursor_comes_back_however_the_process_ends(end: str) -> None:
    program = f"""
import asyncio, os, sys
from tests.unit.cli.staging import SHOP, STATUS
from penstock.cli.terminal.worker import WorkerTerminal

async def main():
    WorkerTerminal(SHOP, sys.stdout, environment={UTF8!r}).watch(lambda: STATUS)
    sys.stderr = open(os.devnull, "w")
    {end}

asyncio.run(main())
"""
    with Terminal() as terminal:
        subprocess.run([sys.executable, "-c", program], stdout=terminal.stream, check=False, cwd=ROOT)
    assert " 11 of 12 running" in terminal.raw
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")
    assert terminal.screen == "\n", "no live line is left behind"
