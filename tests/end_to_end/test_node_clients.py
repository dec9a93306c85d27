"""Clients from npm, at the versions that node/package-lock.json pins: @aws-sdk/client-sqs and sqs-consumer."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.running import REGION, RunningServer, environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SOURCES = Path(__file__).parent / "node"
INSTALLED = Path(__file__).parents[2] / ".node-clients"
NODE_MAJOR_MIN = 20
INSTALL_TIMEOUT_S = 180.0
RUN_TIMEOUT_S = 60.0


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """A folder with the clients and the scripts that use them; the clients are installed once and kept."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed: the clients from npm were NOT tried")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    major = re.match(r"v(\d+)", version)
    if major is None or int(major[1]) < NODE_MAJOR_MIN:
        pytest.skip(f"node is {version.strip()}, and the clients from npm need {NODE_MAJOR_MIN}: they were NOT tried")
    INSTALLED.mkdir(exist_ok=True)
    with (INSTALLED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Of several test processes only one installs.
        install(npm)
    return INSTALLED


def install(npm: str) -> None:
    pins = "package-lock.json"
    stamp = INSTALLED / "installed"
    wanted = (SOURCES / pins).read_text()
    for source in SOURCES.iterdir():
        shutil.copy(source, INSTALLED)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    done = subprocess.run(
        [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        capture_output=True,
        text=True,
        check=False,
        cwd=INSTALLED,
        timeout=INSTALL_TIMEOUT_S,
    )
    if done.returncode != 0:
        pytest.skip(f"npm could not install the clients, which were NOT tried: {done.stderr.strip()[-500:]}")
    stamp.write_text(wanted)


@pytest.mark.parametrize("script", ["sdk.mjs", "consumer.mjs"])
def test_a_client_from_npm_is_content(
    shared_server: RunningServer, node_folder: Path, queue_name: str, script: str
) -> None:
    done = subprocess.run(
        ["node", script, shared_server.url, REGION, queue_name],
        capture_output=True,
        text=True,
        check=False,
        cwd=node_folder,
        env={name: value for name, value in environment().items() if not name.startswith("AWS_")},
        timeout=RUN_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
