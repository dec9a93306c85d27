"""examples/fastapi_shop.py in a real uvicorn: requests, the worker beside them, and a clean stop."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock import Penstock
from tests.end_to_end.running import RunningServer
from tests.integrations.web_processes import PATIENCE_S, WebServer
from tests.support.campaigns import GATHERING_EVIDENCE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


STORES = ["sqlite", "postgres"]
one_store = pytest.mark.parametrize("server", STORES if GATHERING_EVIDENCE else STORES[:1], indirect=True)
"""For what has nothing to do with the store."""


@pytest.fixture(params=STORES)
def server(request: pytest.FixtureRequest) -> RunningServer:
    found: RunningServer = request.getfixturevalue("sqlite_server" if request.param == "sqlite" else "postgres_node")
    return found


@pytest.fixture
def client(server: RunningServer) -> Iterator[Penstock]:
    with Penstock(server.url) as client:
        yield client


def shop(folder: Path, url: str, *, page_s: float = 0.05) -> WebServer:
    return WebServer(folder, "fastapi_shop:api", PENSTOCK_URL=url, SHOP_PAGE_S=str(page_s))


def wait_for_state(client: Penstock, job: str, state: str) -> None:
    """Wait for something that nothing signals."""
    deadline = time.monotonic() + PATIENCE_S
    while client.sync.jobs.get(job).state != state:
        assert time.monotonic() < deadline, client.sync.jobs.get(job)
        time.sleep(0.02)


def test_a_request_enqueues_and_the_events_show_progress(tmp_path: Path, server: RunningServer) -> None:
    with shop(tmp_path, server.url) as web, httpx.Client(base_url=web.url, timeout=PATIENCE_S) as http:
        assert http.get("/healthz").json()["healthy"]
        answer = http.post("/orders/17/invoice", params={"pages": 4})
        assert answer.status_code == 202
        job = answer.json()["job"]
        with http.stream("GET", f"/jobs/{job}/events") as events:
            lines = list(events.iter_lines())
        said = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith('data: {"done"')]
        assert [one["done"] for one in said] == [1, 2, 3, 4]
        assert http.get(f"/jobs/{job}").json() == {"state": "succeeded", "result": {"order": 17, "pages": 4}}
        assert http.get("/jobs/00000000-0000-4000-8000-000000000000").status_code == 404
        web.stop()


def test_a_running_job_is_finished_before_the_server_ends(
    tmp_path: Path, server: RunningServer, client: Penstock
) -> None:
    with shop(tmp_path, server.url, page_s=0.3) as web:
        job = httpx.post(f"{web.url}/orders/18/invoice", params={"pages": 5}).json()["job"]
        wait_for_state(client, job, "running")
        web.stop()
    view = client.sync.jobs.get(job)
    assert (view.state, view.attempts) == ("succeeded", 1)


def test_a_job_that_outlasts_the_grace_is_given_back(tmp_path: Path, server: RunningServer, client: Penstock) -> None:
    (tmp_path / "quick_shop.py").write_text(
        "from fastapi import FastAPI\n"
        "from fastapi_shop import api as inner_api, app\n"
        "jobs = app.lifespan(worker=True, queues={'invoices': 4}, grace=0.5)\n"
        "api = FastAPI(lifespan=jobs)\n"
        "api.include_router(inner_api.router)\n"
    )
    with WebServer(tmp_path, "quick_shop:api", PENSTOCK_URL=server.url, SHOP_PAGE_S="60") as web:
        job = httpx.post(f"{web.url}/orders/19/invoice").json()["job"]
        wait_for_state(client, job, "running")
        web.stop()
    view = client.sync.jobs.get(job)
    assert view.state in {"queued", "scheduled"}
    assert [attempt.outcome for attempt in view.history] == ["released"]
    assert (view.failures, view.losses) == (0, 0)
    client.sync.jobs.cancel(job)


@one_store
def test_ctrl_c_stops_it_as_well(tmp_path: Path, server: RunningServer) -> None:
    with shop(tmp_path, server.url) as web:
        assert httpx.get(f"{web.url}/healthz").status_code == 200
        web.stop(signal.SIGINT)


@one_store
def test_two_web_processes_have_a_worker_each(tmp_path: Path, server: RunningServer, client: Penstock) -> None:
    with WebServer(tmp_path, "fastapi_shop:api", "--workers", "2", PENSTOCK_URL=server.url, SHOP_PAGE_S="0.01") as web:
        assert web.url
        deadline = time.monotonic() + PATIENCE_S
        while True:
            names = {worker.name for worker in client.sync.workers.list().workers if "invoices" in worker.queues}
            if len(names) == 2:
                break
            assert time.monotonic() < deadline, names
            time.sleep(0.05)
        web.stop()


def test_a_worker_without_tasks_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text(
        "from fastapi import FastAPI\nfrom penstock import Penstock\n"
        "app = Penstock('memory:')\napi = FastAPI(lifespan=app.lifespan(worker=True))\n"
    )
    with WebServer(tmp_path, "empty:api") as web:
        assert web.exit_code() == 3
        assert "The app has no tasks." in web.text
