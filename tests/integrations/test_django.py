"""The Django backend: the framework's contract in processes of their own, and `manage.py penstock_worker`."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock import Penstock
from penstock.django.configuration import KNOWN
from tests.docs.pages import ROOT
from tests.end_to_end.running import RunningServer, environment
from tests.support.campaigns import GATHERING_EVIDENCE
from tests.tasks.worker_processes import PATIENCE_S, WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PROJECT = Path(__file__).with_name("django_project")
PROMISES = len(re.findall(r"^    def test_", (PROJECT / "contract.py").read_text(), re.MULTILINE))
DJANGO = "django>=6.0,<7"
INSTALL_S = 240.0


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of the test's own: the project's queues have fixed names."""
    folder = tmp_path_factory.mktemp("server")
    if request.param == "sqlite":
        with RunningServer(folder, "--port", "0", "--store", f"sqlite:{folder / 'penstock.db'}") as running:
            yield running
        return
    postgres = request.getfixturevalue("postgres_server")
    database = postgres.create_database()
    with RunningServer(folder, "--port", "0", "--store", postgres.dsn(database)) as running:
        yield running
    postgres.drop_database(database)


def variables(folder: Path, url: str | None) -> dict[str, str]:
    found = {
        "PYTHONPATH": str(ROOT / "src"),
        "SHOP_DATABASE": str(folder / "shop.sqlite3"),
        "SHOP_LEDGER": str(folder / "ledger"),
        "DJANGO_SETTINGS_MODULE": "project.settings",
    }
    return found if url is None else found | {"PENSTOCK_URL": url}


