"""The names under which a server without keys answers, and how it says that a name is not one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.cutting_proxy import body_of, read_message
from tests.end_to_end.running import RunningServer

STRANGE = "queues.example.com"
OTHER = "sqs.us-east-1.localhost.localstack.cloud"


def ask(server: RunningServer, host: str, request: str, *lines: str) -> tuple[int, str]:
    """Send a request without a body to a host, and return the status and the body of the answer."""
    with server.connect() as connection:
        connection.sendall("\r\n".join([f"{request} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode())
        answer = read_message(connection)
    return int(answer.split()[1]), body_of(answer).decode()


@pytest.mark.parametrize(
    ("request_line", "lines", "told"),
    [
        ("POST /", ["X-Amz-Target: AmazonSQS.ListQueues"], '"__type":"com.amazon.coral.service#AccessDeniedException"'),
        ("GET /?Action=ListQueues", [], "<Code>AccessDenied</Code>"),
        ("GET /v1/queues", [], '"type":"urn:penstock:problem:access-denied"'),
        ("POST /v1/jobs", [], '"type":"urn:penstock:problem:access-denied"'),
        ("GET /v1/queues/orders/messages", [], "access-denied"),
        ("GET /stats", [], '{"message":'),
        ("GET /metrics", [], '{"message":'),
        ("GET /docs", [], "access-denied"),
        ("POST /_penstock/clock/advance", [], '{"message":'),
        ("OPTIONS /", ["Origin: http://a.example", "Access-Control-Request-Method: POST"], "message"),
    ],
)
def test_a_strange_name_is_refused_in_words_that_the_client_understands(
    passing_server: RunningServer, request_line: str, lines: list[str], told: str
) -> None:
    status, body = ask(passing_server, f"{STRANGE}:9324", request_line, *lines)
    assert status == 403
    assert told in body
    assert f"--allowed-host {STRANGE}" in body


@pytest.mark.parametrize("way", ["flags", "environment", "file"])
def test_further_names_and_origins_are_settings_like_all_others(tmp_path: Path, way: str) -> None:
    hosts = [STRANGE, "*.localhost.localstack.cloud"]
    origins = ["https://one.example", "http://localhost:3000"]
    (tmp_path / "penstock.toml").write_text(f"allowed_host = {hosts}\nallowed_origin = {origins}\n")
    arguments = {
        "flags": [part for host in hosts for part in ("--allowed-host", host)]
        + [part for origin in origins for part in ("--allowed-origin", origin)],
        "environment": [],
        "file": ["--config", "penstock.toml"],
    }[way]
    variables = {"PENSTOCK_ALLOWED_HOST": " ".join(hosts), "PENSTOCK_ALLOWED_ORIGIN": " ".join(origins)}
    settings = variables if way == "environment" else {}
    with RunningServer(tmp_path, "--port", "0", "--store", "memory:", *arguments, **settings) as server:
        for host in (STRANGE, OTHER, "localhost"):
            assert ask(server, host, "GET /healthz")[0] == 200
            for origin in origins:
                assert ask(server, host, "GET /healthz", f"Origin: {origin}")[0] == 200
        assert ask(server, "elsewhere.example", "GET /healthz")[0] == 403
        assert ask(server, STRANGE, "GET /healthz", "Origin: https://two.example")[0] == 403


def test_the_host_of_the_public_url_is_a_name_of_the_server(tmp_path: Path) -> None:
    public = f"https://{STRANGE}:8443"
    with RunningServer(tmp_path, "--port", "0", "--store", "memory:", "--public-url", public) as server:
        assert ask(server, STRANGE, "GET /healthz")[0] == 200
        # A proxy may have changed the host, but not the origin.
        assert ask(server, "penstock:9324", "GET /healthz", f"Origin: {public}")[0] == 200
