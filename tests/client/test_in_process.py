"""An engine in the process of its client: who may use it, who does its upkeep, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import Penstock, errors
from penstock.engine.upkeep import Upkeep
from tests.end_to_end.running import RunningServer


def _in_a_child(work: object) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(work())  # type: ignore[operator]
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_memory_stays_with_its_process() -> None:
    with Penstock("memory:") as app:
        app.sync.queues.put("mail")

        def child() -> int:
            try:
                app.sync.queues.get("mail")
            except errors.WrongProcess:
                app.close()
                return 3
            return 0

        assert _in_a_child(child) == 3
        assert app.sync.queues.get("mail").name == "mail"


def test_a_child_opens_the_database_for_itself(postgres_url: str, name: str) -> None:
    with Penstock(postgres_url, timeout=20) as app:
        first = app.sync.jobs.enqueue(name, "greet")
        job_id = f"{first.id[:-6]}abcdef"
        assert _in_a_child(lambda: 3 if app.sync.jobs.enqueue(name, "greet", id=job_id).id == job_id else 1) == 3
        assert app.sync.jobs.get(job_id).state == "queued"
        assert app.sync.jobs.enqueue(name, "greet").state == "queued"


def test_async_and_sync_callers_share_one_engine() -> None:
    app = Penstock("memory:")

    async def on_a_loop() -> None:
        await app.queues.put("mail")

    asyncio.run(on_a_loop())
    assert app.sync.queues.get("mail").name == "mail"
    asyncio.run(app.queues.pause("mail"))
    assert app.sync.queues.get("mail").paused
    assert sum(thread.name == "penstock-engine" for thread in threading.enumerate()) == 1
    app.close()
    assert not any(thread.name == "penstock-engine" for thread in threading.enumerate())
    with pytest.raises(errors.Closed):
        app.sync.queues.get("mail")


def test_many_threads_open_one_engine() -> None:
    with Penstock("memory:") as app:
        threads = [threading.Thread(target=app.sync.queues.put, args=(f"q{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(app.sync.queues.list().queues) == 8


def test_a_program_that_forgets_to_close_ends() -> None:
    program = "from penstock import Penstock; print(Penstock('memory:').sync.queues.put('mail').name)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert (done.stdout, done.stderr) == ("mail\n", "")


async def test_offers_to_a_poll_that_was_cancelled_are_given_back() -> None:
    async with Penstock("memory:", timeout=20) as app:
        await app.queues.put("mail", offer_ms=3_600_000)
        poll = asyncio.create_task(app.work.dequeue(["mail"], wait=20))
        await app.queues.get("mail")

        def offer_one() -> str:
            job_id = app.sync.jobs.enqueue("mail", "greet").id
            while app.sync.jobs.get(job_id).state != "offered":
                pass
            return job_id

        # This loop stands still meanwhile, so the poll has not seen its answer when it is cancelled.
        with ThreadPoolExecutor(1) as threads:
            job_id = threads.submit(offer_one).result(20)
        poll.cancel()
        await asyncio.wait((poll,))
        assert poll.cancelled()
        [offer] = (await app.work.dequeue(["mail"], wait=10)).offers
        assert offer.id == job_id


async def test_a_call_that_takes_too_long_exceeds_its_deadline() -> None:
    async with Penstock("memory:") as app:
        with pytest.raises(errors.DeadlineExceeded):
            await app.queues.get("mail", timeout=0)


def test_a_database_that_is_not_there_is_told() -> None:
    with Penstock("postgresql://127.0.0.1:1/none", timeout=0.1) as app, pytest.raises(errors.TransportError):
        app.sync.queues.list()


@pytest.fixture
def upkeep(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the background work that engines in this process have begun."""
    begun: list[str] = []
    run = Upkeep.run

    async def noted(self: Upkeep) -> None:
        begun.append(self.name)
        await run(self)

    monkeypatch.setattr(Upkeep, "run", noted)
    return begun


def test_a_client_on_a_database_leaves_the_upkeep_to_servers(
    postgres_node: RunningServer, postgres_url: str, name: str, upkeep: list[str]
) -> None:
    with Penstock(postgres_url, timeout=20) as app:
        app.sync.queues.put(name)
        purge = app.sync.queues.purge(name)
        while app.sync.operations.get(purge.id).ended_at_ms is None:
            assert postgres_node.process.poll() is None
    assert upkeep == []


def test_a_client_in_memory_does_its_own_upkeep(name: str, upkeep: list[str]) -> None:
    with Penstock("memory:", timeout=20) as app:
        app.sync.queues.put(name)
        purge = app.sync.queues.purge(name)
        while app.sync.operations.get(purge.id).ended_at_ms is None:
            pass
    assert "operator" in upkeep


async def test_closing_ends_what_waits() -> None:
    app = Penstock("memory:", timeout=20)
    await app.queues.put("mail")
    poll = asyncio.create_task(app.work.dequeue(["mail"], wait=20, worker="w"))
    while not (await app.workers.list(queue="mail")).workers:
        assert not poll.done()
    await app.aclose()
    ended = await asyncio.wait_for(poll, 10)
    assert (ended.offers, ended.drain) == ([], True), "it was told to end, and did not wait to its end"


async def test_a_database_that_is_away_is_an_error_of_the_call_and_of_nothing_else() -> None:
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    async with Penstock("postgresql://127.0.0.1:1/none", connect_timeout=0.2) as app:
        with pytest.raises(errors.ConnectionFailed):
            await app.queues.list()
    del app  # asyncio says so when it forgets the error.
    gc.collect()
    assert unheard == []
