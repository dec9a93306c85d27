"""What an assignment gives back, and what it can ask for while it runs."""

from __future__ import annotations

import asyncio
import contextvars
import os
from pathlib import Path

import pytest

from penstock.client.worker.processes.errors import ChildFailed, FrameTooLarge
from penstock.client.worker.processes.frames import Assignment
from tests.unit.client.processes.conftest import MODULE, Desk, MakeDesk

# uvloop holds up the signal by which a test is stopped otherwise.
pytestmark = pytest.mark.timeout(60, method="thread")


async def test_an_assignment_returns_what_its_entry_point_returns(desk: Desk) -> None:
    assert await desk.run("reverse", b"abc") == b"cba"


async def test_a_target_may_be_an_object_that_holds_the_function(desk: Desk) -> None:
    assert await desk.run("Wrapped", b"abc") == b"cba"


async def test_a_target_may_be_nested_in_a_class(desk: Desk) -> None:
    assert await desk.run("Wrapped.function", b"abc") == b"cba"


async def test_a_function_runs_on_the_main_thread_of_another_process(desk: Desk) -> None:
    assert await desk.run("threads") == b"True"
    assert await desk.idle_pid() != os.getpid()


async def test_a_child_reads_nothing_from_the_terminal(desk: Desk) -> None:
    assert await desk.run("stdin") == b""


@pytest.mark.parametrize("python_path", [None, "/somewhere/else"])
async def test_a_child_has_the_environment_of_its_parent(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, python_path: str | None
) -> None:
    if python_path is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", python_path)
    assert await desk.run("python_path") == (python_path or "none").encode()


async def test_five_megabytes_pass_both_ways(desk: Desk) -> None:
    payload = os.urandom(5_000_000)
    assert await desk.run("reverse", payload) == payload[::-1]


# -- failures -------------------------------------------------------------------------------------


async def test_an_exception_comes_back_as_text(desk: Desk) -> None:
    with pytest.raises(ChildFailed, match="LookupError: lost") as caught:
        await desk.run("fail", b"lost")
    assert (caught.value.kind, caught.value.message) == ("LookupError", "lost")
    assert caught.value.traceback.startswith("Traceback (most recent call last):\n")
    assert "in fail\n    raise LookupError" in caught.value.traceback
    assert caught.value.traceback.endswith("LookupError: lost\n")
    assert "child.py" not in caught.value.traceback


async def test_an_exception_may_say_what_is_no_unicode(desk: Desk) -> None:
    with pytest.raises(ChildFailed) as caught:
        await desk.run("fail", b"caf\xe9")
    assert caught.value.message == "caf\\udce9"


async def test_an_exception_that_cannot_be_printed_is_a_failure_too(desk: Desk) -> None:
    with pytest.raises(ChildFailed) as caught:
        await desk.run("fail_mutely")
    assert (caught.value.kind, caught.value.message) == ("Mute", "<exception str() failed>")


async def test_a_long_message_is_cut_off(desk: Desk) -> None:
    with pytest.raises(ChildFailed) as caught:
        await desk.run("fail", b"x" * 1_000_000)
    assert len(caught.value.message) == 64 * 1024


async def test_sys_exit_is_a_failure_and_the_child_goes_on(desk: Desk) -> None:
    pid = await desk.idle_pid()
    with pytest.raises(ChildFailed, match="SystemExit: enough"):
        await desk.run("leave")
    assert await desk.idle_pid() == pid


async def test_an_entry_point_that_returns_no_bytes_fails(desk: Desk) -> None:
    with pytest.raises(ChildFailed, match="TypeError: The entry point returned str, not bytes"):
        await desk.run("text")


async def test_an_assignment_that_fits_no_frame_is_refused_at_once(desk: Desk) -> None:
    with pytest.raises(FrameTooLarge, match="Run takes 16,777,"):
        await desk.run("reverse", bytes(16 * 1024 * 1024))


async def test_a_result_that_fits_no_frame_is_a_failure(desk: Desk) -> None:
    with pytest.raises(ChildFailed, match="FrameTooLarge: Result takes"):
        await desk.run("big", b"16777216")
    assert len(await desk.run("big", b"16777000")) == 16_777_000


