"""What an import loads: each command and each library call pays only for what it uses."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMEWORKS = {"fastapi", "starlette", "pydantic", "anyio"}
"""No part of the runtime, so that they cannot fight with the user's own."""

OPTIONAL = {"aiobotocore", "asyncpg", "boto3", "botocore", "opentelemetry"}
"""What extras bring."""

SERVING = {"apsw", "httptools", "prometheus_client", "uvicorn", "uvloop"}


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh Python has loaded after running some code."""
    program = f"import sys\n{code}\nprint('\\n'.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    # -I and an empty environment would hide an editable install; a plugin of the test run must not count.
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_importing_penstock_loads_hardly_anything() -> None:
    extra = loaded_by("import penstock") - loaded_by("import importlib, typing")
    assert extra == {"penstock"}


def test_the_version_is_the_one_that_is_installed() -> None:
    code = "import penstock, importlib.metadata as m; assert penstock.__version__ == m.version('penstock')"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("code", ["import penstock.cli", "import penstock.cli.serve"])
def test_the_command_line_loads_no_server(code: str) -> None:
    assert not loaded_by(code) & (FRAMEWORKS | OPTIONAL | SERVING)


def test_the_engine_on_sqlite_loads_no_http() -> None:
    code = """
import asyncio
from penstock.engine import Engine
async def main():
    async with Engine.open("memory:"):
        pass
asyncio.run(main())
"""
    loaded = loaded_by(code)
    assert "apsw" in loaded
    assert not loaded & (FRAMEWORKS | OPTIONAL | (SERVING - {"apsw"}))


def test_a_server_on_sqlite_loads_no_framework_and_no_extra() -> None:
    loaded = loaded_by("import penstock.server.process, penstock.server.serving, penstock.store.sqlite")
    assert "uvloop" in loaded
    assert not loaded & (FRAMEWORKS | OPTIONAL)


def test_an_app_and_its_worker_load_no_engine() -> None:
    code = """
import sys
from penstock import Penstock, Retry, Snooze, Worker, current, errors
app = Penstock("http://127.0.0.1:1", timeout=0.1, connect_timeout=0.1)
@app.task(name="double", retry=Retry(3))
def double(n: int) -> int:
    return 2 * n
worker = Worker(app)
worker.plan()
try:
    double.enqueue_sync(1)
except errors.TransportError:
    pass
engine = [name for name in sys.modules if name.startswith(("penstock.engine", "penstock.server", "penstock.store"))]
assert not engine, engine
"""
    assert not loaded_by(code) & (FRAMEWORKS | OPTIONAL | (SERVING - {"httptools"}))


def test_a_worker_that_waits_for_its_server_loads_no_engine() -> None:
    code = """
import asyncio, sys
from penstock import Penstock, Worker
from penstock.client.worker.notices import ConnectionLost
app = Penstock("http://127.0.0.1:1", timeout=0.1, connect_timeout=0.1)
@app.task(name="double")
async def double(n: int) -> int:
    return 2 * n
@app.cron("0 3 * * *", name="nightly", run_in="process")
def nightly() -> None: ...
@app.batch_task(name="many")
async def many(items: list[int]) -> list[int]:
    return items
class Stopping:
    verbose = False
    def notice(self, notice):
        if isinstance(notice, ConnectionLost):
            worker.stop()
worker = Worker(app, observer=Stopping())
asyncio.run(worker.run(signals=False))
engine = [name for name in sys.modules if name.startswith(("penstock.engine", "penstock.server", "penstock.store"))]
assert not engine, engine
"""
    assert not loaded_by(code) & (FRAMEWORKS | OPTIONAL | (SERVING - {"httptools"}))


def test_the_lab_s_reports_load_no_server_and_no_extra() -> None:
    modules = ("checkers.suites", "recording", "report.index", "report.page")
    code = "\n".join(f"import penstock.lab.{name}" for name in modules)
    assert not loaded_by(code) & (FRAMEWORKS | OPTIONAL | SERVING)
