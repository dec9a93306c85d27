"""An engine in the process of its client: who may use it, who does its upkeep, and how it ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from penstock import Penstock, errors


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
        stored = await app.jobs.enqueue("mail", "greet")
        poll.cancel()
        await asyncio.wait((poll,))
        if poll.cancelled():
            [offer] = (await app.work.dequeue(["mail"], wait=10)).offers
            assert offer.id == stored.id


async def test_a_call_that_takes_too_long_exceeds_its_deadline() -> None:
    async with Penstock("memory:") as app:
        with pytest.raises(errors.DeadlineExceeded):
            await app.queues.get("mail", timeout=0)


def test_a_database_that_is_not_there_is_told() -> None:
    with Penstock("postgresql://127.0.0.1:1/none", timeout=0.1) as app, pytest.raises(errors.TransportError):
        app.sync.queues.list()


def test_a_client_on_a_database_does_no_upkeep(postgres_server: object, name: str) -> None:
    database = postgres_server.create_database()  # type: ignore[attr-defined]
    try:
        with Penstock(postgres_server.dsn(database), timeout=20) as app:  # type: ignore[attr-defined]
            app.sync.queues.put(name)
            purge = app.sync.queues.purge(name)
            # With a sweeper, an operation on an empty queue ends within moments of being begun.
            assert app.sync.jobs.list(queue=name).jobs == []
            assert app.sync.operations.get(purge.id).ended_at_ms is None
    finally:
        postgres_server.drop_database(database)  # type: ignore[attr-defined]


async def test_closing_ends_what_waits() -> None:
    app = Penstock("memory:", timeout=20)
    poll = asyncio.create_task(app.work.dequeue(["mail"], wait=20))
    await app.queues.put("mail")
    await app.aclose()
    await asyncio.wait((poll,), timeout=20)
    assert poll.done()
    if (error := poll.exception()) is not None:
        assert isinstance(error, errors.Closed)
    else:
        assert poll.result().offers == []
