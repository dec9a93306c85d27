"""How a client ends, while calls wait or not, and what a forked child has of it."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Penstock, errors
from tests.client.faces import face_of
from tests.client.peers import ScriptedServer, answer
from tests.support.embedded import await_end

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

QUEUES = answer(b'{"queues":[],"after":null}')
LONG_S = 20.0
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture(params=["async", "sync"])
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- closing --------------------------------------------------------------------------------------


async def test_closing_ends_a_call_that_waits_and_repeats_it_no_more(face: str) -> None:
    with ScriptedServer(lambda _, __: b"") as server:
        app = Penstock(server.url, timeout=LONG_S)
        poll = asyncio.create_task(face_of(app, face).work.dequeue(["mail"], wait=LONG_S))
        await asyncio.to_thread(server.asked.acquire, timeout=LONG_S)
        await app.aclose()
        with pytest.raises(errors.Closed):
            await asyncio.wait_for(poll, LONG_S)
        assert len(server.requests) == 1


async def test_closing_ends_a_stream_that_waits_and_opens_it_no_more(face: str) -> None:
    with ScriptedServer(lambda _, __: STREAM) as server:
        app = Penstock(server.url, timeout=LONG_S)

        async def read() -> None:
            async with face_of(app, face).work.stream(["mail"]) as stream:
                await anext(aiter(stream))

        reading = asyncio.create_task(read())
        await asyncio.to_thread(server.asked.acquire, timeout=LONG_S)
        await app.aclose()
        with pytest.raises(errors.Closed):
            await asyncio.wait_for(reading, LONG_S)
        assert len(server.requests) == 1


def test_closing_from_another_thread_ends_a_call_that_waits() -> None:
    with ScriptedServer(lambda _, __: b"") as server, ThreadPoolExecutor(1) as threads:
        app = Penstock(server.url, timeout=LONG_S)
        poll = threads.submit(app.sync.work.dequeue, ["mail"], wait=LONG_S)
        assert server.asked.acquire(timeout=LONG_S)
        app.close()
        assert isinstance(poll.exception(LONG_S), errors.Closed)
        assert len(server.requests) == 1


# -- another process ------------------------------------------------------------------------------


@contextmanager
def waiting_child() -> Iterator[None]:
    """Fork a child that does nothing until the end of the block."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_a_child_that_makes_no_calls_holds_no_connection_of_its_parent() -> None:
    with (
        ScriptedServer(lambda _, __: QUEUES) as server,
        Penstock(server.url, timeout=LONG_S) as app,
        asyncio.Runner() as runner,
    ):
        app.sync.queues.list()
        runner.run(app.queues.list())
        with waiting_child():
            assert server.connections == 2
            app.sync.queues.list()
            runner.run(app.queues.list())
            assert server.connections == 2, "the parent goes on with its own"
            runner.run(app.aclose())
            assert server.ended.acquire(timeout=LONG_S)
            assert server.ended.acquire(timeout=LONG_S), "the server sees both connections end"


def test_a_child_holds_no_connection_that_another_thread_waits_on() -> None:
    with ScriptedServer(lambda _, __: b"") as server, ThreadPoolExecutor(1) as threads:
        app = Penstock(server.url, timeout=LONG_S)
        poll = threads.submit(app.sync.work.dequeue, ["mail"], wait=LONG_S)
        assert server.asked.acquire(timeout=LONG_S)
        with waiting_child():
            app.close()
            assert isinstance(poll.exception(LONG_S), errors.Closed)
            assert server.ended.acquire(timeout=LONG_S)


@pytest.mark.parametrize("url", ["http://a", "sqlite:jobs.db", "memory:"])
@pytest.mark.parametrize("hand_over", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_client_is_made_anew_instead_of_copied(url: str, hand_over: Callable[[object], object]) -> None:
    app = Penstock(url, token=None if url == "sqlite:jobs.db" else "secret")
    with pytest.raises(TypeError, match="Make one from its URL") as refused:
        hand_over(app)
    assert "secret" not in str(refused.value)


# -- the end of the program -----------------------------------------------------------------------

FORGETS_TO_CLOSE = """
import asyncio, sys
from penstock import Penstock
app = Penstock(sys.argv[1])
app.sync.queues.put("mail")
print(asyncio.run(app.queues.get("mail")).name)
"""
WAITS = """
import sys
from penstock import Penstock
app = Penstock(sys.argv[1])
app.sync.queues.put("mail")
print("waits", flush=True)
app.sync.work.dequeue(["mail"], wait=60)
"""


@pytest.mark.parametrize("owner", ["process", "thread"])
def test_a_program_that_forgets_to_close_a_file_ends(tmp_path: Path, owner: str) -> None:
    program = FORGETS_TO_CLOSE.replace("sys.argv[1]", f"sys.argv[1], owner={owner!r}")
    done = subprocess.run(
        [sys.executable, "-c", program, f"sqlite:{tmp_path}/jobs.db"],
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG_S,
    )
    assert (done.stdout, done.stderr) == ("mail\n", "")
    _end_owner(tmp_path / "jobs.db")


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_an_interrupt_ends_a_call_that_waits(tmp_path: Path, kind: str) -> None:
    url = "memory:" if kind == "memory" else f"sqlite:{tmp_path}/jobs.db"
    program = subprocess.Popen(
        [sys.executable, "-c", WAITS, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "waits\n"
    program.send_signal(2)
    _, told = program.communicate(timeout=LONG_S)
    assert told.endswith("KeyboardInterrupt\n")
    _end_owner(tmp_path / "jobs.db")


def _end_owner(path: Path) -> None:
    """Wait for an owner to end by itself, once nobody uses its file."""
    if not path.exists():
        return
    with Penstock.embedded(path, start=False) as app:
        try:
            app.sync.queues.list()
        except errors.OwnerNotFound:
            return
        pid = int(Path(f"{path}.lock").read_text().split('"pid":')[1].split(",")[0])
    os.kill(pid, 15)
    await_end(pid)