# -- imports --------------------------------------------------------------------------------------


async def test_modules_are_found_in_the_parents_working_directory(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_in_cwd.py").write_text("def sell(call, channel):\n    return b'sold'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    assert await desk.run("sell", module="shop_in_cwd") == b"sold"


async def test_a_module_that_does_not_exist_is_a_failure(desk: Desk) -> None:
    with pytest.raises(ChildFailed, match="No module named 'no_such_shop'") as caught:
        await desk.run("sell", module="no_such_shop")
    assert caught.value.kind == "ModuleNotFoundError"


@pytest.mark.parametrize("qualname", ["no_such_function", "Wrapped.no_such_function", "make.<locals>.inner"])
async def test_a_function_that_does_not_exist_is_a_failure(desk: Desk, qualname: str) -> None:
    with pytest.raises(ChildFailed, match=f"'{MODULE}' has no '{qualname}'") as caught:
        await desk.run(qualname)
    assert caught.value.kind == "ImportError"
    assert await desk.run("reverse", b"ab") == b"ba"


@pytest.mark.parametrize("entry", ["no_such_package:entry", f"{MODULE}:no_such_entry"])
async def test_an_entry_point_that_does_not_exist_is_a_failure(make_desk: MakeDesk, entry: str) -> None:
    desk = make_desk(entry=entry)
    for _ in range(2):
        with pytest.raises(ChildFailed, match="no_such_"):
            await desk.run("reverse")


# -- questions ------------------------------------------------------------------------------------


async def test_the_parent_answers_what_a_child_asks(desk: Desk) -> None:
    assert await desk.run("ask_thrice", b"n") == b"answer to n0 answer to n1 answer to n2"
    assert [desk.asked.get_nowait() for _ in range(3)] == [b"n0", b"n1", b"n2"]


async def test_threads_of_a_child_ask_in_turn(desk: Desk) -> None:
    assert await desk.run("ask_in_threads") == b" ".join(b"answer to %d" % number for number in range(8))


async def test_an_exception_of_the_parent_is_raised_where_the_child_asks(desk: Desk) -> None:
    async def refuse(request: bytes) -> bytes:
        raise ValueError("not now")

    assignment = Assignment(module=MODULE, qualname="refused", call=b"?")
    assert await desk.pool.run(assignment, handle=refuse) == b"ValueError not now"


async def test_an_answer_that_fits_no_frame_is_raised_where_the_child_asks(desk: Desk) -> None:
    async def exceed(request: bytes) -> bytes:
        return bytes(16 * 1024 * 1024)

    assignment = Assignment(module=MODULE, qualname="refused", call=b"?")
    assert (await desk.pool.run(assignment, handle=exceed)).startswith(b"FrameTooLarge Answer takes")


async def test_a_request_that_fits_no_frame_is_raised_where_the_child_asks(desk: Desk) -> None:
    with pytest.raises(ChildFailed, match="FrameTooLarge: Ask takes"):
        await desk.run("ask_too_much")


async def test_answers_are_given_in_the_context_of_the_caller(desk: Desk) -> None:
    job: contextvars.ContextVar[bytes] = contextvars.ContextVar("job", default=b"none")
    await desk.idle_pid()

    async def name_job(request: bytes) -> bytes:
        return job.get()

    async def run_as(name: bytes) -> bytes:
        job.set(name)
        return await desk.pool.run(Assignment(module=MODULE, qualname="refused", call=b""), handle=name_job)

    first, second = await asyncio.gather(run_as(b"first"), run_as(b"second"))
    assert (first, second) == (b"first", b"second")


async def test_a_question_ends_with_its_assignment(desk: Desk) -> None:
    desk.may_answer.clear()
    running = desk.run("ask_and_leave", kill_after_s=60)
    assert await desk.asked.get() == b"late"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert desk.cancelled == 1
    assert await desk.run("how_the_late_ended") == b"ChannelClosed"


async def test_a_child_loads_no_more_of_penstock_than_it_needs(desk: Desk) -> None:
    loaded = (await desk.run("modules")).decode().split()
    assert "penstock.client.worker.processes.channel" in loaded
    assert not {"asyncio", "penstock.engine", "penstock.server", "boto3"} & set(loaded)
