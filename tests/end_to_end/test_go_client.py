"""A client from Go's module proxy, at the versions that go/go.mod pins: aws-sdk-go-v2."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.cutting_proxy import Cut, CuttingProxy
from tests.end_to_end.running import REGION, RunningServer, environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SOURCES = Path(__file__).parent / "go"
BUILT = Path(__file__).parents[2] / ".go-client"
FETCH_TIMEOUT_S = 60.0
BUILD_TIMEOUT_S = 180.0
RUN_TIMEOUT_S = 60.0


@pytest.fixture(scope="session")
def go_client() -> Path:
    """The program, built from what is fetched once and kept where Go keeps it."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed: aws-sdk-go-v2 was NOT tried")
    BUILT.mkdir(exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Of several test processes only one fetches and builds.
        try:
            fetched = run_go(go, "mod", "download", timeout_s=FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pytest.skip(f"go did not fetch aws-sdk-go-v2 within {FETCH_TIMEOUT_S:g} s: it was NOT tried")
        if fetched.returncode != 0:
            pytest.skip(f"go could not fetch aws-sdk-go-v2, which was NOT tried: {fetched.stderr.strip()[-500:]}")
        built = run_go(go, "build", "-o", str(BUILT / "client"), ".", timeout_s=BUILD_TIMEOUT_S)
    assert built.returncode == 0, built.stderr
    return BUILT / "client"


def run_go(go: str, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    # With this Go or not at all: otherwise one that is too old fetches a newer one.
    settings = environment(GOTOOLCHAIN="local", GOFLAGS="-mod=readonly", GOWORK="off", CGO_ENABLED="0")
    return subprocess.run(
        [go, *arguments], capture_output=True, text=True, check=False, cwd=SOURCES, env=settings, timeout=timeout_s
    )


def run_client(client: Path, *arguments: str) -> str:
    done = subprocess.run(
        [client, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in environment().items() if not name.startswith("AWS_")},
        timeout=RUN_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_client_of_go_is_content(shared_server: RunningServer, go_client: Path, queue_name: str) -> None:
    run_client(go_client, "life", shared_server.url, REGION, queue_name)


@pytest.mark.parametrize("cut", Cut)
def test_a_send_that_the_client_of_go_retries_is_stored_once(
    shared_server: RunningServer, go_client: Path, queue_name: str, cut: Cut
) -> None:
    sqs = shared_server.sqs()
    queue_url = sqs.create_queue(QueueName=queue_name)["QueueUrl"]
    with CuttingProxy(shared_server.url) as proxy:
        proxy.cut_next(cut)
        sent = run_client(go_client, "send", proxy.url, REGION, queue_url)
    [first] = proxy.cut_answers
    assert sent.encode() in first
    stored = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10)["Messages"]
    assert [(message["MessageId"], message["Body"]) for message in stored] == [(sent, "once")]
