"""What an extra brings is not needed without it, and its absence is told with what to install."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.domain.errors import ExtraMissing
from penstock.engine import Engine
from penstock.server import exporting
from penstock.server.config import StartFailure

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    "postgres": {"asyncpg"},
    "sqs": {"boto3"},
    "aio-sqs": {"aiobotocore"},
    "django": {"django", "django-tasks"},
    "dynamodb": {"boto3"},
    "otel": {"opentelemetry-api", "opentelemetry-sdk"},
}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in requirements}


def test_the_base_needs_nothing_that_an_extra_brings() -> None:
    assert {extra: names(needed) for extra, needed in PROJECT["optional-dependencies"].items()} == EXTRAS
    base = names(PROJECT["dependencies"])
    assert not base & ({"fastapi", "pydantic", "starlette", "structlog"} | set[str]().union(*EXTRAS.values()))


def test_the_lock_of_the_runtime_pins_what_the_base_needs() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    pinned = {re.sub(r"[-_.]+", "-", name).lower() for name in names(lines)}
    assert names(PROJECT["dependencies"]) <= pinned
    assert not pinned & ({"fastapi", "pydantic", "starlette", "structlog"} | set[str]().union(*EXTRAS.values()))


async def test_postgresql_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for name in [name for name in sys.modules if name.startswith("penstock.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ExtraMissing, match=r"pip install 'penstock\[postgres\]'"):
        await Engine.open("postgresql://127.0.0.1/none").__aenter__()


def test_a_server_on_postgresql_without_its_driver_says_what_to_install() -> None:
    program = "import sys; sys.modules['asyncpg'] = None; from penstock.cli import main; main()"
    command = [sys.executable, "-c", program, "serve", "--port", "0", "--store", "postgresql://127.0.0.1/none"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    [line] = ran.stderr.splitlines()
    assert line.startswith("error: ")
    assert line.endswith("pip install 'penstock[postgres]'.")


@pytest.mark.parametrize(
    ("variable", "begin"),
    [(exporting.EXPORTERS, exporting.set_up_tracing), (exporting.PROVIDER, exporting.process_tracing)],
)
def test_traces_without_opentelemetry_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, variable: str, begin: object
) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setenv(variable, "console")
    assert callable(begin)
    with pytest.raises(StartFailure, match=rf"{variable} is set.*pip install 'penstock\[otel\]'"):
        begin()


def test_without_opentelemetry_and_without_its_settings_nothing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    exporting.set_up_tracing()()
    assert exporting.process_tracing() is None