def keep_contract(python: str, folder: Path, url: str) -> None:
    """Run the contract in an interpreter; fails with its output."""
    ran = subprocess.run(
        [python, "-W", "error::ResourceWarning", "-m", "unittest", "contract"],
        cwd=PROJECT,
        env=environment(**variables(folder, url)),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(rf"^Ran {PROMISES} tests", ran.stderr, re.MULTILINE), ran.stderr


class Managed(NamedTuple):
    """How a command of `manage.py` ended, and what it wrote to stderr and stdout."""

    code: int
    errors: str
    output: str


MANAGE = """
import contextlib, io, json, sys
from django.core.management import execute_from_command_line

ended = []
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    code, errors, output = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
        try:
            execute_from_command_line(["manage.py", *arguments])
        except SystemExit as end:
            code = end.code or 0
    ended.append((code, errors.getvalue(), output.getvalue()))
print(json.dumps(ended))
"""


def manage(folder: Path, url: str | None, *commands: list[str]) -> list[Managed]:
    """Run commands as manage.py does, one after the other in one process: most of the time goes into its start."""
    ran = subprocess.run(
        [sys.executable, "-c", MANAGE, json.dumps(commands)],
        cwd=PROJECT,
        env=environment(**variables(folder, url)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [Managed(*one) for one in json.loads(ran.stdout)]


class DjangoWorker(WorkerProcess):
    """`manage.py penstock_worker`."""

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(PROJECT / "manage.py"), "penstock_worker", *arguments]


def enqueue(client: Penstock, task: str, *args: object) -> str:
    return client.sync.jobs.enqueue("default", f"shop.tasks.{task}", {"args": args, "kwargs": {}}).id


def result_of(client: Penstock, job: str) -> object:
    found = client.sync.jobs.result(job, wait=PATIENCE_S)
    assert found.state == "succeeded", found
    return json.loads(bytes(found.result))  # type: ignore[arg-type] # It is there once it has succeeded.


# -- the contract -----------------------------------------------------------------------------------


def test_the_contract_is_kept_with_the_backport_or_djangos_own(tmp_path: Path, server: RunningServer) -> None:
    keep_contract(sys.executable, tmp_path, server.url)


@pytest.mark.timeout(500)
@pytest.mark.parametrize("version", ["3.12", "3.13"] if GATHERING_EVIDENCE else ["3.12"])
def test_the_contract_is_kept_with_django_6(version: str, tmp_path: Path, sqlite_server: RunningServer) -> None:
    keep_contract(str(_python_with_django_6(version)), tmp_path, sqlite_server.url)


def test_tasks_are_enqueued_in_the_transaction_of_the_same_database(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    postgres = request.getfixturevalue("postgres_server")
    database = postgres.create_database()
    url = postgres.dsn(database)
    named = {name: value[0] for name, value in parse_qs(urlsplit(url).query).items()}
    parts = urlsplit(url)
    shop = {
        "NAME": database,
        "USER": named.get("user") or parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": named.get("host") or parts.hostname or "",
        "PORT": str(named.get("port") or parts.port or ""),
    }
    with RunningServer(tmp_path, "--port", "0", "--store", url) as server:
        ran = subprocess.run(
            [sys.executable, "-m", "unittest", "in_transaction"],
            cwd=PROJECT,
            env=environment(**variables(tmp_path, server.url), SHOP_POSTGRES=json.dumps(shop)),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    postgres.drop_database(database)


def _python_with_django_6(version: str) -> Path:
    """Return an interpreter with Django 6 and what Penstock needs, made once and kept in .venv."""
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no Python {version} that runs is on the PATH: Django 6 on {version} was NOT tried")
    place = ROOT / ".venv" / f"django-6-python-{version}"
    needed = hashlib.sha256(((ROOT / "requirements.lock").read_text() + DJANGO).encode()).hexdigest()
    made, found = place / "made", place / "bin" / "python"
    if not made.exists() or made.read_text() != needed:
        subprocess.run([python, "-m", "venv", "--clear", str(place)], check=True, timeout=INSTALL_S)
        lock = ["--requirement", str(ROOT / "requirements.lock"), DJANGO]
        ran = subprocess.run(
            [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *lock],
            capture_output=True,
            check=False,
            timeout=INSTALL_S,
        )
        if ran.returncode:
            pytest.skip("no package index has Django 6 for us: Django 6 was NOT tried")
        made.write_text(needed)
    return found


# -- the worker -------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_a_worker_with_two_processes_replaces_them_after_some_jobs(tmp_path: Path, server: RunningServer) -> None:
    flags = ["--processes", "2", "--max-jobs", "3", "-q", "default:2", "--name", "shop", "--log-format", "logfmt"]
    with (
        Penstock(server.url) as client,
        DjangoWorker(tmp_path, *flags, "-v", "2", **variables(tmp_path, server.url)) as worker,
    ):
        worker.wait_for("ready", count=2)
        jobs = [enqueue(client, "add", number, 1) for number in range(12)]
        assert [result_of(client, job) for job in jobs] == list(range(1, 13))
        worker.wait_for(r"\d jobs done")
        worker.wait_for("ready", count=3)
        assert {client.sync.jobs.get(job).history[0].worker for job in jobs} <= {"shop-1", "shop-2"}
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0


@pytest.mark.parametrize("server", ["sqlite", "postgres"] if GATHERING_EVIDENCE else ["sqlite"], indirect=True)
def test_sigterm_lets_a_running_task_end(tmp_path: Path, server: RunningServer) -> None:
    go = tmp_path / "go"
    with (
        Penstock(server.url) as client,
        DjangoWorker(tmp_path, "--log-format", "logfmt", **variables(tmp_path, server.url)) as worker,
    ):
        job = enqueue(client, "until_file", str(go))
        worker.wait_for("shop.tasks.until_file state=RUNNING")
        worker.send(signal.SIGTERM)
        worker.wait_for("stopping")
        go.touch()
        assert worker.exit_code() == 0
        assert client.sync.jobs.get(job).state == "succeeded"


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    cases = {
        "QUEUES of TASKS['default'] has no queue nowhere.": ["-q", "nowhere"],
        "--queue is NAME or NAME:SLOTS": ["-q", "mail:x"],
        "The connection 'none' doesn't exist.": ["--backend", "none"],
        "--grace is a duration": ["--grace", "soon"],
        "Cannot import the tasks: No module named 'shop.nothing'": ["--import", "shop.nothing"],
    }
    ended = manage(tmp_path, "http://127.0.0.1:1", *(["penstock_worker", *flags] for flags in cases.values()))
    for said, ran in zip(cases, ended, strict=True):
        assert ran.code != 0
        assert said in ran.errors
        assert "Traceback" not in ran.errors


def test_a_project_without_a_url_fails_its_checks(tmp_path: Path) -> None:
    for ran in manage(tmp_path, None, ["check"], ["penstock_worker"]):
        assert ran.code == 1
        assert "(penstock.E001) OPTIONS of TASKS['default'] has no url." in ran.errors


def test_flags_that_start_the_program_again_need_a_program(tmp_path: Path) -> None:
    program = (
        "import django; django.setup(); from django.core.management import call_command;"
        "call_command('penstock_worker', processes=2)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=PROJECT,
        env=environment(**variables(tmp_path, "http://127.0.0.1:1")),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 2
    assert "which call_command cannot" in ran.stderr


def test_the_worker_has_every_flag_of_the_page(tmp_path: Path) -> None:
    [ran] = manage(tmp_path, "http://127.0.0.1:1", ["penstock_worker", "--help"])
    [table] = re.findall(r"\| flag \| meaning \|.*?\n\n", (ROOT / "docs" / "django.md").read_text(), re.DOTALL)
    flags = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", table))
    assert {"-q", "--backend", "--grace"} <= flags
    assert {flag for flag in flags if flag not in ran.output} == set()


def test_the_options_of_the_page_are_those_that_there_are() -> None:
    [table] = re.findall(r"\| in `OPTIONS` \| meaning \|.*?\n\n", (ROOT / "docs" / "django.md").read_text(), re.DOTALL)
    rows = [row.split("|")[1] for row in table.splitlines()[2:] if row]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(KNOWN)


def test_the_package_loads_without_django_settings() -> None:
    program = (
        "import penstock.django, sys; assert 'django.conf' not in sys.modules; assert 'penstock.cli' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S, env=environment())
