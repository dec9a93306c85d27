"""`penstock lab up`, `validate` and `down`: real processes, a server that stays, and nothing left half made."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import psutil  # type: ignore[import-untyped] # As in tests.support.
import pytest

from penstock.domain.policy import Policy
from penstock.lab import env_file
from penstock.lab.background_server import BackgroundServer
from penstock.lab.environment import names_of
from penstock.lab.knobs import turned
from penstock.lab.laboratory import Laboratory, LabSettings
from penstock.lab.provisioning import Conflict, Wanted, provision, remove, wanted
from penstock.lab.scenarios import NAMES, scenario
from penstock.lab.tables.places import DynamoPlace, SqlitePlace, TablePlace
from penstock.lab.validate import validate
from penstock.server.access import AccessKey
from penstock.server.config import ServerConfig
from penstock.testing import RunningServer, serve

CRASH = names_of("sqs-demo", "crash")
FOREIGN = {"AWS_REGION", "AWS_PROFILE", "QUEUE_URL", "PYTHONPATH", "MESSAGE_STATUS_TABLE", "MESSAGE_SIDE_EFFECTS_TABLE"}


class Lab:
    """Runs `penstock lab` as a process in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.background = BackgroundServer(folder / "data/lab")

    def __call__(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        with self.started(*arguments, **variables) as process:
            try:
                out, err = process.communicate(timeout=60)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def started(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", "lab", *arguments],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if name not in FOREIGN} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.background.stop()


def alive(pid: int) -> bool:
    """Return whether a process runs: one that only waits for its parent to notice does not."""
    return bool(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


def queues(url: str) -> list[str]:
    sqs = boto3.client(
        "sqs", endpoint_url=url, region_name="us-west-1", aws_access_key_id="lab", aws_secret_access_key="lab"
    )
    try:
        return sorted(found.rpartition("/")[2] for found in sqs.list_queues().get("QueueUrls", []))
    finally:
        sqs.close()


@pytest.fixture(params=["sqlite", "dynamodb"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> TablePlace:
    if request.param == "sqlite":
        return SqlitePlace(tmp_path / "tables.db")
    return DynamoPlace(request.getfixturevalue("dynamodb"))


# -- the whole way, as a user goes it -----------------------------------------------------------------


@pytest.mark.slow
def test_up_produce_consume_validate_and_down(lab: Lab) -> None:
    up = lab("up", "--port", "0")
    assert up.returncode == 0, up.stderr
    assert f"The queues and tables of {len(NAMES)} scenarios are there." in up.stderr
    running = lab.background.running
    assert running is not None
    assert f"{running.url}, pid {running.pid}, started" in up.stderr
    written = env_file.read(lab.folder / ".env")
    assert tuple(written) == env_file.KEYS
    assert written["DLQ_ARN"] == "arn:aws:sqs:us-west-1:000000000000:sqs-demo-happy-dlq"

    assert lab("produce", "--n", "3", **written).returncode == 0
    assert lab("consume", MESSAGE_LIMIT="3", **written).returncode == 0
    with sqlite3.connect(lab.folder / "data/lab/tables.db") as database:
        done = database.execute(f'SELECT status FROM "{written["MESSAGE_STATUS_TABLE"]}"').fetchall()
    database.close()
    assert done == [("COMPLETED",)] * 3

    assert "2 messages sent in " in lab("produce", "--n", "2").stderr
    assert lab("consume", MESSAGE_LIMIT="2").returncode == 0

    again = lab("up")
    assert again.returncode == 0
    assert lab.background.running == running
    assert lab("validate").returncode == 0

    down = lab("down")
    assert down.returncode == 0, down.stderr
    assert f"stopped  {running.url}, pid {running.pid}" in down.stderr
    assert not alive(running.pid)
    assert lab.files == {"data/lab/penstock.db", "data/lab/penstock.db.lock"}
    assert "Nothing is up." in lab("down").stderr


def test_validate_reads_the_file_unless_the_environment_names_a_queue(lab: Lab, server: RunningServer) -> None:
    assert lab("up", "crash", "--endpoint", server.url).returncode == 0
    assert lab("validate", "crash").returncode == 0
    assert lab("validate", "crash", QUEUE_URL="http://127.0.0.1:9/1/q").returncode == 6
    with (lab.folder / ".env").open("a") as file:
        file.write("SECRET=hush\n")
    others = lab("validate", "crash")
    assert others.returncode == 3
    assert "Nothing says where the queues are." in others.stderr


@pytest.mark.slow
def test_what_was_up_is_found_and_kept_by_a_run(tmp_path: Path) -> None:
    place, happy = SqlitePlace(tmp_path / "tables.db"), scenario("happy")
    with serve(ServerConfig(port=0, store="memory:", clock="system")) as server:
        sqs = server.sqs_client(region_name="us-west-1")
        [up] = provision(sqs, place, wanted(["happy"]))
        sqs.send_message(QueueUrl=up.queue_url, MessageBody="left over")
        settings = LabSettings(endpoint=server.url, tables=f"sqlite:{tmp_path / 'tables.db'}")
        with Laboratory(settings) as laboratory:
            played = laboratory.play(happy, turned(happy.knobs, {"count": "2"}, {}), "protected")
        assert {check.verdict for check in played.variant.checks} == {"held"}
        assert queues(server.url) == ["sqs-demo-happy-dlq", "sqs-demo-happy-queue"]
        assert validate(sqs, place, wanted(["happy"])) == []
        sqs.close()


def test_a_server_that_runs_already_is_used_and_not_stopped(lab: Lab, server: RunningServer) -> None:
    port = server.url.rpartition(":")[2]
    assert lab("up", "crash", "--port", port).returncode == 0
    assert lab.background.running is None
    assert queues(server.url) == [CRASH.dlq, CRASH.queue]
    assert lab("down").returncode == 0
    assert queues(server.url) == []
    assert lab.files == set()


def test_names_that_were_deleted_a_moment_ago_are_waited_for(lab: Lab, server: RunningServer) -> None:
    assert lab("up", "crash", "--endpoint", server.url).returncode == 0
    assert lab("down", "--endpoint", server.url).returncode == 0
    with lab.started("up", "crash", "--endpoint", server.url) as again:
        assert again.stderr is not None
        said = again.stderr.readline()
        assert said == "Waiting for up to 60 s: queues of these names were deleted less than 60 s ago.\n"
        server.clock.advance(seconds=61)
        assert again.wait(30) == 0
    assert queues(server.url) == [CRASH.dlq, CRASH.queue]
    assert env_file.read(lab.folder / ".env")["QUEUE_URL"].endswith("/sqs-demo-crash-queue")


def test_names_that_stay_refused_undo_all_of_it(sqs: Any, tables: TablePlace) -> None:
    queue = sqs.create_queue(QueueName=CRASH.queue)["QueueUrl"]
    sqs.delete_queue(QueueUrl=queue)
    waits = iter([True, True, False])
    with pytest.raises(sqs.exceptions.QueueDeletedRecently):
        provision(sqs, tables, wanted(["crash"]), wait=lambda: next(waits))
    assert list(waits) == []
    assert sqs.list_queues().get("QueueUrls", []) == []


def test_a_pid_that_is_not_the_servers_is_not_signalled(lab: Lab) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        folder = lab.folder / "data/lab"
        folder.mkdir(parents=True)
        (folder / "server.pid").write_text(f"{bystander.pid} http://127.0.0.1:9\n")
        assert lab.background.running is None
        assert lab.background.stop() is None
        assert lab("down").returncode == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.slow
def test_down_cleans_up_after_a_server_that_was_killed(lab: Lab) -> None:
    lab("up", "crash", "--port", "0")
    running = lab.background.running
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    while alive(running.pid):
        time.sleep(0.01)
    assert lab("down").returncode == 0
    assert ".env" not in lab.files
    assert lab("up", "crash", "--port", "0").returncode == 0


# -- what goes wrong ----------------------------------------------------------------------------------


def test_a_port_of_another_program_is_refused(lab: Lab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        up = lab("up", "crash", "--port", str(other.getsockname()[1]))
    assert up.returncode == 1
    assert "already in use" in up.stderr
    assert lab.background.running is None
    assert ".env" not in lab.files


def test_a_file_with_other_settings_is_not_overwritten(lab: Lab) -> None:
    kept = "SECRET=hush\n"
    (lab.folder / ".env").write_text(kept)
    up = lab("up", "crash", "--port", "0")
    assert up.returncode == 1
    assert "SECRET" in up.stderr
    assert "hush" not in up.stderr
    assert (lab.folder / ".env").read_text() == kept
    assert lab.files == {".env"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["up", "hapy"], 2, "No scenario named hapy. Did you mean happy?"),
        (["up", "--endpoint", "aws"], 2, "make infra-up TARGET=aws"),
        (["up", "--endpoint", "here"], 2, "--endpoint is a URL or aws, not here."),
        (["up", "--port", "65536"], 2, "--port must be 0 to 65535"),
        (["up", "--tables", "postgres:"], 2, "--tables is sqlite:PATH"),
        (["up", "--endpoint", "http://127.0.0.1:9"], 6, "Cannot reach the endpoint."),
        (["down", "hapy"], 2, "No scenario named hapy."),
        (["down", "--endpoint", "http://127.0.0.1:9"], 6, "Cannot reach the endpoint."),
        (["down", "--endpoint", "aws"], 2, "make infra-down TARGET=aws"),
        (["validate", "hapy"], 2, "No scenario named hapy."),
        (["validate"], 3, "penstock lab up"),
        (["validate", "--endpoint", "http://127.0.0.1:9"], 6, "Cannot reach the endpoint."),
        (["run", "crash", "--count", "-1"], 2, "--count"),
        (["run", "crash", "--visibility-wait", "x"], 2, "--visibility-wait"),
        pytest.param(
            ["run", "happy", "--endpoint", "http://127.0.0.1:9"],
            6,
            "Cannot reach the endpoint.",
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.slow
def test_bad_input_leaves_nothing_behind(lab: Lab, arguments: list[str], code: int, said: str) -> None:
    ended = lab(*arguments)
    assert ended.returncode == code, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert lab.files == set()


def test_credentials_that_are_refused_leave_nothing_behind(lab: Lab) -> None:
    key = AccessKey(id="AKIAONE", secret="a-secret-of-some-length", account="000000000000", user="ada", policy=Policy())
    with serve(ServerConfig(port=0, store="memory:", keys=(key,))) as guarded:
        for command in ("up", "validate", "down"):
            ended = lab(command, "crash", "--endpoint", guarded.url)
            assert ended.returncode == 5, ended.stderr
            assert "denied:" in ended.stderr
    assert lab.files == set()


def test_a_consumer_without_its_tables_exits_with_3(lab: Lab, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    ended = lab("consume", QUEUE_URL=url, MESSAGE_STATUS_TABLE="nowhere")
    assert ended.returncode == 3
    assert "There is no table nowhere in data/lab/tables.db." in ended.stderr
    assert lab.files == set()


# -- what is made, and what is wrong with it ----------------------------------------------------------


def test_resources_are_made_once_and_removed(sqs: Any, tables: TablePlace) -> None:
    first = provision(sqs, tables, wanted())
    assert provision(sqs, tables, wanted()) == first
    assert validate(sqs, tables, wanted()) == []
    assert len(remove(sqs, tables, wanted())) == 2 * len(wanted()) + 2 * len(NAMES)
    assert remove(sqs, tables, wanted()) == []
    assert sqs.list_queues().get("QueueUrls", []) == []


def test_resources_that_drifted_are_set_right(sqs: Any, tables: TablePlace) -> None:
    [crash] = provision(sqs, tables, [Wanted(scenario="crash")])
    sqs.set_queue_attributes(QueueUrl=crash.queue_url, Attributes={"RedrivePolicy": "", "VisibilityTimeout": "1"})
    assert len(validate(sqs, tables, [Wanted(scenario="crash")])) == 2
    provision(sqs, tables, [Wanted(scenario="crash")])
    assert validate(sqs, tables, [Wanted(scenario="crash")]) == []


def test_a_table_with_another_key_undoes_all_of_it(sqs: Any, tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "tables.db")
    with sqlite3.connect(tmp_path / "tables.db") as database:
        database.execute(f'CREATE TABLE "{CRASH.side_effects_table}" (id TEXT PRIMARY KEY)')
    database.close()
    with pytest.raises(Conflict, match="with the key HASH id"):
        provision(sqs, place, wanted())
    assert sqs.list_queues().get("QueueUrls", []) == []
    assert place.key_of(CRASH.status_table) is None
    assert place.key_of("sqs-demo-happy-message-status") is None


def test_a_missing_table_is_a_fault(sqs: Any, tables: TablePlace) -> None:
    provision(sqs, tables, [Wanted(scenario="crash")])
    tables.remove(CRASH.side_effects_table)
    [fault] = validate(sqs, tables, [Wanted(scenario="crash")])
    assert (fault.resource, fault.problem) == (CRASH.side_effects_table, "there is no such table")


WRONG = [
    ("no policy", "it has no RedrivePolicy"),
    ("other queue", "its dead letters go to "),
    ("other count", "maxReceiveCount is 3, not 2"),
    ("no table", "there is no such table"),
    ("no key", "its key must be HASH message_id alone, not none"),
    ("other key", "its key must be HASH message_id alone, not HASH id, RANGE message_id"),
]


@pytest.mark.parametrize(("what", "problem"), WRONG)
def test_validate_exits_with_3(lab: Lab, server: RunningServer, sqs: Any, what: str, problem: str) -> None:
    assert lab("up", "crash", "--endpoint", server.url).returncode == 0
    url = sqs.get_queue_url(QueueName=CRASH.queue)["QueueUrl"]
    arn = env_file.read(lab.folder / ".env")["DLQ_ARN"]
    policy: dict[str, object] = {"deadLetterTargetArn": arn, "maxReceiveCount": 2}
    if what == "no policy":
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    elif what in {"other queue", "other count"}:
        sqs.create_queue(QueueName="other")
        other = arn.rpartition(":")[0] + ":other"
        policy |= {"maxReceiveCount": 3} if what == "other count" else {"deadLetterTargetArn": other}
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})
    else:
        key = {
            "no table": "",
            "no key": "(message_id TEXT)",
            "other key": "(id, message_id, PRIMARY KEY (id, message_id))",
        }
        with sqlite3.connect(lab.folder / "data/lab/tables.db") as database:
            database.execute(f'DROP TABLE "{CRASH.status_table}"')
            if key[what]:
                database.execute(f'CREATE TABLE "{CRASH.status_table}" {key[what]}')
        database.close()
    ended = lab("validate", "crash", "--endpoint", server.url)
    assert ended.returncode == 3
    assert problem in ended.stdout
    assert "1 fault in the resources of 1 scenario." in ended.stderr
