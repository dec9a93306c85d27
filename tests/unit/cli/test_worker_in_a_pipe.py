"""What a worker writes where nobody watches: one line for each notice."""

from __future__ import annotations

import json

import pytest

from penstock.client.worker.notices import (
    ConnectionLost,
    Done,
    Notice,
    Trouble,
)
from tests.unit.cli.staging import BUSY, STATUS, Stage, piped, records_of, retrying
from tests.unit.cli.terminals import Terminal


async def test_a_pipe_gets_one_logfmt_line_for_each_notice_and_nothing_else() -> None:
    worker, stream = piped(color="always")
    worker.banner()
    worker.watch(lambda: STATUS)
    for _ in range(3):
        worker.notice(retrying("019a8f51-a1c0-7e02-b1aa-90f3d2118c17"))
    worker.notice(Done(queue="mail", task="confirm", job="j", attempt=1, took_s=1))
    worker.close()
    line = (
        "2026-11-17T03:16:41.204Z retrying queue=mail task=confirm job=019a8f51-a1c0-7e02-b1aa-90f3d2118c17 "
        "worker=shop-7f2c attempt=1 of=5 in_s=1.2 kind=SMTPServerBusy "
        'message="421 too many connections from your host" at=shop/mail.py:33\n'
    )
    assert stream.getvalue() == line * 3


async def test_a_pipe_gets_json_if_that_is_wanted_also_from_other_loggers() -> None:
    worker, stream = piped(log_format="json")
    worker.notice(ConnectionLost(address="http://q", reason="refused", running=0, lease_left_s=None))
    records_of(worker, lambda logger: logger.warning("watch out"))
    lost, record = (json.loads(line) for line in stream.getvalue().splitlines())
    assert lost == {
        "event": "lost",
        "level": "error",
        "timestamp": "2026-11-17T03:16:41.204Z",
        "worker": "shop-7f2c",
        "address": "http://q",
        "reason": "refused",
        "running": 0,
    }
    assert (record["event"], record["level"], record["logger"]) == ("watch out", "warning", "shop.mail")


async def test_a_number_of_attempts_that_nobody_knows_is_left_out() -> None:
    worker, stream = piped()
    worker.notice(retrying("j", attempts_max=0))
    assert " attempt=1 in_s=1.2 " in stream.getvalue()


async def test_a_line_in_a_pipe_stays_one_line_whatever_a_message_says() -> None:
    worker, stream = piped()
    worker.notice(retrying("j", trouble=Trouble(kind="E", message='a\nb "c" \x1b[2J')))
    assert stream.getvalue().endswith('message="a\\nb \\"c\\" \\u001b[2J"\n')
    assert stream.getvalue().count("\n") == 1


def every_notice() -> list[type[Notice]]:
    def below(kind: type[Notice]) -> list[type[Notice]]:
        return [kind, *(lower for child in kind.__subclasses__() for lower in below(child))]

    return [kind for kind in below(Notice) if not kind.__subclasses__()]


@pytest.mark.parametrize("kind", every_notice())
async def test_every_notice_has_a_form_for_people_and_one_for_programs(kind: type[Notice]) -> None:
    fields = {"trouble": BUSY, "stack": "", "message": "m", "reason": "r", "address": "a", "progress": ""}
    text = dict.fromkeys(("queue", "task", "job"), "x")
    given = {name: fields.get(name, text.get(name, 1)) for name in kind.__struct_fields__}
    worker, stream = piped(verbose=True)
    with Terminal() as terminal:
        Stage(terminal, verbose=True).worker.notice(kind(**given))
    worker.notice(kind(**given))
    assert len(terminal.screen) > 21
    assert stream.getvalue().startswith("2026-11-17T03:16:41.204Z ")
