"""`penstock worker` and a server, each a process of its own."""

from __future__ import annotations

import http.server
import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import Penstock, Retry
from tests.end_to_end.running import RunningServer
from tests.tasks.worker_processes import (
    PATIENCE_S,
    WorkerProcess,
    free_port,
    gone,
    wait_until_gone,
    write_module,
    write_shop,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

Enqueue = Callable[..., str]


@pytest.fixture(params=["sqlite_server", "postgres_node"])
def server(request: pytest.FixtureRequest) -> RunningServer:
    found: RunningServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def client(server: RunningServer) -> Iterator[Penstock]:
    with Penstock(server.url) as client:
        yield client


@pytest.fixture
def shop(server: RunningServer, tmp_path: Path, name: str) -> Path:
    """A folder with the module `shop`, whose tasks are in a queue of the test's own."""
    write_shop(tmp_path, server.url, name)
    return tmp_path


@pytest.fixture
def enqueue(client: Penstock, name: str) -> Enqueue:
    def enqueue(task: str, **payload: object) -> str:
        return client.sync.jobs.enqueue(name, task, payload).id

    return enqueue


def result_of(client: Penstock, job: str) -> Any:
    """Wait for the end of a job, and return its result."""
    found = client.sync.jobs.result(job, wait=PATIENCE_S)
    assert found.state == "succeeded", found
    assert isinstance(found.result, msgspec.Raw)
    return json.loads(bytes(found.result))


# -- running and stopping -------------------------------------------------------------------------


def test_a_worker_runs_the_tasks_of_a_module_in_the_current_folder(
    shop: Path, enqueue: Enqueue, client: Penstock
) -> None:
    with WorkerProcess(shop, "shop:app") as worker:
        assert result_of(client, enqueue("shop.add", a=1, b=2)) == 3
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0
    assert "Traceback" not in worker.text


def test_tasks_of_modules_that_are_imported_by_flag_run(
    shop: Path, enqueue: Enqueue, client: Penstock, name: str
) -> None:
    more = f"from shop import app\n@app.task(queue={name!r})\nasync def twice(n: int) -> int:\n    return 2 * n\n"
    write_module(shop, "depot/tasks", more)
    with WorkerProcess(shop, "shop", "-q", f"{name}:2", "--import", "depot.tasks", "-v") as worker:
        assert result_of(client, enqueue("depot.tasks.twice", n=4)) == 8
        worker.wait_for("done .*depot.tasks.twice")


def test_sigterm_lets_a_running_job_finish(shop: Path, enqueue: Enqueue, client: Penstock) -> None:
    with WorkerProcess(shop, "shop:app") as worker:
        job = enqueue("shop.until_file", path="go")
        worker.wait_for("^begun")
        worker.send(signal.SIGTERM)
        worker.wait_for("stopping")
        (shop / "go").touch()
        assert worker.exit_code() == 0
    assert result_of(client, job) == "seen"


def test_a_job_that_outlasts_the_grace_is_given_back_at_no_cost(shop: Path, enqueue: Enqueue, client: Penstock) -> None:
    with WorkerProcess(shop, "shop:app", "--grace", "500ms") as worker:
        job = enqueue("shop.until_file", path="never")
        worker.wait_for("^begun")
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0
    found = client.sync.jobs.get(job)
    assert (found.state, found.failures, found.losses) == ("queued", 0, 0)


def test_the_second_ctrl_c_gives_running_jobs_back_at_once(shop: Path, enqueue: Enqueue, client: Penstock) -> None:
    with WorkerProcess(shop, "shop:app", "--grace", "10m") as worker:
        job = enqueue("shop.until_file", path="never")
        worker.wait_for("^begun")
        worker.press_ctrl_c()
        worker.wait_for("stopping")
        worker.press_ctrl_c()
        assert worker.exit_code() == 130
    assert client.sync.jobs.get(job).state == "queued"


def test_a_thread_that_hangs_does_not_keep_a_worker_from_ending(
    server: RunningServer, tmp_path: Path, name: str, enqueue: Enqueue
) -> None:
    hanging = f"""
        @app.task(queue={name!r})
        async def leave_thread() -> None:
            threading.Thread(target=time.sleep, args=(3600,)).start()
            asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
            say("left")
    """
    write_shop(tmp_path, server.url, name, hanging)
    with WorkerProcess(tmp_path, "shop:app") as worker:
        enqueue("shop.leave_thread")
        worker.wait_for("^left")
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0


@pytest.mark.parametrize(("impatient", "code"), [(False, 1), (True, 130)])
def test_a_task_that_blocks_the_event_loop_does_not_keep_a_worker_from_ending(
    server: RunningServer, tmp_path: Path, name: str, enqueue: Enqueue, impatient: bool, code: int
) -> None:
    blocking = f"""
        from penstock.cli.worker import process
        process.BLOCKED_S = 1.0  # Nothing but the task keeps it.

        @app.task(queue={name!r})
        async def block() -> None:
            say("blocking")
            time.sleep(3600)
    """
    write_shop(tmp_path, server.url, name, blocking)
    with WorkerProcess(tmp_path, "shop:app", "--grace", "10m" if impatient else "100ms") as worker:
        enqueue("shop.block")
        worker.wait_for("^blocking")
        if impatient:
            worker.send_until_it_ends(signal.SIGINT)
        else:
            worker.send(signal.SIGINT)
        assert worker.exit_code() == code
    assert "blocks the event loop" in worker.lines[-1]


# -- recycling ------------------------------------------------------------------------------------


def test_recycling_after_some_jobs_loses_and_doubles_none(shop: Path, enqueue: Enqueue, client: Penstock) -> None:
    with WorkerProcess(shop, "shop:app", "--max-jobs", "10") as worker:
        jobs = [enqueue("shop.life", number=number) for number in range(25)]
        lives = {result_of(client, job) for job in jobs}
        # It replaces itself: the process keeps its id.
        worker.wait_for("stopping.*jobs done")
        worker.wait_for(r"\bready\b", 2)
        jobs += [enqueue("shop.life", number=number) for number in range(25, 50)]
        lives |= {result_of(client, job) for job in jobs}
        assert result_of(client, enqueue("shop.pid")) == worker.process.pid
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0
    assert len(lives) > 1
    assert sorted(int(line) for line in (shop / "ledger").read_text().split()) == list(range(50))


def test_a_stuck_thread_is_got_rid_of_by_a_new_process(
    server: RunningServer, tmp_path: Path, enqueue: Enqueue, client: Penstock, name: str
) -> None:
    write_shop(tmp_path, server.url, name, "from penstock.client.worker import host\nhost.STUCK_S = 1.0")
    with WorkerProcess(tmp_path, "shop:app", "--grace", "1s") as worker:
        before = result_of(client, enqueue("shop.life", number=1))
        retry = Retry(1_000, backoff=0).settings
        stuck = client.sync.jobs.enqueue(name, "shop.hang", {}, timeout_ms=500, retry=retry)
        worker.wait_for("^hanging")  # Not in the first attempt, if that took longer to start.
        client.sync.jobs.cancel(stuck.id)
        worker.wait_for("stopping.*a thread is stuck")
        worker.wait_for(r"\bready\b", 2)
        assert result_of(client, enqueue("shop.life", number=2)) != before
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0


def test_a_worker_that_uses_too_much_memory_is_replaced(server: RunningServer, tmp_path: Path, name: str) -> None:
    look = "from penstock.client.worker import worker\nworker.MEMORY_LOOK_S = 0.5"
    write_shop(tmp_path, server.url, name, look)
    with WorkerProcess(tmp_path, "shop:app", "--max-rss", "1M") as worker:
        worker.wait_for("stopping.*MiB of memory used")
        worker.wait_for(r"\bready\b", 2)


def test_a_signal_while_a_worker_is_being_replaced_ends_it(shop: Path, enqueue: Enqueue, client: Penstock) -> None:
    with WorkerProcess(shop, "shop:app", "--max-jobs", "1") as worker:
        job = enqueue("shop.until_file", path="go")
        worker.wait_for("^begun")
        enqueue("shop.add", a=1, b=2)
        worker.wait_for("stopping.*1 job done")
        worker.send(signal.SIGTERM)
        (shop / "go").touch()
        assert worker.exit_code() == 0
    assert result_of(client, job) == "seen"
    assert worker.text.count("ready") == 1


# -- several processes ----------------------------------------------------------------------------


def test_a_process_that_dies_is_started_again(shop: Path, enqueue: Enqueue, client: Penstock) -> None:
    with WorkerProcess(shop, "shop:app", "--processes", "2", "--name", "shop-1234") as worker:
        worker.wait_for(r"\bready\b", 2)
        first, second = worker.children()
        assert result_of(client, enqueue("shop.pid")) in {first, second}
        os.kill(first, signal.SIGKILL)
        worker.wait_for("shop-1234-. ended by SIGKILL")
        worker.wait_for(r"\bready\b", 3)
        assert second in worker.children()
        assert len(worker.children()) == 2
        worker.press_ctrl_c()
        assert worker.exit_code() == 0


def test_stopping_a_supervisor_lets_jobs_of_all_processes_finish(
    shop: Path, enqueue: Enqueue, client: Penstock, name: str
) -> None:
    with WorkerProcess(shop, "shop:app", "--processes", "2", "-q", f"{name}:1") as worker:
        worker.wait_for(r"\bready\b", 2)
        jobs = [enqueue("shop.until_file", path="go") for _ in range(2)]
        worker.wait_for("^begun", 2)
        children = worker.children()
        worker.press_ctrl_c()
        worker.wait_for("stopping", 2)
        (shop / "go").touch()
        assert worker.exit_code() == 0
        assert all(gone(pid) for pid in children)
    assert [result_of(client, job) for job in jobs] == ["seen", "seen"]


def test_the_second_signal_ends_all_processes_at_once(shop: Path, enqueue: Enqueue, client: Penstock) -> None:
    with WorkerProcess(shop, "shop:app", "--processes", "2", "--grace", "10m") as worker:
        worker.wait_for(r"\bready\b", 2)
        job = enqueue("shop.until_file", path="never")
        worker.wait_for("^begun")
        worker.send(signal.SIGTERM)
        worker.wait_for("stopping", 2)
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 130
    assert client.sync.jobs.get(job).state == "queued"


def test_processes_end_when_their_supervisor_is_killed(shop: Path, enqueue: Enqueue, client: Penstock) -> None:
    with WorkerProcess(shop, "shop:app", "--processes", "2", "--grace", "500ms") as worker:
        worker.wait_for(r"\bready\b", 2)
        job = enqueue("shop.until_file", path="never")
        worker.wait_for("^begun")
        children = worker.children()
        worker.send(signal.SIGKILL)
        for pid in children:
            wait_until_gone(pid)
    # They stopped as they should, so nobody has to wait for the end of a lease.
    assert client.sync.jobs.get(job).state == "queued"


def test_a_process_of_several_that_replaced_itself_still_has_its_supervisor(
    shop: Path, enqueue: Enqueue, client: Penstock
) -> None:
    with WorkerProcess(shop, "shop:app", "--processes", "2", "--max-jobs", "2") as worker:
        worker.wait_for(r"\bready\b", 2)
        children = worker.children()
        jobs = [enqueue("shop.life", number=number) for number in range(8)]
        assert all(result_of(client, job) for job in jobs)
        worker.wait_for(r"\bready\b", 3)
        assert worker.children() == children
        assert "ended by" not in worker.text
        worker.send(signal.SIGKILL)
        for pid in children:
            wait_until_gone(pid)


def test_a_process_that_dies_again_and_again_ends_the_worker(tmp_path: Path) -> None:
    write_module(tmp_path, "shop", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    with WorkerProcess(tmp_path, "shop:app", "--processes", "2") as worker:
        assert worker.exit_code() == 1
    assert "ended 5 times" in worker.lines[-1]


def test_a_supervisor_says_once_why_its_app_cannot_be_imported(tmp_path: Path) -> None:
    write_module(tmp_path, "shop", "import no_such_module\n")
    with WorkerProcess(tmp_path, "shop:app", "--processes", "3") as worker:
        assert worker.exit_code() == 1
    assert worker.text.count("error: Cannot import shop.") == 1


# -- reload ---------------------------------------------------------------------------------------


def test_a_changed_file_starts_the_worker_again(
    server: RunningServer, tmp_path: Path, name: str, enqueue: Enqueue, client: Penstock
) -> None:
    version = "\n@app.task(queue={name!r})\nasync def version() -> int:\n    return {number}\n"
    write_shop(tmp_path, server.url, name, version.format(name=name, number=1))
    with WorkerProcess(tmp_path, "shop:app", "--reload") as worker:
        assert result_of(client, enqueue("shop.version")) == 1
        write_shop(tmp_path, server.url, name, version.format(name=name, number=22))
        worker.wait_for("shop.py changed")
        worker.wait_for(r"\bready\b", 2)
        assert result_of(client, enqueue("shop.version")) == 22

        write_shop(tmp_path, server.url, name, "\ndef broken(:\n")
        worker.wait_for("error: Cannot import shop.")
        worker.wait_for("def broken")
        worker.wait_for("starts again when a file changes")
        write_shop(tmp_path, server.url, name, version.format(name=name, number=333))
        assert result_of(client, enqueue("shop.version")) == 333
        worker.press_ctrl_c()
        assert worker.exit_code() == 0


# -- health, and servers that are away ------------------------------------------------------------


def health(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_health_is_200_while_a_worker_takes_jobs_and_503_while_it_stops(shop: Path, enqueue: Enqueue) -> None:
    port = free_port()
    with WorkerProcess(shop, "shop:app", "--health", f"127.0.0.1:{port}", "--name", "shop-7f2c") as worker:
        worker.wait_for(r"\bready\b")
        status, body = health(port)
        assert (status, body["healthy"], body["worker"]) == (200, True, "shop-7f2c")
        enqueue("shop.until_file", path="go")
        worker.wait_for("^begun")
        worker.send(signal.SIGTERM)
        worker.wait_for("stopping")
        status, body = health(port)
        assert (status, body["healthy"], body["running"]) == (503, False, 1)
        (shop / "go").touch()
        assert worker.exit_code() == 0


def test_a_worker_waits_for_a_server_that_is_not_there_yet(tmp_path: Path, name: str) -> None:
    port, health_port = free_port(), free_port()
    write_shop(tmp_path, f"http://127.0.0.1:{port}", name)
    with WorkerProcess(tmp_path, "shop:app", "--health", f"127.0.0.1:{health_port}") as worker:
        worker.wait_for(r"\blost\b.*refused")
        assert health(health_port)[0] == 503
        with RunningServer(tmp_path, "--port", str(port), "--store", "memory:"):
            worker.wait_for(r"\bback\b")
            worker.wait_for(r"\bready\b")
            assert health(health_port)[0] == 200
        worker.wait_for(r"\blost\b", 2)
        assert health(health_port)[0] == 503
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0


def test_a_worker_that_waits_for_its_server_can_be_stopped(tmp_path: Path, name: str) -> None:
    write_shop(tmp_path, f"http://127.0.0.1:{free_port()}", name)
    with WorkerProcess(tmp_path, "shop:app") as worker:
        worker.wait_for(r"\blost\b")
        worker.send(signal.SIGINT)
        assert worker.exit_code() == 0


TOKENS = """
[[tokens]]
name = "reader"
token = "the-token-of-a-reader"
scopes = ["read"]

[[tokens]]
name = "worker"
token = "the-token-of-a-worker"
scopes = ["work"]
queues = ["mail"]
"""


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("unknown", "does not accept the token"),
        ("the-token-of-a-reader", "takes the scope 'work'"),
        ("the-token-of-a-worker", "not for the queue"),
    ],
)
def test_a_token_that_cannot_work_is_an_error_at_the_start(tmp_path: Path, name: str, token: str, said: str) -> None:
    (tmp_path / "penstock.toml").write_text(TOKENS)
    arguments = ("--config", "penstock.toml", "--port", "0", "--store", "memory:")
    with RunningServer(tmp_path, *arguments) as guarded:
        write_shop(tmp_path, guarded.url, name)
        module = tmp_path / "shop.py"
        module.write_text(module.read_text().replace(f"{guarded.url!r})", f"{guarded.url!r}, token={token!r})"))
        with WorkerProcess(tmp_path, "shop:app") as worker:
            assert worker.exit_code() == 5
    assert worker.lines[0].startswith("denied: ")
    assert said in worker.text


class OlderServer(http.server.BaseHTTPRequestHandler):
    """Has none of the places that this worker needs."""

    def do_GET(self) -> None:
        body = b'{"type": "urn:penstock:problem:not-found", "title": "There is nothing here.", "status": 404}'
        self.send_response(404)
        self.send_header("content-type", "application/problem+json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_server_that_is_older_than_the_worker_is_an_error_at_the_start(tmp_path: Path, name: str) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), OlderServer) as older:
        threading.Thread(target=older.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{older.server_port}"
        write_shop(tmp_path, url, name)
        with WorkerProcess(tmp_path, "shop:app") as worker:
            assert worker.exit_code() == 1
        older.shutdown()
    assert worker.lines[0].startswith(f"error: The server at {url} is older than this worker")


def test_what_does_not_speak_the_api_is_an_error_at_the_start(tmp_path: Path, name: str) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        write_shop(tmp_path, f"http://127.0.0.1:{other.server_port}", name)
        with WorkerProcess(tmp_path, "shop:app") as worker:
            assert worker.exit_code() == 6
        other.shutdown()
    assert worker.lines[-2].startswith("error: Cannot reach ")


def test_a_queue_that_cannot_be_one_is_an_error_at_the_start(shop: Path) -> None:
    with WorkerProcess(shop, "shop:app", "-q", "no such queue:3") as worker:
        assert worker.exit_code() == 1
    assert worker.lines[0].startswith("error: ")
