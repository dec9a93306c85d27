"""How a server starts, from flags and from the environment, and how it says why it cannot."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from penstock import __version__
from tests.end_to_end.running import RunningServer, command, environment, fail_to_serve
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
TLS = ROOT / "tests" / "unit" / "server" / "tls"


def test_a_server_says_in_one_line_where_it_is(passing_server: RunningServer) -> None:
    assert re.fullmatch(r"penstock is ready at http://127\.0\.0\.1:[1-9][0-9]*\n", passing_server.ready_line)
    assert passing_server.get("/healthz") == {"status": "ok"}
    assert passing_server.stop() == (0, "")


def test_the_environment_stands_in_for_flags(tmp_path: Path) -> None:
    with RunningServer(
        tmp_path, PENSTOCK_PORT="0", PENSTOCK_STORE="memory:", PENSTOCK_LOG_FORMAT="json", PENSTOCK_HOST="localhost"
    ) as server:
        assert server.url.startswith("http://localhost:")
        assert server.stop() == (0, "")
        assert '"event": "stopping"' in server.errors.read_text()


def test_the_default_store_is_made_where_the_server_runs(tmp_path: Path) -> None:
    with RunningServer(tmp_path, "--port", "0") as server:
        assert server.stop() == (0, "")
    assert (tmp_path / "data" / "penstock.db").exists()


def test_tls_serves_an_sdk(tmp_path: Path) -> None:
    certificate, key = str(TLS / "certificate.pem"), str(TLS / "key.pem")
    arguments = ("--port", "0", "--store", "memory:", "--tls-certificate", certificate, "--tls-key", key)
    with RunningServer(tmp_path, *arguments) as server:
        queue_url = server.sqs(verify=certificate).create_queue(QueueName="orders")["QueueUrl"]
        assert queue_url.startswith("https://127.0.0.1:")
        assert server.stop() == (0, "")


def test_a_second_server_on_one_file_is_refused(tmp_path: Path) -> None:
    arguments = ("--port", "0", "--store", "sqlite:one.db")
    with RunningServer(tmp_path, *arguments) as first:
        assert "one.db" in fail_to_serve(tmp_path, *arguments)
        assert first.get("/readyz") == {"status": "ready"}
        assert first.stop() == (0, "")
    with RunningServer(tmp_path, *arguments) as next_one:
        assert next_one.stop() == (0, "")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = fail_to_serve(tmp_path, "--port", port, "--store", "memory:")
    assert said == f"error: Port {port} is already in use.\n  try  penstock serve --port {int(port) + 1}\n"


def test_a_penstock_that_has_the_port_is_named(tmp_path: Path, passing_server: RunningServer) -> None:
    port = passing_server.url.rpartition(":")[2]
    said = fail_to_serve(tmp_path, "--port", port, "--store", "memory:")
    assert f"\n  why  penstock {__version__} answers there\n" in said
    assert said.endswith(", or use the running server\n")
    assert passing_server.stop() == (0, "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--host", "0.0.0.0"], "--insecure"),
        (["--host", "no..host"], "no..host"),
        (["--port", "70000"], "70000"),
        (["--account", "12"], "12 digits"),
        (["--tls-key", "key.pem"], "both a certificate and its key"),
        (["--tls-certificate", "absent.pem", "--tls-key", "absent.pem"], "No such file"),
        (["--store", "mysql://localhost/x"], "sqlite:PATH"),
        (["--store", "sqlite:garbage.db"], "garbage.db"),
        (["--store", "sqlite:/proc/none/penstock.db"], "/proc/none"),
        (["--store", "postgresql://nobody@127.0.0.1:1/none"], "database is not available"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_server_that_cannot_start_says_why(tmp_path: Path, arguments: list[str], told: str) -> None:
    (tmp_path / "garbage.db").write_bytes(b"this is no database, however one looks at it" * 1_000)
    port = [] if "--port" in arguments else ["--port", "0"]
    assert told in fail_to_serve(tmp_path, *port, *arguments)


def test_a_database_that_does_not_exist_is_named(tmp_path: Path, postgres_server: PostgresServer) -> None:
    assert '"absent"' in fail_to_serve(tmp_path, "--port", "0", "--store", postgres_server.dsn("absent"))


def test_a_server_may_be_reachable_if_that_is_wanted(tmp_path: Path) -> None:
    with RunningServer(tmp_path, "--host", "0.0.0.0", "--port", "0", "--store", "memory:", "--insecure") as server:
        assert server.url.startswith("http://0.0.0.0:")
        assert server.stop() == (0, "")


@pytest.mark.parametrize(("arguments", "told"), [(["--version"], __version__), (["serve", "--help"], "--store")])
def test_the_command_line_explains_itself(arguments: list[str], told: str) -> None:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=True, env=environment())
    assert told in done.stdout
