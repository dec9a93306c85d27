"""`app.lifespan`: how an app and its worker begin, are noticed when they fail, and end with a web server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from penstock import Penstock, errors
from penstock.client import lifespan as lifespans
from penstock.client.worker import host
from penstock.client.worker.lane import Lane
from tests.end_to_end.running import RunningServer

PATIENCE_S = 30.0


@pytest.fixture
def app(opened: Penstock, name: str) -> Penstock:
    """An app of each kind of URL, with a task in a queue of the test's own."""

    @opened.task(name=f"{name}.double", queue=name)
    async def double(number: int) -> int:
        return 2 * number

    return opened


def double(app: Penstock, name: str) -> Any:
    return app.find_task(f"{name}.double")


@contextlib.asynccontextmanager
async def client_of(application: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that has begun, as a web server begins it."""
    transport = httpx.ASGITransport(application)
    async with (
        application.router.lifespan_context(application),
        httpx.AsyncClient(transport=transport, base_url="http://web", timeout=PATIENCE_S) as client,
    ):
        yield client


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.01)


async def test_the_worker_runs_jobs_while_the_application_lives(app: Penstock, name: str) -> None:
    jobs = app.lifespan(worker=True, grace=5)
    assert jobs.health()["healthy"] is False
    async with jobs(None):
        assert jobs.health()["healthy"] is True
        job = await double(app, name).enqueue(21)
        assert await job.result(timeout=PATIENCE_S) == 42
        assert jobs.health()["error"] is None
    assert not jobs.healthy


def test_an_application_can_be_started_again_as_tests_do(app: Penstock, name: str) -> None:
    api = FastAPI(lifespan=app.lifespan(worker=True, grace=5))

    @api.get("/double/{number}")
    async def ask(number: int) -> int:
        result: int = await (await double(app, name).enqueue(number)).result(timeout=PATIENCE_S)
        return result

    async def live(number: int) -> None:
        async with client_of(api) as client:
            assert (await client.get(f"/double/{number}")).json() == 2 * number

    for number in (1, 2):
        asyncio.run(live(number))  # Each on an event loop of its own.
    app.close()


async def test_your_own_lifespan_begins_before_the_worker_and_ends_after_it() -> None:
    app = Penstock("memory:")
    seen: list[str] = []
    began = asyncio.Event()

    @app.task(name="use")
    async def use() -> None:
        began.set()
        await asyncio.sleep(0.05)
        seen.append("job")

    @contextlib.asynccontextmanager
    async def inner(application: object) -> AsyncIterator[dict[str, int]]:
        seen.append(f"open {application}")
        yield {"pool": 1}
        seen.append("close")

    async with app.lifespan(worker=True, inner=inner)("web") as state:
        assert state == {"pool": 1}
        await use.enqueue()
        await began.wait()
    assert seen == ["open web", "job", "close"]


async def test_it_can_be_used_inside_a_lifespan_of_your_own(name: str) -> None:
    app = Penstock("memory:")

    @app.task(name="one")
    async def one() -> int:
        return 1

    async with app.lifespan(worker=True) as jobs:
        assert jobs.healthy
        assert await (await one.enqueue()).result(timeout=PATIENCE_S) == 1
        with pytest.raises(errors.WorkerInvalid, match="has begun already"):
            async with jobs:
                pass
        assert jobs.healthy


async def test_without_a_worker_it_only_closes_the_app() -> None:
    app = Penstock("memory:")
    async with app.lifespan() as jobs:
        await app.queues.put("mail")
        assert jobs.health() == {"healthy": True}
    assert not jobs.healthy


async def test_inside_a_test_no_worker_runs() -> None:
    app = Penstock("http://127.0.0.1:1")

    @app.task(name="one")
    async def one() -> int:
        return 1

    async with app.testing() as t, app.lifespan(worker=True) as jobs:
        assert jobs.healthy
        job = await one.enqueue()
        t.assert_enqueued(one)
        assert jobs.health()["slots"] == 0, "no worker has begun"
        assert (await t.run_all()).done == 1
        assert await job.result(timeout=0) == 1


async def test_a_worker_that_fails_is_logged_and_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = Penstock("memory:")

    @app.task(name="one")
    async def one() -> int:
        return 1

    monkeypatch.setattr(lifespans, "PAUSE_S", 0.2)
    failing = True
    check = Lane.check

    def fail_once(lane: Lane) -> None:
        if failing:
            raise OSError("no more files")
        check(lane)

    async with app.lifespan(worker=True) as jobs:
        first = jobs.worker
        monkeypatch.setattr(Lane, "check", fail_once)
        await until(lambda: not jobs.healthy)
        assert "no more files" in str(jobs.health()["error"])
        failing = False
        await until(lambda: jobs.healthy)
        assert jobs.worker is not first
        assert await (await one.enqueue()).result(timeout=PATIENCE_S) == 1
    [logged] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "in this web server failed" in logged.getMessage()
    assert logged.exc_info is not None


async def test_a_stuck_thread_replaces_the_worker_and_not_the_web_server(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Penstock("memory:")
    free = threading.Event()

    @app.task(name="hang", timeout=0.1)
    def hang() -> None:
        free.wait(PATIENCE_S)

    monkeypatch.setattr(lifespans, "PAUSE_S", 0.01)
    monkeypatch.setattr(host, "STUCK_S", 0.1)
    async with app.lifespan(worker=True, grace=1) as jobs:
        first = jobs.worker
        await hang.enqueue()
        await until(lambda: jobs.worker is not first and jobs.healthy)
        assert jobs.health()["error"] == "a thread is stuck"
        free.set()


async def test_a_server_that_is_away_does_not_keep_the_application_from_starting() -> None:
    app = Penstock("http://127.0.0.1:1")

    @app.task(name="one")
    async def one() -> int:
        return 1

    async with app.lifespan(worker=True, startup_timeout=0.1) as jobs:
        assert not jobs.healthy
        assert jobs.health()["disconnected_s"] is not None


@pytest.mark.slow
async def test_a_token_that_is_refused_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[[tokens]]\nname = "w"\ntoken_sha256 = "' + "0" * 64 + '"\nscopes = ["work"]\n'
    )
    with RunningServer(tmp_path, "--port", "0", "--store", "memory:", "--config", "penstock.toml") as server:
        app = Penstock(server.url, token="wrong")

        @app.task(name="one")
        async def one() -> int:
            return 1

        with pytest.raises(errors.NotAuthenticated):
            async with app.lifespan(worker=True, startup_timeout=PATIENCE_S):
                raise AssertionError("it must not start")


async def test_a_cancelled_end_gives_running_jobs_back_at_once(served_app: Penstock, name: str) -> None:
    app = served_app
    began = asyncio.Event()

    @app.task(name=f"{name}.sleep", queue=name)
    async def sleep() -> None:
        began.set()
        await asyncio.sleep(3_600)

    async def serve() -> None:
        async with app.lifespan(worker=True, grace=3_600):
            job.append(await sleep.enqueue())
            await began.wait()

    job: list[Any] = []
    serving = asyncio.create_task(serve())
    await until(began.is_set)
    await asyncio.sleep(0.05)  # It waits for the job now, or is about to.
    serving.cancel()
    await asyncio.wait((serving,), timeout=PATIENCE_S)
    assert serving.cancelled()
    view = await job[0].view()
    assert [attempt.outcome for attempt in view.history] == ["released"]
    await job[0].cancel()


@pytest.fixture
async def served_app(sqlite_server: RunningServer) -> AsyncIterator[Penstock]:
    async with Penstock(sqlite_server.url) as app:
        yield app


async def test_a_mounted_application_does_not_begin_the_lifespan() -> None:
    """Starlette runs the lifespan of the outermost application only: the documentation says to put it there."""
    app = Penstock("memory:")
    jobs = app.lifespan()
    outer = Starlette(routes=[Mount("/sub", FastAPI(lifespan=jobs))])
    async with client_of(outer):
        assert not jobs.healthy


def not_a_lifespan(_: object) -> None:
    pass


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queues": {"mail": 2}}, "lifespan\\(worker=True"),
        ({"inner": "mine"}, "asynccontextmanager"),
        ({"worker": True, "queues": {"mail": 0}}, "slots of queue 'mail'"),
        ({"worker": True, "queues": ["mail"]}, "queues says how many"),
        ({"worker": True, "grace": "long"}, "grace"),
        ({"startup_timeout": "soon"}, "startup_timeout"),
    ],
)
def test_wrong_options_are_refused_where_they_are_written(options: dict[str, Any], said: str) -> None:
    with pytest.raises((errors.WorkerInvalid, ValueError, TypeError), match=said):
        Penstock("memory:").lifespan(**options)


async def test_an_inner_lifespan_that_is_none_is_refused() -> None:
    with pytest.raises(errors.WorkerInvalid, match="which is none"):
        async with Penstock("memory:").lifespan(inner=not_a_lifespan)(None):  # type: ignore[arg-type] # It is wrong.
            pass
