"""How children are reused and replaced, how they end, and that none is left behind."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from penstock.client.worker.processes.errors import ChildDied, ChildFailed, PoolClosed
from penstock.client.worker.processes.pool import Pool
from tests.unit.client.processes.conftest import MODULE, Desk, MakeDesk, Running, children, ended, exists

# uvloop holds up the signal by which a test is stopped otherwise.
pytestmark = pytest.mark.timeout(60, method="thread")
linux = pytest.mark.skipif(sys.platform != "linux", reason="Only Linux has file descriptors for processes.")


async def stopped(running: Running) -> None:
    """Cancel, and see that it ends soon."""
    running.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await running


# -- reuse ----------------------------------------------------------------------------------------


async def test_an_idle_child_is_used_again_with_what_it_has_imported(desk: Desk) -> None:
    assert [await desk.run("count") for _ in range(3)] == [b"1", b"2", b"3"]


async def test_a_child_is_replaced_after_a_number_of_assignments(make_desk: MakeDesk) -> None:
    desk = make_desk(recycle_after=2)
    pids = [await desk.idle_pid() for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    assert not any(exists(pid) for pid in pids[:4])


async def test_a_child_that_is_replaced_keeps_its_place_until_it_has_exited(
    make_desk: MakeDesk, tmp_path: Path
) -> None:
    desk = make_desk(recycle_after=1)
    before = children()
    os.mkfifo(tmp_path / "fifo")
    replaced = int(await desk.run("exit_when_read", str(tmp_path / "fifo").encode()))
    running = desk.run("reverse", b"ab")
    await desk.turns()
    assert children() - before == {replaced}
    await asyncio.to_thread((tmp_path / "fifo").read_text)
    assert await running == b"ba"


async def test_a_pool_runs_as_many_as_its_size_and_the_others_wait(make_desk: MakeDesk) -> None:
    desk = make_desk(size=2)
    desk.may_answer.clear()
    running = [desk.run("finish_after_answer") for _ in range(5)]
    first = {await desk.asked_pid(), await desk.asked_pid()}
    assert len(first) == 2
    await desk.turns()
    assert desk.asked.empty()
    desk.may_answer.set()
    answers = await asyncio.gather(*running)
    assert {int(answer.removeprefix(b"answer to ")) for answer in answers} == first


async def test_one_that_waits_can_be_cancelled(desk: Desk) -> None:
    desk.may_answer.clear()
    running = desk.run("finish_after_answer")
    await desk.asked.get()
    waiting, last = desk.run("count"), desk.run("count")
    await desk.turns()
    await stopped(waiting)
    desk.may_answer.set()
    await running
    assert await last == b"1"


async def test_a_pool_serves_a_loop_of_another_thread() -> None:
    async def serve() -> bytes:
        pool = Pool(entry=f"{MODULE}:entry", size=1)
        try:
            return await Desk(pool).run("reverse", b"ab")
        finally:
            await pool.close()

    assert await asyncio.to_thread(asyncio.run, serve()) == b"ba"


@pytest.mark.parametrize("size", [0, -1])
def test_a_pool_without_children_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="size of at least 1"):
        Pool(entry="a:b", size=size)


def test_a_child_that_serves_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="after one assignment"):
        Pool(entry="a:b", size=1, recycle_after=0)


# -- cancellation ---------------------------------------------------------------------------------


async def test_a_function_that_hangs_in_c_is_killed_when_it_is_cancelled(desk: Desk) -> None:
    running = desk.run("hang_in_c")
    pid = await desk.asked_pid()
    await stopped(running)
    assert not exists(pid)
    assert await desk.run("reverse", b"ab") == b"ba"


async def test_a_function_that_hangs_in_c_is_killed_after_its_grace(desk: Desk) -> None:
    running = desk.run("hang_in_c", kill_after_s=0.01)
    pid = await desk.asked_pid()
    await stopped(running)
    assert not exists(pid)


@linux
async def test_a_program_that_the_function_has_started_is_killed_with_it(desk: Desk) -> None:
    running = desk.run("hang_in_a_program")
    program = os.pidfd_open(await desk.asked_pid())
    await stopped(running)
    await ended(program)


async def test_a_child_that_finishes_within_its_grace_is_used_again(desk: Desk) -> None:
    running = desk.run("finish_when_cancelled", kill_after_s=60)
    pid = await desk.asked_pid()
    await stopped(running)
    assert await desk.asked.get() == b"cancelled"
    assert await desk.idle_pid() == pid


async def test_a_cancellation_does_not_reach_the_next_assignment(desk: Desk) -> None:
    await desk.idle_pid()
    await stopped_in_its_grace(desk)
    desk.may_answer.clear()
    running = desk.run("finish_when_cancelled", kill_after_s=60)
    await desk.asked_pid()
    desk.may_answer.set()
    await desk.turns()
    assert desk.asked.empty()
    await stopped(running)


async def stopped_in_its_grace(desk: Desk) -> None:
    running = desk.run("finish_when_cancelled", kill_after_s=60)
    await desk.asked.get()
    await stopped(running)
    await desk.asked.get()


async def test_a_second_cancellation_kills_at_once(desk: Desk) -> None:
    running = desk.run("hang_in_c", kill_after_s=60)
    pid = await desk.asked_pid()
    running.cancel()
    await desk.turns()
    assert exists(pid)
    await stopped(running)
    assert not exists(pid)


async def test_what_handles_a_question_is_cancelled_with_the_child(desk: Desk) -> None:
    desk.may_answer.clear()
    running = desk.run("finish_after_answer")
    await desk.asked.get()
    await stopped(running)
    assert desk.cancelled == 1


async def test_a_child_that_is_cancelled_while_it_starts_is_killed(make_desk: MakeDesk) -> None:
    desk = make_desk(entry="tests.unit.client.processes.hanging_entry:entry")
    before = children()
    running = desk.run("reverse")
    await desk.turns()
    assert len(children() - before) == 1
    await stopped(running)
    assert children() == before


# -- deaths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1])
async def test_a_child_that_a_signal_kills_is_replaced(desk: Desk, number: signal.Signals) -> None:
    pid = await desk.idle_pid()
    with pytest.raises(ChildDied, match=f"was killed by {number.name}") as caught:
        await desk.run("kill", str(int(number)).encode())
    assert (caught.value.signal, caught.value.exit_code) == (number, None)
    assert not exists(pid)
    assert await desk.run("reverse", b"ab") == b"ba"


@pytest.mark.parametrize("code", [0, 3])
async def test_a_child_that_exits_is_replaced(desk: Desk, code: int) -> None:
    with pytest.raises(ChildDied, match=f"exited with code {code}") as caught:
        await desk.run("end", str(code).encode())
    assert (caught.value.signal, caught.value.exit_code) == (None, code)
    assert await desk.run("reverse", b"ab") == b"ba"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_child_survives_what_is_sent_to_all_processes(desk: Desk, number: signal.Signals) -> None:
    assert await desk.run("kill", str(int(number)).encode()) == b"alive"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_child_survives_them_also_while_it_starts(desk: Desk, number: signal.Signals) -> None:
    before = children()
    running = desk.run("reverse", b"ab")
    await desk.turns()
    (pid,) = children() - before
    os.kill(pid, number)
    assert await running == b"ba"


async def test_a_function_can_terminate_a_program_that_it_has_started(desk: Desk) -> None:
    assert await desk.run("terminate_a_program") == str(int(signal.SIGTERM)).encode()


@linux
async def test_a_child_that_dies_while_it_is_idle_is_replaced(desk: Desk) -> None:
    pid = await desk.idle_pid()
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    await ended(pidfd)
    await desk.turns()
    assert await desk.idle_pid() != pid
    assert not exists(pid)


@linux
async def test_a_death_is_noticed_though_a_forked_process_lives_on(desk: Desk) -> None:
    running = desk.run("die_before_a_fork")
    left_behind = await desk.asked_pid()
    try:
        with pytest.raises(ChildDied, match="exited with code 3"):
            await running
        assert exists(left_behind)
    finally:
        os.kill(left_behind, signal.SIGKILL)


async def test_what_handles_a_question_is_cancelled_when_its_child_dies(desk: Desk) -> None:
    desk.may_answer.clear()
    running = desk.run("finish_after_answer")
    os.kill(await desk.asked_pid(), signal.SIGKILL)
    with pytest.raises(ChildDied):
        await running
    assert desk.cancelled == 1


async def test_a_child_that_writes_nonsense_to_its_parent_is_killed(desk: Desk) -> None:
    with pytest.raises(ChildDied, match="SIGKILL"):
        await desk.run("write_nonsense")


async def test_a_child_that_has_closed_its_socket_is_replaced(desk: Desk) -> None:
    with pytest.raises(ChildDied, match="exited with code 1"):
        await desk.run("close_everything")
    assert await desk.run("reverse", b"ab") == b"ba"


# -- starts ---------------------------------------------------------------------------------------


async def test_a_child_that_is_not_ready_in_time_is_killed(make_desk: MakeDesk) -> None:
    desk = make_desk(entry="tests.unit.client.processes.hanging_entry:entry", start_s=0.05)
    with pytest.raises(ChildFailed, match=re.escape("The process was not ready after 0.05 seconds.")):
        await desk.run("reverse")


async def test_a_child_that_dies_as_it_starts_is_reported(make_desk: MakeDesk) -> None:
    desk = make_desk(entry="tests.unit.client.processes.dying_entry:entry")
    with pytest.raises(ChildDied, match="exited with code 7"):
        await desk.run("reverse")


async def test_an_interpreter_that_cannot_be_started_is_a_failure(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(ChildFailed, match="FileNotFoundError: No process could be started"):
            await desk.run("reverse")
    assert await desk.run("reverse", b"ab") == b"ba"


# -- the end --------------------------------------------------------------------------------------


async def test_closing_leaves_no_process(make_desk: MakeDesk) -> None:
    desk = make_desk(size=3)
    hanging, asking = desk.run("hang_in_c"), desk.run("finish_when_cancelled")
    pids = [await desk.asked_pid(), await desk.asked_pid(), await desk.idle_pid()]
    async with asyncio.timeout(5):
        await desk.pool.close()
    assert not any(exists(pid) for pid in pids)
    for running in (hanging, asking):
        with pytest.raises(PoolClosed):
            await running


async def test_closing_ends_what_waits_for_a_child(desk: Desk) -> None:
    running = desk.run("hang_in_c")
    await desk.asked.get()
    waiting = desk.run("reverse")
    await desk.turns()
    await desk.pool.close()
    for task in (running, waiting):
        with pytest.raises(PoolClosed):
            await task


async def test_closing_ends_a_child_that_starts(make_desk: MakeDesk) -> None:
    desk = make_desk(entry="tests.unit.client.processes.hanging_entry:entry")
    before = children()
    running = desk.run("reverse")
    await desk.turns()
    assert len(children() - before) == 1
    await desk.pool.close()
    assert children() == before
    with pytest.raises(PoolClosed):
        await running


async def test_a_closed_pool_runs_nothing_and_closes_again(desk: Desk) -> None:
    await desk.idle_pid()
    await desk.pool.close()
    await desk.pool.close()
    with pytest.raises(PoolClosed):
        await desk.run("reverse")


async def test_an_idle_child_exits_as_python_programs_do(desk: Desk, tmp_path: Path) -> None:
    await desk.run("write_at_exit", str(tmp_path / "file").encode())
    await desk.pool.close()
    assert (tmp_path / "file").read_text() == "exited"


@pytest.mark.slow
async def test_closing_ends_an_idle_child_that_does_not_exit(desk: Desk) -> None:
    pid = int(await desk.run("leave_a_thread"))
    async with asyncio.timeout(10):
        await desk.pool.close()
    assert not exists(pid)


@linux
async def test_children_end_with_a_parent_that_is_killed() -> None:
    command = [sys.executable, "-m", "tests.unit.client.processes.parent"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=env)
    assert parent.stdout is not None
    pidfds = [os.pidfd_open(int(pid)) for pid in (await parent.stdout.readline()).split()]
    assert len(pidfds) == 3
    parent.kill()
    await parent.wait()
    for pidfd in pidfds:
        await ended(pidfd)


@pytest.mark.parametrize("ending", ["kill", "cancel", "close"])
async def test_a_kernel_without_file_descriptors_for_processes_will_do(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    desk = make_desk(size=2)
    pid = await desk.idle_pid()
    running = desk.run("hang_in_c")
    await desk.asked.get()
    if ending == "kill":
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ChildDied, match="SIGKILL"):
            async with asyncio.timeout(4):
                await running
    elif ending == "cancel":
        await stopped(running)
    await desk.pool.close()
    assert not exists(pid)
    if ending == "close":
        with pytest.raises(PoolClosed):
            await running
