"""A hundred thousand requests of every kind, most of them unsound: none makes the server fail."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for a few calls here.
import pytest

from tests.end_to_end.running import RunningServer
from tests.support.campaigns import campaign, trials
from tests.support.exploring import EXPLORING
from tests.support.fuzzing import jobs, sqs
from tests.support.fuzzing.campaign import Campaign
from tests.support.fuzzing.http import Credentials

REQUESTS = 100_000
SIGNED_REQUESTS = 20_000
MEMORY_GROWTH_BYTES_MAX = 256 * 1024 * 1024
SEED = os.getpid() if EXPLORING else 11
CREDENTIALS = Credentials(key="FUZZ", secret="a secret of some length", region="us-east-1", token="f" * 40)
POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"},
        {"Effect": "Deny", "Action": "sqs:Tag*", "Resource": "arn:aws:sqs:*:*:*a*a*?a*"},
    ],
}
KEYS = f"""
[[keys]]
access_key_id = "{CREDENTIALS.key}"
secret_access_key = "{CREDENTIALS.secret}"
account = "{sqs.ACCOUNT}"
policy = '{json.dumps(POLICY)}'

[[tokens]]
name = "fuzz"
token = "{CREDENTIALS.token}"
scopes = ["enqueue", "work", "read", "admin"]
queues = ["work*", "*a*a*?a*", "more.w?rk"]
"""
QUEUES = "".join(f'\n[[queues]]\nname = "{name}"\n' for name in sqs.QUEUES)


def attack(folder: Path, store_url: str, settings: str, count: int, credentials: Credentials | None = None) -> str:
    """Start a server with these settings, send it so many requests, and say how it answered them."""
    file = folder / "penstock.toml"
    file.write_text(f"name_reuse_delay = 0\npurge_interval = 0\n{settings}{QUEUES}")
    with RunningServer(folder, "--port", "0", "--store", store_url, "--config", str(file)) as server:
        process = psutil.Process(server.process.pid)
        fuzz = Campaign(server.url, server.get("/openapi.json"), SEED, credentials)
        asyncio.run(fuzz.prepare(jobs.QUEUES))
        before_bytes = process.memory_info().rss
        asyncio.run(fuzz.run(count))
        grown_bytes = process.memory_info().rss - before_bytes
        answers = ", ".join(f"{number} {kind}" for kind, number in sorted(fuzz.answers.items()))
        told = f"{sum(fuzz.answers.values())} fuzzed requests, seed {SEED} ({answers})"
        assert not fuzz.failures, "\n\n".join([told, *map(str, fuzz.failures)])
        assert grown_bytes < MEMORY_GROWTH_BYTES_MAX
        assert server.get("/healthz") == {"status": "ok"}
        assert server.stop() == (0, "")
    assert "Traceback" not in server.errors.read_text()
    return f"{store_url.partition(':')[0]}: {told}: no 5xx but 503 with a reason"


@campaign
@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_no_request_makes_the_server_fail(
    store_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("evidence", attack(tmp_path, store_url, "", trials(REQUESTS, share=40)))


@campaign
@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_no_request_makes_a_server_with_keys_fail(
    store_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    told = attack(tmp_path, store_url, KEYS, trials(SIGNED_REQUESTS, share=40), CREDENTIALS)
    record_property("evidence", f"with keys, {told}")
