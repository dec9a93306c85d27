"""Every example of README and docs runs, and prints what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import django
import pytest

from penstock import Penstock
from penstock.client.tasks.options import CallOptions, TaskOptions
from tests.docs.pages import ROOT, page, pages
from tests.docs.playing import play, run_console, run_shell
from tests.end_to_end.running import REGION, RunningServer, command, environment
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TASKS = [
    "docs/failures.md",
    "docs/fan-out.md",
    "docs/moving.md",
    "docs/patterns.md",
    "docs/tasks.md",
    "docs/transactions.md",
    "docs/workers.md",
]
"""Pages about tasks, whose promises hold on both stores."""
WEB = ["docs/fastapi.md", "docs/flask.md"]
"""Pages about web frameworks, which are about tasks, too."""
PLAIN = ["docs/client.md", "docs/engine.md"]
"""Pages that name the store that they use."""
SQS = ["docs/sqs-consumers.md", "docs/task-queue-handler.md"]
"""Pages about queues of a server."""
ELSEWHERE = {
    "README.md": "docs/test_pages.py",
    "docs/celery.md": "integrations/test_celery_page.py",
    "docs/configuration.md": "docs/test_pages.py",
    "docs/django.md": "docs/test_pages.py",
    "docs/events.md": "docs/test_pages.py",
    "docs/embedded.md": "embedded/test_guide.py",
    "docs/idempotency.md": "idempotency/test_guide.py",
    "docs/testing.md": "unit/testing/test_plugin.py",
}
"""Pages that need more, and the tests that run them."""
SHELL = ["docs/jobs-api.md", "docs/jobs.md"]
"""Pages with requests to a server."""
LAB = [name for name in pages() if name.startswith("docs/lab/")]
"""Guides of the lab, which tests/docs/test_lab_guides.py runs."""
SERVER = "http://127.0.0.1:9324"


@pytest.mark.parametrize("name", [*TASKS, *WEB])
def test_a_page_about_tasks_runs_as_written(
    name: str, store: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    replaced = {"sqlite:jobs.db": store}
    if name == "docs/transactions.md":
        replaced |= request.getfixturevalue("shop_database")
    play(page(name), folder, replaced)


@pytest.fixture
def shop_database(postgres_server: PostgresServer) -> Iterator[dict[str, str]]:
    """A database that Penstock and an application share, by its addresses on the pages."""
    database = postgres_server.create_database()
    dsn = postgres_server.dsn(database)
    with Penstock(dsn) as app:
        app.sync.queues.list()  # It makes the schema, as a server or a worker does when it starts.
    yield {
        f"postgresql{driver}://localhost/shop": dsn.replace("postgresql", f"postgresql{driver}", 1)
        for driver in ("", "+psycopg")
    }
    postgres_server.drop_database(database)


@pytest.mark.parametrize("name", PLAIN)
def test_a_page_runs_as_written(name: str, folder: Path) -> None:
    play(page(name), folder)


def test_the_page_about_django_runs_as_written(store: str, folder: Path) -> None:
    """With the backport, where Django has no tasks of its own."""
    replaced = {"sqlite:jobs.db": store}
    if django.VERSION < (6,):
        replaced |= {"django.tasks": "django_tasks", '["penstock.django"]': '["penstock.django", "django_tasks"]'}
    play(page("docs/django.md"), folder, replaced)


def test_the_page_about_events_runs_as_written(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with RunningServer(tmp_path_factory.mktemp("server"), "--port", "0", "--store", "memory:") as server:
        play(page("docs/events.md"), folder, {SERVER: server.url})


@pytest.mark.parametrize("name", SQS)
def test_a_page_about_queues_runs_as_written(
    name: str, store: str, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with RunningServer(tmp_path_factory.mktemp("server"), "--port", "0", "--store", store) as server:
        play(page(name), folder, {SERVER: server.url})


def test_the_readme_runs_as_written(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """But for the port of the server, which is free."""
    readme = page("README.md")
    quickstart, *others = [block for block in readme.of("console") if not block.not_run]
    with RunningServer(tmp_path_factory.mktemp("server"), "--port", "0", "--store", "memory:") as server:
        for name, text in readme.files().items():
            (folder / name).write_text(text)
        run_console(quickstart, folder)
        for block in others:
            if shutil.which("curl"):
                run_console(block, folder, {SERVER: server.url})
        play(readme, folder, {SERVER: server.url}, worker="tasks:app")


@pytest.mark.parametrize("name", SHELL)
def test_the_requests_of_a_page_are_taken(name: str, folder: Path) -> None:
    if not shutil.which("curl"):
        pytest.skip("no curl here")
    with RunningServer(folder, "--port", "0", "--store", "memory:") as server:
        # The server runs already. Nobody works here, so what waits for an end would wait in vain.
        replaced = {"penstock serve &\n": "", SERVER: server.url, "wait=20": "wait=0"}
        with Penstock(server.url) as app:
            app.sync.queues.put("mail")
        run_shell(page(name), folder, replaced, api=server.url)


def test_a_look_into_a_queue_shows_what_the_page_says(folder: Path) -> None:
    [block] = page("docs/configuration.md").of("console")
    asked, _, shown = block.text.partition("\n")
    path = re.findall(rf"{SERVER}([^']+)", asked)[0]
    with RunningServer(folder, "--port", "0", "--store", "memory:", "--region", REGION) as server:
        sqs = server.sqs()
        orders = sqs.create_queue(QueueName="orders")["QueueUrl"]
        sqs.send_message(QueueUrl=orders, MessageBody="one espresso")
        sqs.receive_message(QueueUrl=orders)
        seen = server.get(path)
    [message] = seen["messages"]
    assert (message["state"], message["body"]) == ("leased", "one espresso")
    assert set(re.findall(r'"(\w+)":', shown)) <= {*seen, *message}


def test_every_page_with_examples_is_run() -> None:
    for language, tested in {"python": {*TASKS, *WEB, *PLAIN, *SQS, *ELSEWHERE, *LAB}, "sh": {*SHELL}}.items():
        assert {name for name in pages() if page(name).of(language)} <= tested
    assert {name for name in pages() if page(name).of("console")} <= {*TASKS, *WEB, *PLAIN, *ELSEWHERE, *LAB}
    for name, test in ELSEWHERE.items():
        assert Path(name).name in (ROOT / "tests" / test).read_text()


@pytest.mark.parametrize("name", [*TASKS, *WEB, *PLAIN, *SQS, "docs/django.md", "docs/events.md"])
def test_what_is_not_run_says_why(name: str) -> None:
    assert all(block.not_run for block in page(name).of("console"))


def test_workers_have_every_flag_of_the_page(folder: Path) -> None:
    ran = subprocess.run(command("worker", "--help"), capture_output=True, text=True, check=True, env=environment())
    flags = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", re.sub(r"\]\([^)]*\)", "", _shown("docs/workers.md"))))
    assert {"-q", "--grace", "--processes", "--health"} <= flags
    assert {flag for flag in flags - {"--help"} if flag not in ran.stdout} == set()


def test_the_guide_has_every_option_of_tasks_and_calls() -> None:
    [table] = re.findall(r"\| option \| meaning \|.*?\n\n", page("docs/tasks.md").text, re.DOTALL)
    rows = [row.split("|")[1:-1] for row in table.splitlines()[2:] if row]
    options = {name: row[2].strip() == "yes" for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert options == {name: name in TaskOptions.__annotations__ for name in CallOptions.__annotations__}


@pytest.mark.parametrize(
    ("language", "setting"), [("ini", "TimeoutStopSec="), ("yaml", "terminationGracePeriodSeconds: ")]
)
def test_a_worker_is_killed_only_after_its_grace(language: str, setting: str) -> None:
    [block] = page("docs/workers.md").of(language)
    [killed_after_s] = re.findall(rf"{setting}(\d+)", block.text)
    [grace_s] = re.findall(r"--grace,? (\d+)s", block.text)
    assert int(grace_s) + 5 <= int(killed_after_s)


@pytest.mark.parametrize("name", pages())
def test_every_example_can_be_read_by_python(name: str) -> None:
    for block in page(name).of("python"):
        block.compile(name)


def test_the_tasks_of_the_pages_pass_mypy_strict(folder: Path, pytestconfig: pytest.Config) -> None:
    """Each as a module of its own name, without the project's own configuration: a user has another."""
    modules = []
    for place, name in enumerate([*TASKS, "README.md"]):
        for file, text in page(name).files().items():
            if not file.startswith("test_"):
                modules.append(folder / f"page{place}_{file}")
                modules[-1].write_text(text)
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir("mypy-pages")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", *map(str, modules)],
        env=environment(MYPYPATH=str(ROOT / "src")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", [*pages(), "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_every_link_leads_somewhere(name: str) -> None:
    text = page(name).text
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        found = (ROOT / name).parent / path if path else ROOT / name
        assert found.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            assert anchor in {_anchor(head) for head in heads}, target


def _shown(name: str) -> str:
    """Return all code of a page, in blocks and in lines."""
    read = page(name)
    return "\n".join([*(block.text for block in read.blocks), *re.findall(r"`([^`\n]+)`", read.text)])


def _anchor(head: str) -> str:
    """Return what GitHub makes of a head."""
    return re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
