"""What `penstock worker` and `penstock schedule` say about an app or flags that they cannot use."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import app, main
from penstock.cli.failures import Failure
from penstock.cli.worker.command import read_settings
from penstock.cli.worker.settings import (
    WorkerSettings,
    new_name,
    read_duration,
    read_health,
    read_queues,
    read_size,
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder as the current one. Modules that a test imports from it are forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def write(project: Path, **modules: str) -> None:
    """Write modules of the project. `shop` is a package if it has `tasks`."""
    tasks = modules.pop("shop_tasks", None)
    if tasks is not None:
        (project / "shop").mkdir()
        (project / "shop" / "__init__.py").write_text(textwrap.dedent(modules.pop("shop")))
        (project / "shop" / "tasks.py").write_text(tasks)
    for name, text in modules.items():
        (project / f"{name}.py").write_text(textwrap.dedent(text))


class Said:
    """How a command ended, and what it wrote to stderr."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.lines = text.splitlines()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(monkeypatch, capsys)


class Run:
    """Runs commands in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Said:
        self._monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        written = self._capsys.readouterr()
        assert written.out == ""
        assert isinstance(end.value.code, int)
        return Said(end.value.code, written.err)


APP = """
    from penstock import Penstock

    app = Penstock("memory:")
"""


# -- apps -----------------------------------------------------------------------------------------


def test_a_module_that_is_not_there_is_named(run: Run, project: Path) -> None:
    said = run("worker", "shop:app")
    assert said.code == 1
    assert said.lines == [
        "error: Cannot import shop.",
        "  why  ModuleNotFoundError: No module named 'shop'",
        f"       searched from {project}",
        "  try  run this in the folder of your project, in your project's environment",
    ]


def test_a_library_that_is_missing_is_named_with_the_line_that_imports_it(run: Run, project: Path) -> None:
    write(project, shop="import shop.tasks", shop_tasks="import os\n\nimport stripe_of_nobody")
    said = run("worker", "shop:app")
    assert said.code == 1
    assert said.lines == [
        "error: Cannot import shop.tasks.",
        "  why  ModuleNotFoundError: No module named 'stripe_of_nobody'",
        "       shop/tasks.py, line 3: import stripe_of_nobody",
        "  try  uv add stripe_of_nobody, or start the worker in your project's environment",
    ]


def test_a_library_that_fails_is_shown_with_the_line_of_the_project(
    run: Run, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    libraries = tmp_path_factory.mktemp("libraries")
    (libraries / "fragile_library.py").write_text("raise ImportError('libfragile.so.3 is missing')")
    sys.path.append(str(libraries))
    write(project, shop="import fragile_library")
    said = run("worker", "shop:app")
    assert said.lines[:3] == [
        "error: Cannot import shop.",
        "  why  ImportError: libfragile.so.3 is missing",
        "       shop.py, line 1: import fragile_library",
    ]


def test_a_syntax_error_is_shown_with_its_line(run: Run, project: Path) -> None:
    write(project, shop="import depot", depot="def broken(:\n    pass")
    said = run("worker", "shop:app")
    assert said.code == 1
    assert said.lines == [
        "error: Cannot import depot.",
        "  why  SyntaxError: invalid syntax",
        "       depot.py, line 1: def broken(:",
    ]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise ValueError('the shop is closed')", "ValueError: the shop is closed"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("from penstock import Penstock; Penstock('htp://queue')", "'htp://queue' is not a URL for Penstock."),
    ],
)
def test_whatever_an_import_raises_is_an_error_with_its_line(run: Run, project: Path, code: str, why: str) -> None:
    write(project, shop=code)
    said = run("worker", "shop:app")
    assert said.code == 1
    assert said.lines[0] == "error: Cannot import shop."
    assert said.lines[1].startswith(f"  why  {why}")
    assert said.lines[2] == f"       shop.py, line 1: {code}"


def test_two_tasks_of_one_name_are_an_error(run: Run, project: Path) -> None:
    task = "\n    @app.task(name='shop.confirm')\n    async def {}() -> None: ...\n"
    write(project, shop=APP + task.format("confirm") + task.format("again"))
    said = run("worker", "shop:app")
    assert said.code == 1
    assert said.lines[:2] == [
        "error: Cannot import shop.",
        "  why  There are two tasks named 'shop.confirm': shop.confirm and shop.again.",
    ]


def test_an_attribute_that_is_not_there_is_named_with_the_app_that_is(run: Run, project: Path) -> None:
    write(project, shop=APP)
    said = run("worker", "shop:ap")
    assert (said.code, said.lines) == (
        1,
        ["error: shop has no attribute ap.", "  try  penstock worker shop:app"],
    )


def test_an_attribute_of_another_type_is_an_error(run: Run, project: Path) -> None:
    write(project, shop="class Config:\n    url = 'http://queue'")
    said = run("worker", "shop:Config.url")
    assert (said.code, said.lines) == (
        1,
        ["error: shop:Config.url is not a Penstock.", "  why  it is of the type str"],
    )


def test_a_module_without_an_app_is_an_error(run: Run, project: Path) -> None:
    write(project, shop="x = 1")
    said = run("worker", "shop")
    assert said.code == 1
    assert said.lines[0] == "error: shop has no Penstock."


def test_of_several_apps_one_has_to_be_named(run: Run, project: Path) -> None:
    write(project, shop="from penstock import Penstock\none = Penstock('memory:')\ntwo = Penstock('memory:')")
    said = run("worker", "shop")
    assert (said.code, said.lines) == (
        2,
        ["error: shop has several Penstocks: one, two.", "  try  penstock worker shop:one"],
    )


@pytest.mark.parametrize("target", ["shop", "shop:app", "shop:Holder.inner", "shop.tasks:jobs", "shop.tasks"])
def test_an_app_without_tasks_is_found_and_refused(run: Run, project: Path, target: str) -> None:
    holder = "\n    class Holder:\n        inner = app\n"
    tasks = "from penstock import Penstock\njobs = Penstock('memory:')\nsame = jobs"
    write(project, shop=APP + holder, shop_tasks=tasks)
    said = run("worker", target)
    assert said.code == 1
    assert said.lines[0].startswith("error: The app has no tasks.")


def test_a_module_named_by_import_that_fails_is_an_error(run: Run, project: Path) -> None:
    write(project, shop=APP)
    said = run("worker", "shop", "--import", "depot")
    assert (said.code, said.lines[0]) == (1, "error: Cannot import depot.")


def test_a_module_that_the_app_includes_and_that_is_not_there_is_named(run: Run, project: Path) -> None:
    write(project, shop=APP + "\n    app.include('depot')\n")
    said = run("worker", "shop")
    assert (said.code, said.lines[0]) == (1, "error: Cannot import depot.")


def test_a_module_that_the_app_includes_and_that_fails_is_an_error(run: Run, project: Path) -> None:
    write(project, shop=APP + "\n    app.include('depot')\n", depot="1 / 0")
    said = run("worker", "shop")
    assert (said.code, said.lines[0]) == (1, "error: Cannot import depot.")
    assert said.lines[1] == "  why  ZeroDivisionError: division by zero"


# -- flags ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-q", "docs:ten"), "error: --queue is NAME or NAME:SLOTS with 1 to 500 slots, not docs:ten."),
        (("-q", "docs:0"), "error: --queue is NAME or NAME:SLOTS with 1 to 500 slots, not docs:0."),
        (("-q", "docs:501"), "error: --queue is NAME or NAME:SLOTS with 1 to 500 slots, not docs:501."),
        (("-q", ":5"), "error: --queue is NAME or NAME:SLOTS with 1 to 500 slots, not :5."),
        (("-q", "docs", "-q", "docs:3"), "error: --queue names docs twice."),
        (("--grace", "soon"), "error: --grace is a duration, such as 500ms, 25s or 5m, not soon."),
        (("--max-rss", "1X"), "error: --max-rss is a size, such as 512M or 1G, not 1X."),
        (("--max-rss", "0"), "error: --max-rss is a size, such as 512M or 1G, not 0."),
        (("--max-jobs", "0"), "error: --max-jobs is at least 1, not 0."),
        (("--processes", "0"), "error: --processes is from 1 to 256, not 0."),
        (("--health", "8081"), "error: --health is HOST:PORT, not 8081."),
        (("--health", "127.0.0.1:65535", "--processes", "2"), "error: There are not 2 ports from 65535 on."),
        (("--reload", "--processes", "2"), "error: --reload runs one process."),
        (("--log-format", "xml"), "error: --log-format must be console, logfmt or json, not xml."),
    ],
)
def test_flags_that_make_no_sense_are_refused_before_anything_is_imported(
    run: Run, arguments: tuple[str, ...], said: str
) -> None:
    answer = run("worker", "shop:app", *arguments)
    assert (answer.code, answer.lines[0]) == (2, said)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop/tasks.py:app", "error: APP is a module, not the file shop/tasks.py."),
        ("shop.py", "error: APP is a module, not the file shop.py."),
        ("shop:", "error: APP is MODULE:ATTRIBUTE, such as shop:app, not shop:."),
        (":app", "error: APP is MODULE:ATTRIBUTE, such as shop:app, not :app."),
        ("shop..tasks:app", "error: APP is MODULE:ATTRIBUTE, such as shop:app, not shop..tasks:app."),
    ],
)
def test_an_app_that_is_written_wrongly_is_refused(run: Run, target: str, said: str) -> None:
    answer = run("worker", target)
    assert (answer.code, answer.lines[0]) == (2, said)


def test_an_app_is_needed(run: Run) -> None:
    assert run("worker").code == 2
    assert run("schedule", "prune").code == 2


def test_queues_are_read_with_their_slots() -> None:
    assert read_queues(["docs:10", "mail", "a:b:3"]) == {"docs": 10, "mail": 10, "a:b": 3}
    assert read_queues([]) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("1G", 2**30), ("512M", 2**29), ("512MiB", 2**29), ("1.5g", 3 * 2**29), ("64KB", 2**16), ("1000", 1000)],
)
def test_sizes_are_read_in_bytes(text: str, size: int) -> None:
    assert read_size(text, "--max-rss") == size


def test_durations_are_read_in_seconds() -> None:
    assert read_duration("1m30s", "--grace") == 90
    with pytest.raises(Failure):
        read_duration("-3s", "--grace")


def test_a_worker_is_named_after_the_package_of_its_app() -> None:
    package, _, digits = new_name("shop.tasks:app").partition("-")
    assert package == "shop"
    assert len(digits) == 4
    int(digits, 16)


def test_each_of_several_processes_has_a_name_and_a_port_of_its_own() -> None:
    settings = WorkerSettings(
        target="shop:app", name="shop-7f2c", processes=3, health=read_health("127.0.0.1:8081", processes=3)
    )
    children = [settings.one_process(number) for number in (1, 2, 3)]
    assert [child.name for child in children] == ["shop-7f2c-1", "shop-7f2c-2", "shop-7f2c-3"]
    assert [child.health for child in children] == ["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"]
    assert {child.processes for child in children} == {1}


def test_settings_survive_the_command_line() -> None:
    settings = WorkerSettings(
        target="shop:app",
        name="shop-7f2c",
        queues={"docs": 3, "a:b": 4},
        grace_s=0.5,
        max_jobs=10,
        max_rss=2**20,
        imports=("depot", "mail.tasks"),
        health="[::1]:8081",
        status=False,
        verbose=2,
        log_format="json",
        color="never",
    )
    _, bound, _ = app.parse_args(settings.arguments(), exit_on_error=False)
    assert read_settings(*bound.args, **bound.kwargs) == settings
